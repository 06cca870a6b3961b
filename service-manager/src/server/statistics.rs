//! Counters: load, processors, network devices, disks.

use api::proto::machine as proto;
use tonic::Status;

use super::system::read;
use crate::node::Node;

/// Clock ticks a second in /proc/stat.
const TICKS: f64 = 100.0;

pub(super) fn load_average(node: &Node) -> Result<proto::LoadAvgResponse, Status> {
    let text = read(node, "/proc/loadavg")?;
    let mut words = text.split_whitespace().map(|word| word.parse().unwrap_or(0.0));
    let mut next = || words.next().unwrap_or(0.0);
    let answer = proto::LoadAvg { metadata: None, load1: next(), load5: next(), load15: next() };
    Ok(proto::LoadAvgResponse { messages: vec![answer] })
}

pub(super) fn system(node: &Node) -> Result<proto::SystemStatResponse, Status> {
    Ok(proto::SystemStatResponse { messages: vec![parse_stat(&read(node, "/proc/stat")?)] })
}

fn parse_stat(text: &str) -> proto::SystemStat {
    let mut stat = proto::SystemStat::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let first = numbers.first().copied().unwrap_or(0);
        match name {
            "cpu" => stat.cpu_total = Some(processor(&numbers)),
            "btime" => stat.boot_time = first,
            "ctxt" => stat.context_switches = first,
            "processes" => stat.process_created = first,
            "procs_running" => stat.process_running = first,
            "procs_blocked" => stat.process_blocked = first,
            "intr" => (stat.irq_total, stat.irq) = (first, numbers.get(1..).unwrap_or_default().to_vec()),
            "softirq" => (stat.soft_irq_total, stat.soft_irq) = (first, Some(soft_irq(&numbers))),
            name if name.starts_with("cpu") => stat.cpu.push(processor(&numbers)),
            _ => {}
        }
    }
    stat
}

fn processor(numbers: &[u64]) -> proto::CpuStat {
    let seconds = |index: usize| {
        let ticks = numbers.get(index).copied().unwrap_or(0);
        // Two exact halves: the idle time of many processors does not fit into 32 bits.
        let half = |part: u64| f64::from(u32::try_from(part).unwrap_or(u32::MAX));
        (half(ticks >> 32) * (2_f64.powi(32)) + half(ticks & u64::from(u32::MAX))) / TICKS
    };
    proto::CpuStat {
        user: seconds(0),
        nice: seconds(1),
        system: seconds(2),
        idle: seconds(3),
        iowait: seconds(4),
        irq: seconds(5),
        soft_irq: seconds(6),
        steal: seconds(7),
        guest: seconds(8),
        guest_nice: seconds(9),
    }
}

fn soft_irq(numbers: &[u64]) -> proto::SoftIrqStat {
    let count = |index: usize| numbers.get(index).copied().unwrap_or(0);
    proto::SoftIrqStat {
        hi: count(1),
        timer: count(2),
        net_tx: count(3),
        net_rx: count(4),
        block: count(5),
        block_io_poll: count(6),
        tasklet: count(7),
        sched: count(8),
        hrtimer: count(9),
        rcu: count(10),
    }
}

/// The kernel's counters may stand anywhere.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

pub(super) fn network_devices(node: &Node) -> Result<proto::NetworkDeviceStatsResponse, Status> {
    let text = read(node, "/proc/net/dev")?;
    let devices: Vec<_> = text.lines().skip(2).filter_map(device).collect();
    let total = devices.iter().fold(
        proto::NetDev { name: "Total".to_owned(), ..Default::default() },
        |mut sum, device| {
            add(&mut sum.rx_bytes, device.rx_bytes);
            add(&mut sum.rx_packets, device.rx_packets);
            add(&mut sum.rx_errors, device.rx_errors);
            add(&mut sum.rx_dropped, device.rx_dropped);
            add(&mut sum.rx_fifo, device.rx_fifo);
            add(&mut sum.rx_frame, device.rx_frame);
            add(&mut sum.rx_compressed, device.rx_compressed);
            add(&mut sum.rx_multicast, device.rx_multicast);
            add(&mut sum.tx_bytes, device.tx_bytes);
            add(&mut sum.tx_packets, device.tx_packets);
            add(&mut sum.tx_errors, device.tx_errors);
            add(&mut sum.tx_dropped, device.tx_dropped);
            add(&mut sum.tx_fifo, device.tx_fifo);
            add(&mut sum.tx_collisions, device.tx_collisions);
            add(&mut sum.tx_carrier, device.tx_carrier);
            add(&mut sum.tx_compressed, device.tx_compressed);
            sum
        },
    );
    let answer = proto::NetworkDeviceStats { metadata: None, total: Some(total), devices };
    Ok(proto::NetworkDeviceStatsResponse { messages: vec![answer] })
}

fn device(line: &str) -> Option<proto::NetDev> {
    let (name, rest) = line.split_once(':')?;
    let numbers: Vec<u64> = rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    let count = |index: usize| numbers.get(index).copied().unwrap_or(0);
    Some(proto::NetDev {
        name: name.trim().to_owned(),
        rx_bytes: count(0),
        rx_packets: count(1),
        rx_errors: count(2),
        rx_dropped: count(3),
        rx_fifo: count(4),
        rx_frame: count(5),
        rx_compressed: count(6),
        rx_multicast: count(7),
        tx_bytes: count(8),
        tx_packets: count(9),
        tx_errors: count(10),
        tx_dropped: count(11),
        tx_fifo: count(12),
        tx_collisions: count(13),
        tx_carrier: count(14),
        tx_compressed: count(15),
    })
}

/// Whole disks only: a partition's counters are in its disk's already.
pub(super) fn disks(node: &Node) -> Result<proto::DiskStatsResponse, Status> {
    let text = read(node, "/proc/diskstats")?;
    let is_disk = |name: &str| node.runtime.path("/sys/block").join(name.replace('/', "!")).exists();
    let devices: Vec<_> = text.lines().filter_map(disk).filter(|disk| is_disk(&disk.name)).collect();
    let total = devices.iter().fold(
        proto::DiskStat { name: "Total".to_owned(), ..Default::default() },
        |mut sum, disk| {
            add(&mut sum.read_completed, disk.read_completed);
            add(&mut sum.read_merged, disk.read_merged);
            add(&mut sum.read_sectors, disk.read_sectors);
            add(&mut sum.read_time_ms, disk.read_time_ms);
            add(&mut sum.write_completed, disk.write_completed);
            add(&mut sum.write_merged, disk.write_merged);
            add(&mut sum.write_sectors, disk.write_sectors);
            add(&mut sum.write_time_ms, disk.write_time_ms);
            add(&mut sum.io_in_progress, disk.io_in_progress);
            add(&mut sum.io_time_ms, disk.io_time_ms);
            add(&mut sum.io_time_weighted_ms, disk.io_time_weighted_ms);
            add(&mut sum.discard_completed, disk.discard_completed);
            add(&mut sum.discard_merged, disk.discard_merged);
            add(&mut sum.discard_sectors, disk.discard_sectors);
            add(&mut sum.discard_time_ms, disk.discard_time_ms);
            sum
        },
    );
    let answer = proto::DiskStats { metadata: None, total: Some(total), devices };
    Ok(proto::DiskStatsResponse { messages: vec![answer] })
}

/// A line of /proc/diskstats: major, minor, name, then counters (Documentation/admin-guide/iostats.rst).
fn disk(line: &str) -> Option<proto::DiskStat> {
    let mut words = line.split_whitespace().skip(2);
    let name = words.next()?.to_owned();
    let numbers: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
    let count = |index: usize| numbers.get(index).copied().unwrap_or(0);
    Some(proto::DiskStat {
        name,
        read_completed: count(0),
        read_merged: count(1),
        read_sectors: count(2),
        read_time_ms: count(3),
        write_completed: count(4),
        write_merged: count(5),
        write_sectors: count(6),
        write_time_ms: count(7),
        io_in_progress: count(8),
        io_time_ms: count(9),
        io_time_weighted_ms: count(10),
        discard_completed: count(11),
        discard_merged: count(12),
        discard_sectors: count(13),
        discard_time_ms: count(14),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_counted_without_their_partitions() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        std::fs::create_dir_all(dir.path().join("sys/block/vda")).unwrap();
        let text = "254 0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n254 1 vda1 1 2 3 4 5 6 7 8 9 10 11\n";
        std::fs::write(dir.path().join("proc/diskstats"), text).unwrap();
        let stats = disks(&node).unwrap().messages.remove(0);
        let names: Vec<_> = stats.devices.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!(names, ["vda"]);
        let total = stats.total.unwrap();
        assert_eq!((total.read_completed, total.io_in_progress, total.discard_time_ms), (1, 9, 15));
    }

    #[test]
    fn proc_stat_is_split_by_its_first_word() {
        let stat =
            parse_stat("cpu  100 0 50 900\ncpu0 100 0 50 900\nintr 7 1 2\nctxt 11\nbtime 1700000000\n");
        assert_eq!((stat.cpu.len(), stat.irq_total, stat.irq.len()), (1, 7, 2));
        assert_eq!((stat.context_switches, stat.boot_time), (11, 1_700_000_000));
        assert!((stat.cpu_total.unwrap().idle - 9.0).abs() < f64::EPSILON);
    }

    #[test]
    fn processor_time_is_not_cut_at_32_bits() {
        let ticks = (7_u64 << 32) + 300;
        assert!((processor(&[ticks]).user - 300_647_713.72).abs() < 0.001);
    }

    #[test]
    fn a_device_line_has_sixteen_counters() {
        let device = device("  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16").unwrap();
        assert_eq!((device.name.as_str(), device.rx_bytes, device.tx_compressed), ("eth0", 1, 16));
    }
}
