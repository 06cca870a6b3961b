//! What an upgrade writes and how much memory it takes: one node, one upgrade from a registry on this machine.
//!
//! Owns: `target/bench/upgrade.json` and its part of docs/benchmarks.md.
//! Does not: count what the restart behind the upgrade does.
//! Order: the node stands still; QEMU's counters and machined's memory; the upgrade, watched until its boot entry is on
//! the disk; the same again.
//! Source: QEMU's `query-blockstats`; proc_pid_status(5) for `VmHWM`, which `clear_refs` resets (proc_pid_clear_refs).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use qemu_tests::agent::Agent;
use qemu_tests::installer_image::{Parts, Registry};
use qemu_tests::process::POLL_INTERVAL;
use qemu_tests::{TestNode, Transport, Vm, deadline};
use serde_json::{Value, json};

use super::document;
use crate::step::step;

const VERSION: &str = "0.2.0";

/// The line behind the last write of an upgrade.
const WRITTEN: &str = "will be tried at the next start";

/// An image of 100 MB is pulled, written and read back by an emulated processor.
const LIMIT: Duration = Duration::from_secs(240);

/// Limits of issue "Install, upgrade, rollback, reset".
const BYTES_LIMIT: f64 = 1.1;
const MEMORY_LIMIT_KIB: u64 = 64 * 1024;

/// QEMU's name of a test node's disk.
const DISK: &str = "drive0";

/// What was measured; sizes in bytes, memory in KiB.
struct Cost {
    /// Sent to the disk, the node's own log and volumes included.
    written: u64,
    /// The layers with their hash trees, as they lie in the slot.
    layers: u64,
    /// Kernel, initramfs, stub and command line, as they lie on the ESP.
    boot: u64,
    /// machined's resident memory before.
    before: u64,
    /// The most that it had.
    peak: u64,
    /// The most that files in memory grew by.
    shared: u64,
}

pub(crate) fn measure(directory: &Path) -> Result<()> {
    let cost = step("upgrade a node and watch its disk and its memory", upgrade)?;
    document::keep(directory, "upgrade", &cost.json())?;
    document::write("upgrade", &cost.table(&document::today()?, &document::qemu_version()?))
}

fn upgrade() -> Result<Cost> {
    let registry = Registry::start()?;
    let parts = Parts::of_build()?;
    let layers = parts.manifest.slot_bytes();
    let in_uki = ["vmlinuz", "stub.efi", "modules.cpio.zst", "init.cpio.zst"];
    let boot = parts.boot.iter().filter(|(name, _)| in_uki.contains(&name.as_str()));
    let boot = boot.map(|(_, bytes)| bytes.len() as u64).sum();
    let image = registry.keep(VERSION, &parts.image(VERSION))?;
    let node = TestNode::builder("bench-upgrade")
        .transport(Transport::Firmware)
        .machine_section(&registry.machine_section())
        .boot()?;
    node.expect("billet: boot sequence: done")?;
    let agent = node.agent()?;
    let pid = agent.process("machined")?.pid;
    agent.ask(json!({ "op": "write", "path": format!("/proc/{pid}/clear_refs"), "text": "5" }))?;
    let before = machined(&agent, pid, "VmRSS:")?;
    let shared_before = shared(&agent)?;
    let written_before = written(node.vm())?;
    node.admin().ok(&["upgrade", "--wait=false", "--image", &image])?;
    let (mut peak, mut shared_most) = (before, shared_before);
    let end = Instant::now() + deadline(LIMIT);
    // The last look may find the node's services gone: the highest value is kept by the kernel, so the look before
    // has all but the last moment.
    while !node.vm().console().text().contains(WRITTEN) {
        ensure!(
            Instant::now() < end,
            "the upgrade did not end; the console is {}",
            node.vm().console().text()
        );
        peak = peak.max(machined(&agent, pid, "VmHWM:")?);
        shared_most = shared_most.max(shared(&agent)?);
        std::thread::sleep(POLL_INTERVAL);
    }
    let written = written(node.vm())? - written_before;
    if let Ok(last) = machined(&agent, pid, "VmHWM:") {
        peak = peak.max(last);
    }
    Ok(Cost { written, layers, boot, before, peak, shared: shared_most - shared_before })
}

/// Bytes that QEMU was asked to write to the node's disk.
fn written(vm: &Vm) -> Result<u64> {
    let answer = vm.qmp().execute("query-blockstats", json!({}))?;
    disk_of(&answer, DISK).with_context(|| format!("QEMU has no statistics of {DISK}: {answer}"))
}

/// `wr_bytes` of the drive of that name.
pub(super) fn disk_of(answer: &Value, name: &str) -> Option<u64> {
    let disk = answer.as_array()?.iter().find(|disk| disk["device"] == name)?;
    disk["stats"]["wr_bytes"].as_u64()
}

/// A size in machined's status, in KiB.
fn machined(agent: &Agent, pid: i32, name: &str) -> Result<u64> {
    field(&agent.read(&format!("/proc/{pid}/status"))?, name)
        .with_context(|| format!("machined has no {name}"))
}

/// Files in memory, in KiB.
fn shared(agent: &Agent) -> Result<u64> {
    field(&agent.read("/proc/meminfo")?, "Shmem:").context("no Shmem in /proc/meminfo")
}

/// `VmRSS:      1234 kB`
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

impl Cost {
    fn ratio(&self, of: u64) -> f64 {
        super::measure::ratio(self.written, of)
    }

    fn more_memory(&self) -> u64 {
        self.peak - self.before + self.shared
    }

    fn json(&self) -> Value {
        json!({
            "written_bytes": self.written,
            "layers_bytes": self.layers,
            "boot_bytes": self.boot,
            "ratio_layers": self.ratio(self.layers),
            "ratio_system": self.ratio(self.layers + self.boot),
            "machined_rss_kib": self.before,
            "machined_peak_kib": self.peak,
            "shmem_growth_kib": self.shared,
            "memory_beside_machined_kib": self.more_memory(),
        })
    }

    fn table(&self, date: &str, qemu: &str) -> String {
        let met = |is: bool| if is { "met" } else { "**missed**" };
        let (of_layers, of_all) = (self.ratio(self.layers), self.ratio(self.layers + self.boot));
        let more = self.more_memory();
        format!(
            "Measured {date} with QEMU {qemu}; the test image, upgraded from a registry.\n\n\
             | an upgrade | value | limit |\n|---|---|---|\n\
             | bytes written to the disk | {} | |\n\
             | the new root's layers with their hash trees | {} | |\n\
             | kernel and initramfs beside them, on the ESP | {} | |\n\
             | written, in parts of layers, kernel and initramfs | {of_all:.3} | {BYTES_LIMIT}: {} |\n\
             | written, in parts of the layers alone | {of_layers:.3} | {BYTES_LIMIT}: {} |\n\
             | machined's memory before, KiB | {} | |\n\
             | the most beside it, KiB (of that in files: {}) | {more} | {MEMORY_LIMIT_KIB}: {} |\n",
            self.written,
            self.layers,
            self.boot,
            met(of_all <= BYTES_LIMIT),
            met(of_layers <= BYTES_LIMIT),
            self.before,
            self.shared,
            met(more <= MEMORY_LIMIT_KIB),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_names() {
        assert_eq!(field("VmPeak:\t 9 kB\nVmHWM:\t    1234 kB\n", "VmHWM:"), Some(1234));
        assert_eq!(field("VmPeak:\t 9 kB\n", "VmHWM:"), None);
        let answer = json!([{ "device": "pflash1", "stats": { "wr_bytes": 7 } }, { "device": DISK, "stats": { "wr_bytes": 8 } }]);
        assert_eq!(disk_of(&answer, DISK), Some(8));
    }

    #[test]
    fn a_missed_limit_is_shown_as_missed() {
        let cost = Cost { written: 115, layers: 100, boot: 15, before: 10, peak: 30, shared: 4 };
        let table = cost.table("today", "7");
        assert!(
            table.contains("| 1.000 | 1.1: met |") && table.contains("| 1.150 | 1.1: **missed** |"),
            "{table}"
        );
        assert!(table.contains("| 24 | 65536: met |"), "{table}");
    }
}
