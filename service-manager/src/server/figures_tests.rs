//! Figures of this machine through the API server, held against what its kernel says before and after.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use api::proto::inspect::inspect_service_client::InspectServiceClient;
use api::proto::machine as proto;

use super::tests::{Fixture, fixture};
use crate::controllers;

/// A node that sees this machine's /proc and /sys.
async fn here() -> Fixture {
    let f = fixture().await;
    for directory in ["proc", "sys"] {
        symlink(format!("/{directory}"), f.dir.path().join(directory)).unwrap();
    }
    f
}

fn kernel(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The numbers behind each line's name.
fn counters(path: &str, name_at: usize) -> BTreeMap<String, Vec<u64>> {
    let text = kernel(path).replace(':', " ");
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let numbers = |words: &[&str]| words.iter().filter_map(|word| word.parse().ok()).collect();
    lines
        .filter(|words| words.len() > name_at + 1)
        .map(|words| (words[name_at].to_owned(), numbers(&words[name_at + 1..])))
        .collect()
}

/// Counters only grow: the answer lies between two looks at the kernel.
fn between(what: &str, before: u64, answer: u64, after: u64) {
    assert!((before..=after).contains(&answer), "{what}: {before} <= {answer} <= {after}");
}

#[tokio::test]
async fn load_is_the_kernel_s() {
    let f = here().await;
    let begin = Instant::now();
    loop {
        let before = kernel("/proc/loadavg");
        let answer = f.machine().load_avg(()).await.unwrap().into_inner().messages.remove(0);
        let three = |text: &str| text.split(' ').take(3).map(str::to_owned).collect::<Vec<_>>();
        // The kernel computes it anew every five seconds.
        if three(&before) == three(&kernel("/proc/loadavg")) {
            let got = [answer.load1, answer.load5, answer.load15].map(|load| format!("{load:.2}"));
            assert_eq!(three(&before), got);
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "the load never held still (deadline load)");
    }
}

#[tokio::test]
async fn processor_times_and_interrupts_are_the_kernel_s() {
    let f = here().await;
    let before = counters("/proc/stat", 0);
    let stat = f.machine().system_stat(()).await.unwrap().into_inner().messages.remove(0);
    let after = counters("/proc/stat", 0);
    let first = |name: &str| (before[name][0], after[name][0]);
    assert_eq!(stat.boot_time, first("btime").0);
    for (name, answer) in [
        ("ctxt", stat.context_switches),
        ("processes", stat.process_created),
        ("intr", stat.irq_total),
        ("softirq", stat.soft_irq_total),
    ] {
        between(name, first(name).0, answer, first(name).1);
        assert!(answer > 0, "{name}");
    }
    let processors = before.keys().filter(|name| name.starts_with("cpu") && *name != "cpu").count();
    assert_eq!((stat.cpu.len(), stat.irq.len()), (processors, before["intr"].len() - 1));
    let total = stat.cpu_total.unwrap();
    for (at, seconds) in [total.user, total.nice, total.system, total.idle].into_iter().enumerate() {
        let ticks = |map: &BTreeMap<String, Vec<u64>>| map["cpu"][at];
        // A processor's idle time may step back by a tick (proc(5)).
        let (low, high) = (ticks(&before).saturating_sub(100), ticks(&after) + 100);
        assert!((low..=high).contains(&whole(seconds * 100.0)), "field {at}: {low} <= {seconds} s <= {high}");
    }
    let soft = stat.soft_irq.unwrap();
    between("sched", before["softirq"][8], soft.sched, after["softirq"][8]);
    between("rcu", before["softirq"][10], soft.rcu, after["softirq"][10]);
}

fn whole(number: f64) -> u64 {
    format!("{number:.0}").parse().unwrap()
}

#[tokio::test]
async fn processors_are_the_kernel_s() {
    let f = here().await;
    let text = kernel("/proc/cpuinfo");
    let values = |key: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned()).collect()
    };
    let found = f.machine().cpu_info(()).await.unwrap().into_inner().messages.remove(0).cpu_info;
    let all = |of: fn(&proto::CpuInfo) -> String| found.iter().map(of).collect::<Vec<_>>();
    assert_eq!(all(|cpu| cpu.processor.to_string()), values("processor"));
    assert_eq!(all(|cpu| cpu.vendor_id.clone()), values("vendor_id"));
    assert_eq!(all(|cpu| cpu.model_name.clone()), values("model name"));
    assert_eq!(all(|cpu| cpu.flags.join(" ")), values("flags"));
    assert_eq!(all(|cpu| cpu.cpu_cores.to_string()), values("cpu cores"));
    assert!(!found.is_empty());
}

#[tokio::test]
async fn network_counters_are_the_kernel_s() {
    let f = here().await;
    let before = counters("/proc/net/dev", 0);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
    let stats = f.machine().network_device_stats(()).await.unwrap().into_inner().messages.remove(0);
    let after = counters("/proc/net/dev", 0);
    let mut names: Vec<_> = stats.devices.iter().map(|device| device.name.clone()).collect();
    names.sort();
    assert_eq!(names, before.keys().filter(|name| !before[*name].is_empty()).cloned().collect::<Vec<_>>());
    for device in &stats.devices {
        let (low, high) = (&before[&device.name], &after[&device.name]);
        let fields = [(0, device.rx_bytes), (1, device.rx_packets), (3, device.rx_dropped)];
        for (at, answer) in fields.into_iter().chain([(8, device.tx_bytes), (9, device.tx_packets)]) {
            between(&format!("{} field {at}", device.name), low[at], answer, high[at]);
        }
    }
    let loopback = stats.devices.iter().find(|device| device.name == "lo").unwrap();
    assert!(loopback.rx_bytes >= before["lo"][0] + 1000, "what was just sent is counted");
    let sum: u64 = stats.devices.iter().map(|device| device.tx_bytes).sum();
    let total = stats.total.unwrap();
    assert_eq!((total.name.as_str(), total.tx_bytes), ("Total", sum));
}

#[tokio::test]
async fn disk_counters_are_the_kernel_s() {
    let f = here().await;
    let before = counters("/proc/diskstats", 2);
    let stats = f.machine().disk_stats(()).await.unwrap().into_inner().messages.remove(0);
    let after = counters("/proc/diskstats", 2);
    let disks = |map: &BTreeMap<String, Vec<u64>>| -> Vec<String> {
        let is_disk = |name: &&String| fs::exists(format!("/sys/block/{}", name.replace('/', "!"))).unwrap();
        map.keys().filter(is_disk).cloned().collect()
    };
    let mut names: Vec<_> = stats.devices.iter().map(|disk| disk.name.clone()).collect();
    names.sort();
    assert_eq!(names, disks(&before));
    for disk in &stats.devices {
        let (low, high) = (&before[&disk.name], &after[&disk.name]);
        for (at, answer) in [
            (0, disk.read_completed),
            (2, disk.read_sectors),
            (4, disk.write_completed),
            (6, disk.write_sectors),
            (9, disk.io_time_ms),
        ] {
            between(&format!("{} field {at}", disk.name), low[at], answer, high[at]);
        }
    }
    let written: u64 = stats.devices.iter().map(|disk| disk.write_sectors).sum();
    assert_eq!(stats.total.unwrap().write_sectors, written);
}

#[tokio::test]
async fn frequencies_are_those_of_the_governed_processors() {
    let f = fixture().await;
    let directory = "sys/devices/system/cpu";
    for (cpu, now) in [("cpu2", "1200000"), ("cpu10", "800000")] {
        f.write(&format!("{directory}/{cpu}/cpufreq/scaling_governor"), "schedutil\n");
        f.write(&format!("{directory}/{cpu}/cpufreq/scaling_cur_freq"), now);
        f.write(&format!("{directory}/{cpu}/cpufreq/cpuinfo_min_freq"), "400000\n");
        f.write(&format!("{directory}/{cpu}/cpufreq/cpuinfo_max_freq"), "3600000\n");
    }
    f.write(&format!("{directory}/cpu1/online"), "1");
    let answer = f.machine().cpu_freq_stats(()).await.unwrap().into_inner().messages.remove(0);
    let frequency = |current_frequency| proto::CpuFreqStats {
        current_frequency,
        minimum_frequency: 400_000,
        maximum_frequency: 3_600_000,
        governor: "schedutil".into(),
    };
    assert_eq!(answer.cpu_freq_stats, [frequency(1_200_000), frequency(800_000)]);
}

#[tokio::test]
async fn logs_are_listed_by_id() {
    let f = fixture().await;
    for id in ["zeta", "apid"] {
        f.node.runtime.logs.open(id).unwrap();
    }
    let ids = f.machine().logs_containers(()).await.unwrap().into_inner().messages.remove(0).ids;
    assert_eq!(ids.iter().filter(|id| ["apid", "zeta"].contains(&id.as_str())).count(), 2);
    assert!(ids.is_sorted(), "{ids:?}");
    for id in ["kernel", "networkd", "timed", "udevd"] {
        assert!(ids.iter().any(|known| known == id), "{id}: {ids:?}");
    }
    let _kernel = f.kernel_log();
    // Each of them can be asked for.
    for id in ids {
        let request = proto::LogsRequest { id: id.clone(), tail_lines: -1, ..Default::default() };
        assert!(f.machine().logs(request).await.is_ok(), "{id}");
    }
}

#[tokio::test]
async fn dependencies_are_those_of_the_controllers() {
    let f = fixture().await;
    let mut client = InspectServiceClient::new(f.channel.clone());
    let edges =
        client.controller_runtime_dependencies(()).await.unwrap().into_inner().messages.remove(0).edges;
    for controller in controllers::ALL {
        let types = |kind: i32| {
            let own = edges.iter().filter(|e| e.controller_name == controller.name && e.edge_type == kind);
            own.map(|e| e.resource_type.clone()).collect::<std::collections::BTreeSet<_>>()
        };
        let kinds = |definitions: &[&runtime::store::Definition]| {
            // Of an internal type nobody learns.
            let public = definitions.iter().filter(|definition| !definition.internal);
            public.map(|definition| definition.kind.to_owned()).collect()
        };
        assert_eq!(types(0), kinds(controller.outputs), "{}", controller.name);
        assert_eq!(types(2), kinds(controller.inputs), "{}", controller.name);
    }
}
