//! What the machine is and what runs on it, from /proc.

use std::fs;
use std::path::Path;

use api::proto::machine as proto;
use ondisk::Architecture;
use tonic::Status;

use crate::container;
use crate::node::Node;

/// Clock ticks a second in /proc (`USER_HZ`, fixed in the kernel's interface).
const TICKS: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

pub(super) fn read(node: &Node, path: &str) -> Result<String, Status> {
    fs::read_to_string(node.runtime.path(path)).map_err(|e| Status::internal(format!("read {path}: {e}")))
}

pub(super) fn version(node: &Node) -> proto::VersionResponse {
    let info = proto::VersionInfo {
        tag: api::version::tag(node.runtime.version()),
        sha: option_env!("BILLET_COMMIT").unwrap_or_default().to_owned(),
        built: String::new(),
        // The field asks for the compiler of the server.
        go_version: concat!("rustc ", env!("CARGO_PKG_RUST_VERSION")).to_owned(),
        os: "linux".to_owned(),
        arch: Architecture::OWN.name().to_owned(),
    };
    let mode = if node.is_container() { container::PLATFORM } else { "metal" };
    let platform =
        proto::PlatformInfo { name: node.runtime.parameters.platform.clone(), mode: mode.to_owned() };
    let answer = proto::Version {
        metadata: None,
        version: Some(info),
        platform: Some(platform),
        features: Some(proto::FeaturesInfo { rbac: true }),
    };
    proto::VersionResponse { messages: vec![answer] }
}

pub(super) fn hostname() -> proto::HostnameResponse {
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    proto::HostnameResponse { messages: vec![proto::Hostname { metadata: None, hostname }] }
}

pub(super) fn memory(node: &Node) -> Result<proto::MemoryResponse, Status> {
    let meminfo = Some(parse_meminfo(&read(node, "/proc/meminfo")?));
    Ok(proto::MemoryResponse { messages: vec![proto::Memory { metadata: None, meminfo }] })
}

macro_rules! fill {
    ($info:ident, $name:ident, $value:ident: $($field:ident)*) => {
        match $name.as_str() { $(stringify!($field) => $info.$field = $value,)* _ => {} }
    };
}

/// The lines of /proc/meminfo; a field's name is its key without punctuation, in lower case.
fn parse_meminfo(text: &str) -> proto::MemInfo {
    let mut info = proto::MemInfo::default();
    for line in text.lines() {
        let Some((key, rest)) = line.split_once(':') else { continue };
        let name: String =
            key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let Some(value) = rest.split_whitespace().next().and_then(|word| word.parse().ok()) else { continue };
        fill!(info, name, value: memtotal memfree memavailable buffers cached swapcached active inactive activeanon
            inactiveanon activefile inactivefile unevictable mlocked swaptotal swapfree dirty writeback anonpages mapped
            shmem slab sreclaimable sunreclaim kernelstack pagetables nfsunstable bounce writebacktmp commitlimit
            committedas vmalloctotal vmallocused vmallocchunk hardwarecorrupted anonhugepages shmemhugepages
            shmempmdmapped cmatotal cmafree hugepagestotal hugepagesfree hugepagesrsvd hugepagessurp hugepagesize
            directmap4k directmap2m directmap1g);
    }
    info
}

pub(super) fn mounts(node: &Node) -> Result<proto::MountsResponse, Status> {
    let text = read(node, "/proc/mounts")?;
    let stats = text.lines().filter_map(|line| mount(node, line)).collect();
    Ok(proto::MountsResponse { messages: vec![proto::Mounts { metadata: None, stats }] })
}

fn mount(node: &Node, line: &str) -> Option<proto::MountStat> {
    let mut words = line.split(' ');
    let (filesystem, target) = (unescape(words.next()?), unescape(words.next()?));
    let stat = rustix::fs::statvfs(node.runtime.path(&target)).ok();
    let bytes = |blocks: u64, size: u64| blocks.saturating_mul(size);
    Some(proto::MountStat {
        filesystem,
        size: stat.as_ref().map_or(0, |stat| bytes(stat.f_blocks, stat.f_frsize)),
        available: stat.as_ref().map_or(0, |stat| bytes(stat.f_bavail, stat.f_frsize)),
        mounted_on: target,
    })
}

/// Blank, tab, newline and backslash are octal escapes in /proc/mounts.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

pub(super) fn processes(node: &Node) -> Result<proto::ProcessesResponse, Status> {
    let proc = node.runtime.path("/proc");
    let entries = fs::read_dir(&proc).map_err(|e| Status::internal(format!("list /proc: {e}")))?;
    let pids =
        entries.flatten().filter(|e| e.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()));
    // A process that ends while we look is left out.
    let mut processes: Vec<_> = pids.filter_map(|entry| process(&entry.path())).collect();
    processes.sort_by_key(|process| process.pid);
    Ok(proto::ProcessesResponse { messages: vec![proto::Process { metadata: None, processes }] })
}

fn process(directory: &Path) -> Option<proto::ProcessInfo> {
    let stat = fs::read_to_string(directory.join("stat")).ok()?;
    let mut info = parse_stat(&stat)?;
    let args = fs::read(directory.join("cmdline")).unwrap_or_default();
    let words: Vec<_> =
        args.split(|&b| b == 0).filter(|w| !w.is_empty()).map(String::from_utf8_lossy).collect();
    info.args = words.join(" ");
    info.executable = fs::read_link(directory.join("exe"))
        .map_or_else(|_| String::new(), |path| path.display().to_string());
    Some(info)
}

/// Field numbers are those of proc_pid_stat(5), counted after the name.
fn parse_stat(stat: &str) -> Option<proto::ProcessInfo> {
    let (head, rest) = (stat.split_once('(')?, stat.rfind(')')?);
    let command = stat.get(head.0.len().checked_add(1)?..rest)?.to_owned();
    let fields: Vec<&str> = stat.get(rest.checked_add(2)?..)?.split_whitespace().collect();
    let number = |field: usize| fields.get(field.checked_sub(3)?)?.parse::<u64>().ok();
    let small = |field: usize| fields.get(field.checked_sub(3)?)?.parse::<i32>().ok();
    let ticks = number(14)?.saturating_add(number(15)?);
    Some(proto::ProcessInfo {
        pid: head.0.trim().parse().ok()?,
        ppid: small(4)?,
        state: (*fields.first()?).to_owned(),
        threads: small(20)?,
        cpu_time: f64::from(u32::try_from(ticks).unwrap_or(u32::MAX)) / TICKS,
        virtual_memory: number(23)?,
        resident_memory: number(24)?.saturating_mul(PAGE_BYTES),
        command,
        executable: String::new(),
        args: String::new(),
        label: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_keys_become_fields() {
        let text = "MemTotal:        1024 kB\nActive(anon):     12 kB\nHugePages_Total:       3\nDirectMap2M:  7 kB\nNew: 1\n";
        let info = parse_meminfo(text);
        assert_eq!((info.memtotal, info.activeanon, info.hugepagestotal, info.directmap2m), (1024, 12, 3, 7));
    }

    #[test]
    fn a_stat_line_with_a_wicked_name_is_read() {
        let line = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 3 0 7 8192 5 18446744073709551615";
        let info = parse_stat(line).unwrap();
        assert_eq!((info.pid, info.ppid, info.command.as_str(), info.threads), (42, 1, "a) b (c)", 3));
        assert_eq!((info.virtual_memory, info.resident_memory), (8192, 5 * 4096));
        assert!((info.cpu_time - 2.0).abs() < f64::EPSILON);
        assert!(parse_stat("nonsense").is_none());
    }

    #[test]
    fn mount_points_with_blanks_are_read() {
        assert_eq!(unescape("/a\\040b"), "/a b");
    }
}
