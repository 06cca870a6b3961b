//! Resident memory of the node's own processes, each shared page counted by its share (PSS).
//!
//! Owns: one boot with the host's accelerator, since a page touched is a page touched whatever runs the guest.
//! Order: wait until all four processes are there and their sizes stand still.
//! Source: proc_pid_smaps_rollup of proc(5).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use qemu_tests::cli::Billetctl;
use qemu_tests::node::{API_PORT, BOOT_LIMIT, READY_LINE};
use qemu_tests::{Bus, Drive, Vm, deadline};
use serde::Deserialize;

use super::billet::{Config, answer};
use crate::build::Artefacts;
use crate::place;
use crate::step::step;

const PROCESSES: [&str; 4] = ["init", "machined", "apid", "trustd"];

/// From the ready line until sizes stand still.
const SETTLE: Duration = Duration::from_secs(60);

/// Between two looks; two that find the same sizes end the wait.
const LOOK: Duration = Duration::from_secs(2);

/// Two sizes are the same within this: counters and buffers come and go.
const STILL_KIB: u64 = 64;

/// A row of `billetctl processes -o json`.
#[derive(Debug, Clone, Deserialize)]
struct Row {
    pid: u32,
    command: String,
}

/// KiB by process.
pub(crate) fn measure(artefacts: &Artefacts, directory: &Path) -> Result<BTreeMap<String, u64>> {
    let config = Config::make(directory)?;
    let root = place::repository();
    let initramfs = root.join(&artefacts.production.initramfs_full);
    step("boot billet and look at its memory", || {
        let vm = Vm::builder("bench-memory")
            .kernel(&root.join(&artefacts.vmlinuz), Some(&initramfs), &artefacts.memory_cmdline())
            .drive(Drive::new(config.volume(), Bus::Virtio))
            .forward(API_PORT)
            .unlimited()
            .log_dir(&directory.join("memory"))
            .start()?;
        vm.expect(READY_LINE, BOOT_LIMIT)?;
        settled(&config.client(directory, vm.port(API_PORT)?)?)
    })
}

fn settled(client: &Billetctl) -> Result<BTreeMap<String, u64>> {
    let end = Instant::now() + deadline(SETTLE);
    let mut before = BTreeMap::new();
    loop {
        let now = sizes(client)?;
        if now.len() == PROCESSES.len() && still(&before, &now) {
            return Ok(now);
        }
        if Instant::now() > end {
            bail!("memory does not stand still: {before:?}, then {now:?}");
        }
        before = now;
        std::thread::sleep(LOOK);
    }
}

fn still(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> bool {
    before.len() == now.len() && before.values().zip(now.values()).all(|(a, b)| a.abs_diff(*b) <= STILL_KIB)
}

fn sizes(client: &Billetctl) -> Result<BTreeMap<String, u64>> {
    let text = answer(client, &["processes", "-o", "json"])?;
    let rows: Vec<Row> = serde_json::from_str(&text).context("parse the list of processes")?;
    let mut sizes = BTreeMap::new();
    for row in rows {
        if let Some(name) = name(&row) {
            let rollup = answer(client, &["read", &format!("/proc/{}/smaps_rollup", row.pid)])?;
            sizes.insert(name.to_owned(), pss_kib(&rollup).with_context(|| format!("no Pss of {name}"))?);
        }
    }
    Ok(sizes)
}

/// PID 1 is init, whatever it calls itself; the others by the file they execute.
fn name(row: &Row) -> Option<&'static str> {
    if row.pid == 1 {
        return PROCESSES.first().copied();
    }
    let program = row.command.split_whitespace().next()?.rsplit('/').next()?;
    PROCESSES.into_iter().find(|name| *name == program)
}

/// `Pss:                1234 kB`
fn pss_kib(rollup: &str) -> Option<u64> {
    rollup.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_read_and_not_its_parts() {
        let text = "400000-7ff0 ---p 00000000 00:00 0  [rollup]\nRss:  2000 kB\nPss:                1234 kB\nPss_Anon: 5 kB\n";
        assert_eq!(pss_kib(text), Some(1234));
        assert_eq!(pss_kib("Pss_Anon: 5 kB\n"), None);
    }

    #[test]
    fn processes_are_known_by_their_file() {
        let named = |pid, command: &str| name(&Row { pid, command: command.into() });
        assert_eq!(named(1, "/init"), Some("init"));
        assert_eq!(named(70, "/usr/bin/apid --x"), Some("apid"));
        assert_eq!(named(71, "trustd"), Some("trustd"));
        assert_eq!(named(72, "containerd --config /etc/apid"), None);
        assert_eq!(named(9, ""), None);
    }

    #[test]
    fn sizes_stand_still_within_a_few_pages() {
        let of = |apid| BTreeMap::from([("apid".to_owned(), apid)]);
        assert!(still(&of(1000), &of(1064)));
        assert!(!still(&of(1000), &of(1065)));
        assert!(!still(&BTreeMap::new(), &of(1)));
    }
}
