//! The columns of each preset, and how a value becomes text.
//!
//! Owns: headings. Those of cpu, cpuset, io, memory and swap are talosctl's; those of process and psi are ours.
//! A file that a group does not have is `unset` where it is a limit, and blank elsewhere.
//! Source: the kernel's cgroup-v2.rst, psi.rst; sched-nice-design.rst (weights).

use super::{
    tree::Group,
    units::{bytes, microseconds, percent},
};
use clap::ValueEnum;
use std::collections::HashMap;

/// Groups of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Shares, limits and time of processors
    Cpu,
    /// Processors and memory nodes
    Cpuset,
    /// Bytes and requests of block devices
    Io,
    /// Memory, its reservations and limits
    Memory,
    /// Processes and threads
    Process,
    /// How long tasks had to wait for processors, memory and disks
    Psi,
    /// Swapped memory
    Swap,
}

/// Names by the ids in the tree.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Of pods (`pod<uid>`) and containers.
    pub(super) containers: HashMap<String, String>,
    /// Of processes, by number.
    pub(super) processes: HashMap<String, String>,
}

/// Text of a group's cell; the parent is what shares are taken of.
type Text = fn(&Group, Option<&Group>, &Names) -> String;

/// A column.
pub(super) struct Column {
    pub(super) heading: &'static str,
    pub(super) text: Text,
}

const fn column(heading: &'static str, text: Text) -> Column {
    Column { heading, text }
}

/// The columns of a preset.
pub(super) fn of(preset: Preset) -> &'static [Column] {
    match preset {
        Preset::Cpu => &CPU,
        Preset::Cpuset => &CPUSET,
        Preset::Io => &IO,
        Preset::Memory => &MEMORY,
        Preset::Process => &PROCESS,
        Preset::Psi => &PSI,
        Preset::Swap => &SWAP,
    }
}

static CPU: [Column; 8] = [
    column("CpuWeight", |g, _, _| unset(g.text("cpu.weight"))),
    column("CpuNice", |g, _, _| unset(g.text("cpu.weight.nice"))),
    column("CpuMax", |g, _, _| format!("[{}]", g.text("cpu.max").unwrap_or_default())),
    column("CpuUser", |g, _, _| time(g, "user_usec")),
    column("User/%", |g, parent, _| share(g, parent, "user_usec")),
    column("CpuSystem", |g, _, _| time(g, "system_usec")),
    column("System/%", |g, parent, _| share(g, parent, "system_usec")),
    column("Throttled", |g, _, _| time(g, "throttled_usec")),
];

static CPUSET: [Column; 4] = [
    column("CpuSet", |g, _, _| blank(g.text("cpuset.cpus"))),
    column("CpuSet(Eff)", |g, _, _| blank(g.text("cpuset.cpus.effective"))),
    column("Mems", |g, _, _| blank(g.text("cpuset.mems"))),
    column("Mems(Eff)", |g, _, _| blank(g.text("cpuset.mems.effective"))),
];

static IO: [Column; 5] = [
    column("Bytes Read/Written", |g, _, _| {
        disks(g, |disk| Some(format!("{}/{}", bytes(field(disk, "rbytes")?), bytes(field(disk, "wbytes")?))))
    }),
    column("ios Read/Write", |g, _, _| {
        disks(g, |disk| Some(format!("{}/{}", field(disk, "rios")?, field(disk, "wios")?)))
    }),
    column("PressAvg10", |g, _, _| pressure(g, "io.pressure", "some", "avg10")),
    column("PressAvg60", |g, _, _| pressure(g, "io.pressure", "some", "avg60")),
    column("PressTotal", |g, _, _| pressure_total(g, "io.pressure", "some")),
];

static MEMORY: [Column; 8] = [
    column("MemCurrent", |g, _, _| size(g, "memory.current")),
    column("MemPeak", |g, _, _| size(g, "memory.peak")),
    column("MemLow", |g, _, _| size(g, "memory.low")),
    column("Peak/Low", |g, _, _| ratio(g, "memory.peak", "memory.low")),
    column("MemHigh", |g, _, _| size(g, "memory.high")),
    column("MemMin", |g, _, _| size(g, "memory.min")),
    column("Current/Min", |g, _, _| ratio(g, "memory.current", "memory.min")),
    column("MemMax", |g, _, _| size(g, "memory.max")),
];

static PROCESS: [Column; 5] = [
    column("PidsCurrent", |g, _, _| unset(g.text("pids.current"))),
    column("PidsPeak", |g, _, _| unset(g.text("pids.peak"))),
    column("PidsMax", |g, _, _| unset(g.text("pids.max"))),
    column("Threads", |g, _, _| g.text("cgroup.threads").map_or(0, |text| text.lines().count()).to_string()),
    column("Processes", |g, _, names| processes(g, names)),
];

static PSI: [Column; 9] = [
    column("CpuSome10", |g, _, _| pressure(g, "cpu.pressure", "some", "avg10")),
    column("CpuSome60", |g, _, _| pressure(g, "cpu.pressure", "some", "avg60")),
    column("CpuTotal", |g, _, _| pressure_total(g, "cpu.pressure", "some")),
    column("MemSome10", |g, _, _| pressure(g, "memory.pressure", "some", "avg10")),
    column("MemFull10", |g, _, _| pressure(g, "memory.pressure", "full", "avg10")),
    column("MemTotal", |g, _, _| pressure_total(g, "memory.pressure", "some")),
    column("IoSome10", |g, _, _| pressure(g, "io.pressure", "some", "avg10")),
    column("IoFull10", |g, _, _| pressure(g, "io.pressure", "full", "avg10")),
    column("IoTotal", |g, _, _| pressure_total(g, "io.pressure", "some")),
];

static SWAP: [Column; 4] = [
    column("SwapCurrent", |g, _, _| size(g, "memory.swap.current")),
    column("SwapPeak", |g, _, _| size(g, "memory.swap.peak")),
    column("SwapHigh", |g, _, _| size(g, "memory.swap.high")),
    column("SwapMax", |g, _, _| size(g, "memory.swap.max")),
];

fn unset(text: Option<&str>) -> String {
    text.unwrap_or("unset").to_owned()
}

fn blank(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

/// Bytes, or a word such as `max`.
fn size(group: &Group, file: &str) -> String {
    let Some(text) = group.text(file) else { return "unset".to_owned() };
    text.parse().map_or_else(|_| text.to_owned(), bytes)
}

fn ratio(group: &Group, part: &str, whole: &str) -> String {
    let number = |file| group.text(file).and_then(|text| text.parse().ok());
    match (number(part), number(whole)) {
        (Some(_), Some(0)) => "max%".to_owned(),
        (Some(part), Some(whole)) => percent(part, whole),
        _ => "unset%".to_owned(),
    }
}

fn time(group: &Group, key: &str) -> String {
    group.number("cpu.stat", key).map_or_else(|| "unset".to_owned(), microseconds)
}

fn share(group: &Group, parent: Option<&Group>, key: &str) -> String {
    let whole = parent.and_then(|parent| parent.number("cpu.stat", key));
    match (group.number("cpu.stat", key), whole) {
        (Some(part), Some(whole)) => percent(part, whole),
        _ => "-".to_owned(),
    }
}

/// `some avg10=0.12 avg60=0.37 avg300=0.40 total=132512921`.
fn pressure<'a>(group: &'a Group, file: &str, line: &str, key: &str) -> String {
    let text: Option<&'a str> = group.text(file);
    let line = text.and_then(|text| text.lines().find_map(|l| l.strip_prefix(line)));
    line.and_then(|line| word(line, key)).unwrap_or("unset").to_owned()
}

fn pressure_total(group: &Group, file: &str, line: &str) -> String {
    let text = pressure(group, file, line, "total");
    text.parse().map_or(text, microseconds)
}

/// The value of `key=value` among words.
fn word<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn field(line: &str, key: &str) -> Option<u64> {
    word(line, key)?.parse().ok()
}

/// Each line of io.stat; a disk without any numbers is left out.
fn disks(group: &Group, text: fn(&str) -> Option<String>) -> String {
    let lines = group.text("io.stat").unwrap_or_default().lines();
    let each = lines.filter_map(|line| {
        let (disk, _) = line.split_once(' ')?;
        text(line).map(|text| format!("{disk}: {text}"))
    });
    each.collect::<Vec<_>>().join(" ")
}

/// `1/init 7/machined`.
fn processes(group: &Group, names: &Names) -> String {
    let ids = group.text("cgroup.procs").unwrap_or_default().lines();
    let each = ids.map(|id| match names.processes.get(id) {
        Some(name) => format!("{id}/{name}"),
        None => id.to_owned(),
    });
    each.collect::<Vec<_>>().join(" ")
}
