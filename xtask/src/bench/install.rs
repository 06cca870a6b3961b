//! How fast an installation from local layers writes, in parts of what the disk takes.
//!
//! Owns: `target/bench/install.json` and its part of docs/benchmarks.md.
//! Order: a machine with two blank disks of the same speed; the installation to the first, by the node's own times; then
//! as many bytes written to the second one after another, and flushed, by the test agent.
//! Does not: know what a real disk does: QEMU limits both disks to [`DISK_RATE`], since an emulated processor is slower
//! than a host's disk and faster than a flash card.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use qemu_tests::TestNode;
use qemu_tests::node::{API_PORT, BOOT_LIMIT};
use serde_json::{Value, json};

use super::{document, klog, upgrade};
use crate::step::step;

/// Writes that the disks take, in bytes a second: an eMMC's or a small SSD's.
const DISK_RATE: u64 = 50_000_000;

/// Everything that an installed disk has.
const DISK_BYTES: u64 = 4 << 30;

/// The installation's lines: the plan, behind which it begins to write; reading back, before which all was flushed; the
/// end.
const PLANNED: &str = "install plan: plan ";
const WRITTEN: &str = "install: verify";
const INSTALLED: &str = "installed Billet ";

const LIMIT: Duration = Duration::from_secs(240);

/// The limit of issue "Install, upgrade, rollback, reset".
const PART_LIMIT: f64 = 0.8;

struct Cost {
    /// Sent to the disk until the reading back began.
    bytes: u64,
    write_ns: u64,
    /// With reading back, boot files, entry and table.
    whole_ns: u64,
    /// The same bytes in one row.
    plain_ns: u64,
}

pub(crate) fn measure(directory: &Path) -> Result<()> {
    let cost = step("install to a disk, and write as much to another", install)?;
    document::keep(directory, "install", &cost.json())?;
    document::write("install", &cost.table(&document::today()?, &document::qemu_version()?))
}

fn install() -> Result<Cost> {
    let node = TestNode::builder("bench-install")
        .installs()
        .source("")
        .no_config()
        .machine(|vm, dir| {
            let mut vm = vm;
            for name in ["first", "second"] {
                let image = dir.join(name);
                File::create(&image).and_then(|file| file.set_len(DISK_BYTES)).context("create a disk")?;
                let image = image.to_str().context("a path that is not UTF-8")?;
                let drive =
                    format!("if=none,id={name},format=raw,file={image},throttling.bps-write={DISK_RATE}");
                let device = format!("virtio-blk-pci,drive={name},serial={name}");
                vm = vm.extra(&["-drive", &drive, "-device", &device]);
            }
            Ok(vm)
        })
        .start()?;
    node.vm().expect("upload a configuration with", BOOT_LIMIT)?;
    let config = node.credentials().machine_config()?.replacen("/dev/sda", "/dev/vda", 1);
    let file = node.files().join("applied.yaml");
    std::fs::write(&file, config).context("write the config")?;
    let address = format!("127.0.0.1:{}", node.vm().port(API_PORT)?);
    let file = file.to_str().context("a path that is not UTF-8")?;
    node.admin().ok(&["apply-config", "--insecure", "--nodes", &address, "--file", file])?;
    let at = |needle: &str| {
        let line = node.vm().expect(needle, LIMIT)?;
        klog::time_of(&line, needle).with_context(|| format!("no time stamp in {line:?}"))
    };
    let planned = at(PLANNED)?;
    let written = at(WRITTEN)?;
    let bytes = counted(&node, "first")?;
    let installed = at(INSTALLED)?;
    node.vm().expect("billet: boot sequence: done", LIMIT)?;
    // The agent's writes go through the kernel's cache, as the installer's do; the flip of a byte flushes them.
    let agent = node.agent()?;
    let before = counted(&node, "second")?;
    let began = Instant::now();
    agent.ask(json!({ "op": "fill", "path": "/dev/vdb", "bytes": bytes }))?;
    agent.ask(json!({ "op": "flip-byte", "path": "/dev/vdb", "offset": 0, "mask": 1 }))?;
    let plain_ns = u64::try_from(began.elapsed().as_nanos()).context("a time out of range")?;
    ensure!(counted(&node, "second")? - before >= bytes, "the plain write did not reach the disk");
    Ok(Cost { bytes, write_ns: written - planned, whole_ns: installed - planned, plain_ns })
}

fn counted(node: &TestNode, disk: &str) -> Result<u64> {
    let answer = node.vm().qmp().execute("query-blockstats", json!({}))?;
    upgrade::disk_of(&answer, disk).with_context(|| format!("QEMU has no statistics of {disk}"))
}

impl Cost {
    fn json(&self) -> Value {
        json!({
            "disk_rate_bytes_per_second": DISK_RATE,
            "written_bytes": self.bytes,
            "write_ns": self.write_ns,
            "whole_ns": self.whole_ns,
            "plain_write_ns": self.plain_ns,
            "part_of_plain_rate": self.part(),
        })
    }

    /// The installation's rate in parts of the plain one's: both wrote the same bytes.
    fn part(&self) -> f64 {
        super::measure::ratio(self.plain_ns, self.write_ns)
    }

    fn table(&self, date: &str, qemu: &str) -> String {
        let seconds = |ns: u64| super::measure::giga(ns);
        let met = if self.part() >= PART_LIMIT { "met" } else { "**missed**" };
        format!(
            "Measured {date} with QEMU {qemu}, without hardware virtualisation; disks that take {} MB a second.\n\n\
             | an installation from local layers | value | limit |\n|---|---|---|\n\
             | bytes written | {} | |\n\
             | seconds from the plan to the last byte, flushed | {:.2} | |\n\
             | seconds for as many bytes in a row, flushed | {:.2} | |\n\
             | rate, in parts of that of bytes in a row | {:.2} | at least {PART_LIMIT}: {met} |\n\
             | seconds with everything read back and compared | {:.2} | |\n",
            DISK_RATE / 1_000_000,
            self.bytes,
            seconds(self.write_ns),
            seconds(self.plain_ns),
            self.part(),
            seconds(self.whole_ns),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_installation_misses_its_limit() {
        let cost = |write_ns| Cost { bytes: 100, write_ns, whole_ns: 3_000_000_000, plain_ns: 1_000_000_000 };
        assert!(cost(1_200_000_000).table("today", "7").contains("| 0.83 | at least 0.8: met |"));
        assert!(cost(2_000_000_000).table("today", "7").contains("| 0.50 | at least 0.8: **missed** |"));
    }
}
