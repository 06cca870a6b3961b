//! Trees as tables; and this machine's own tree.

use super::*;
use flate2::{Compression, write::GzEncoder};
use tar::{Builder, Header};

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in files {
        let mut header = Header::new_gnu();
        header.set_size(u64::try_from(content.len()).unwrap());
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn shown(files: &[(&str, &str)], preset: Preset, names: &Names) -> String {
    let mut all = vec![("cgroup.controllers", "cpu memory\n")];
    all.extend(files);
    table(&tree::read(&archive(&all)).unwrap(), preset, names).to_string()
}

#[test]
fn memory_stands_in_a_tree_with_the_names_of_pods() {
    let names = Names {
        containers: [("poduid1".to_owned(), "kube-system/a".to_owned())].into(),
        ..Default::default()
    };
    let text = shown(
        &[
            ("init/memory.current", "139460608\n"),
            ("init/memory.min", "100663296\n"),
            ("init/memory.max", "max\n"),
            ("kubepods/poduid1/memory.current", "8388608\n"),
            ("kubepods/poduid1/memory.min", "0\n"),
            ("kubepods/memory.current", "8388608\n"),
        ],
        Preset::Memory,
        &names,
    );
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split("   ").map(str::trim).filter(|w| !w.is_empty()).collect())
        .collect();
    assert_eq!(lines[0][..3], ["NAME", "MemCurrent", "MemPeak"]);
    assert_eq!(lines[1], [".", "unset", "unset", "unset", "unset%", "unset", "unset", "unset%", "unset"]);
    assert_eq!(
        lines[2],
        ["├──init", "133 MiB", "unset", "unset", "unset%", "unset", "96 MiB", "138.54%", "max"]
    );
    assert_eq!(lines[3][..2], ["└──kubepods", "8.0 MiB"]);
    assert!(text.contains("\n    └──kube-system/a   8.0 MiB") && lines[4].contains(&"max%"), "{text}");
}

#[test]
fn processor_time_is_a_share_of_the_parent_s() {
    let text = shown(
        &[
            ("cpu.stat", "usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000\n"),
            ("system/cpu.stat", "user_usec 500000\nsystem_usec 0\nthrottled_usec 467\n"),
            ("system/cpu.weight", "59\n"),
            ("system/cpu.weight.nice", "2\n"),
            ("system/cpu.max", "max 100000\n"),
        ],
        Preset::Cpu,
        &Names::default(),
    );
    let last: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
    let wanted = ["└──system", "59", "2", "[max", "100000]", "500ms", "25.00%", "0s", "0.00%", "467µs"];
    assert_eq!(last, wanted);
    assert!(text.lines().nth(1).unwrap().contains("2s        -"), "{text}");
}

#[test]
fn disks_pressure_processes_and_sets_are_read() {
    let files = [
        ("a/io.stat", "254:0 rbytes=1048576 wbytes=0 rios=3 wios=0 dbytes=0 dios=0\n7:0 \n"),
        (
            "a/io.pressure",
            "some avg10=0.12 avg60=0.37 avg300=0.40 total=132512921\nfull avg10=0.01 total=5\n",
        ),
        ("a/memory.pressure", "some avg10=1.00 avg60=0.00 total=0\nfull avg10=0.50 avg60=0.00 total=0\n"),
        ("a/cgroup.procs", "1\n77\n"),
        ("a/cgroup.threads", "1\n77\n78\n"),
        ("a/pids.current", "3\n"),
        ("a/cpuset.cpus.effective", "0-1\n"),
        ("a/memory.swap.max", "0\n"),
    ];
    let names = Names { processes: [("77".to_owned(), "etcd".to_owned())].into(), ..Default::default() };
    let last = |preset| shown(&files, preset, &names).lines().last().unwrap().to_owned();
    let io = last(Preset::Io);
    assert!(
        io.contains("254:0: 1.0 MiB/0 B") && io.contains("254:0: 3/0") && io.ends_with("2m12.512921s"),
        "{io}"
    );
    assert!(!io.contains("7:0"), "{io}");
    assert!(
        last(Preset::Psi).contains("1.00        0.50        0s         0.12       0.01"),
        "{}",
        last(Preset::Psi)
    );
    assert!(
        last(Preset::Process).ends_with("unset      unset     3         1 77/etcd"),
        "{}",
        last(Preset::Process)
    );
    assert!(last(Preset::Cpuset).contains("0-1"));
    assert!(last(Preset::Swap).ends_with("0 B"));
}

#[test]
fn what_is_no_tree_is_refused() {
    let error = tree::read(&archive(&[("memory/tasks", "1\n")])).unwrap_err().to_string();
    assert!(error.contains("no unified hierarchy"), "{error}");
    assert!(tree::read(b"no archive").is_err());
    let deep = format!("{}cpu.stat", "d/".repeat(80));
    assert!(tree::read(&archive(&[("cgroup.controllers", ""), (&deep, "")])).is_err());
}
