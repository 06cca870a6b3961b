//! Cores from /proc/cpuinfo, as x86 writes it: a block each logical processor.

use std::collections::BTreeMap;

use runtime::store::{CpuCore, Fact, Spec};

/// Cores by `<socket>-<core>`; where the kernel names neither, every logical processor is a core of its own.
pub(super) fn parse(text: &str) -> Vec<(String, Spec)> {
    let mut cores = BTreeMap::<String, CpuCore>::new();
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let lines = block.lines().filter_map(|line| line.split_once(':'));
        let values: BTreeMap<&str, &str> = lines.map(|(key, value)| (key.trim(), value.trim())).collect();
        let Some(number) = values.get("processor").and_then(|number| number.parse().ok()) else { continue };
        let value = |key: &str| values.get(key).copied().unwrap_or_default();
        let id = match (value("physical id"), value("core id")) {
            ("", "") => format!("0-{number}"),
            (socket, core) => format!("{socket}-{core}"),
        };
        cores.entry(id).or_insert_with(|| core(&value)).logical_cpus.push(number);
    }
    cores.into_iter().map(|(id, core)| (id, Spec::Fact(Box::new(Fact::CpuCore(Box::new(core)))))).collect()
}

fn core<'a>(value: &dyn Fn(&str) -> &'a str) -> CpuCore {
    let text = |key: &str| value(key).to_owned();
    let number = |key: &str| value(key).parse().unwrap_or_default();
    let words = |key: &str| value(key).split_whitespace().map(str::to_owned).collect();
    CpuCore {
        socket: text("physical id"),
        core_id: text("core id"),
        logical_cpus: Vec::new(),
        vendor_id: text("vendor_id"),
        cpu_family: text("cpu family"),
        model: text("model"),
        model_name: text("model name"),
        stepping: text("stepping"),
        microcode: text("microcode"),
        cache_size: text("cache size"),
        cores_per_socket: number("cpu cores"),
        threads_per_socket: number("siblings"),
        flags: words("flags"),
        bugs: words("bugs"),
        bogo_mips: value("bogomips").parse().unwrap_or_default(),
        address_sizes: text("address sizes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_core_are_together() {
        let block = |number: u32, core: u32| {
            format!(
                "processor\t: {number}\nphysical id\t: 0\ncore id\t\t: {core}\nsiblings\t: 4\nflags\t\t: fpu sse\n\n"
            )
        };
        let text = [block(0, 0), block(1, 1), block(2, 0), block(3, 1)].concat();
        let cores = parse(&text);
        let ids: Vec<_> = cores.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["0-0", "0-1"]);
        let text = cores[0].1.yaml().unwrap();
        assert!(text.contains("logicalCPUs:\n- 0\n- 2\n"), "{text}");
        assert!(text.contains("threadsPerSocket: 4\n"), "{text}");
        assert_eq!(parse("processor : 0\n\nprocessor : 1\n").len(), 2);
        assert!(parse("nonsense").is_empty());
    }
}
