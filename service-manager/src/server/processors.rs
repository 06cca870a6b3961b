//! What processors there are and how fast they run.

use api::proto::machine as proto;
use tonic::Status;

use super::system::read;
use crate::node::Node;

const PROCESSORS: &str = "/sys/devices/system/cpu";

pub(super) fn info(node: &Node) -> Result<proto::CpuInfoResponse, Status> {
    let text = read(node, "/proc/cpuinfo")?;
    let cpu_info = text.split("\n\n").filter(|block| !block.trim().is_empty()).map(processor).collect();
    Ok(proto::CpuInfoResponse { messages: vec![proto::CpUsInfo { metadata: None, cpu_info }] })
}

/// One block of /proc/cpuinfo as x86 writes it.
fn processor(block: &str) -> proto::CpuInfo {
    let mut info = proto::CpuInfo::default();
    for line in block.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        set(&mut info, key.trim(), value.trim());
    }
    info
}

fn set(info: &mut proto::CpuInfo, key: &str, value: &str) {
    let text = || value.to_owned();
    let number = || value.parse().unwrap_or(0);
    let real = || value.parse().unwrap_or(0.0);
    let words = || value.split_whitespace().map(str::to_owned).collect();
    match key {
        "processor" => info.processor = number(),
        "vendor_id" => info.vendor_id = text(),
        "cpu family" => info.cpu_family = text(),
        "model" => info.model = text(),
        "model name" => info.model_name = text(),
        "stepping" => info.stepping = text(),
        "microcode" => info.microcode = text(),
        "cpu MHz" => info.cpu_mhz = real(),
        "cache size" => info.cache_size = text(),
        "physical id" => info.physical_id = text(),
        "siblings" => info.siblings = number(),
        "core id" => info.core_id = text(),
        "cpu cores" => info.cpu_cores = number(),
        "apicid" => info.apic_id = text(),
        "initial apicid" => info.initial_apic_id = text(),
        "fpu" => info.fpu = text(),
        "fpu_exception" => info.fpu_exception = text(),
        "cpuid level" => info.cpu_id_level = number(),
        "wp" => info.wp = text(),
        "flags" => info.flags = words(),
        "bugs" => info.bugs = words(),
        "bogomips" => info.bogo_mips = real(),
        "clflush size" => info.cl_flush_size = number(),
        "cache_alignment" => info.cache_alignment = number(),
        "address sizes" => info.address_sizes = text(),
        "power management" => info.power_management = text(),
        _ => {}
    }
}

/// One entry a processor that has a frequency driver; virtual machines have none.
pub(super) fn frequencies(node: &Node) -> Result<proto::CpuFreqStatsResponse, Status> {
    let directory = node.runtime.path(PROCESSORS);
    let entries =
        std::fs::read_dir(&directory).map_err(|e| Status::internal(format!("list {PROCESSORS}: {e}")))?;
    let mut numbers: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let cpu_freq_stats = numbers.into_iter().filter_map(|number| frequency(node, number)).collect();
    Ok(proto::CpuFreqStatsResponse {
        messages: vec![proto::CpUsFreqStats { metadata: None, cpu_freq_stats }],
    })
}

fn frequency(node: &Node, number: u32) -> Option<proto::CpuFreqStats> {
    let text = |name: &str| read(node, &format!("{PROCESSORS}/cpu{number}/cpufreq/{name}")).ok();
    // The kernel counts in kHz, and so does the wire.
    let khz = |name: &str| text(name).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    Some(proto::CpuFreqStats {
        governor: text("scaling_governor")?.trim().to_owned(),
        current_frequency: khz("scaling_cur_freq"),
        minimum_frequency: khz("cpuinfo_min_freq"),
        maximum_frequency: khz("cpuinfo_max_freq"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_a_processor() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let text = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\ncpu MHz\t\t: 2000.5\nflags\t\t: fpu sse\n\
                    cpu cores\t: 2\n\nprocessor\t: 1\naddress sizes\t: 46 bits physical\n\n";
        std::fs::write(dir.path().join("proc/cpuinfo"), text).unwrap();
        let found = info(&node).unwrap().messages.remove(0).cpu_info;
        assert_eq!((found.len(), found[1].processor), (2, 1));
        assert_eq!((found[0].model_name.as_str(), found[0].cpu_cores), ("A CPU @ 2 GHz", 2));
        assert_eq!(found[0].flags, ["fpu", "sse"]);
        assert_eq!(found[1].address_sizes, "46 bits physical");
    }

    #[test]
    fn processors_without_a_governor_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let cpu = dir.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(cpu.join("cpu10/cpufreq")).unwrap();
        std::fs::create_dir_all(cpu.join("cpu1")).unwrap();
        std::fs::create_dir_all(cpu.join("cpufreq")).unwrap();
        std::fs::write(cpu.join("cpu10/cpufreq/scaling_governor"), "powersave\n").unwrap();
        std::fs::write(cpu.join("cpu10/cpufreq/scaling_cur_freq"), "800000\n").unwrap();
        let found = frequencies(&node).unwrap().messages.remove(0).cpu_freq_stats;
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].governor.as_str(), found[0].current_frequency), ("powersave", 800_000));
    }
}
