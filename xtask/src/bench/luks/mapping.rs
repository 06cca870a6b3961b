//! Opening a volume and reading it through its mapping, in one virtual machine, counted in instructions.
//!
//! Owns: the machine's files: busybox and a script, cryptsetup with its libraries as this host has them, the node's code
//! as a program of its own. The disk is memory of the machine, so that no read waits for the host.
//! Order: the script opens and reads by cryptsetup and by the node's code in turn and marks each step in the kernel's
//! log; the middle round of each counts.
//! Fails by: what the script could not do, as the machine's console has it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::initramfs;
use installer::tree::Tree;
use serde_json::{Value, json};

use super::super::guest::Guest;
use super::super::klog;
use super::super::measure::{giga, ratio};
use super::{PASSPHRASE, TIME_LIMIT, formatted, met};
use crate::cache::Cache;
use crate::command::Cmd;
use crate::inputs::{Freshness, Inputs};
use crate::kernel::{self, Debian, Provider as _};
use crate::place;
use crate::target::Architecture;

const ROUNDS: usize = 3;
const BUSYBOX: &str = "busybox-static";
/// What cryptsetup's threads load when they end.
const LOADED_LATER: &str = "libgcc_s.so.1";
const HEADER_BYTES: u64 = 16 << 20;
const DATA_BYTES: u64 = 64 << 20;

/// At most one percent more instructions than behind cryptsetup's mapping.
const READ_LIMIT: f64 = 1.01;

const PARAMETERS: &str = "console=ttyS0 panic=10 printk.devkmsg=on cryptomgr.notests";
const FINISHED: &str = "bench: finished";

/// Instructions of each way, the middle of the rounds.
pub(super) struct Mapping {
    cryptsetup: Steps,
    billet: Steps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Steps {
    open: u64,
    read: u64,
}

pub(super) fn measure(opener: &Path, directory: &Path, work: &Path) -> Result<Mapping> {
    let cache = Cache::open(&place::cache()?)?;
    let mut inputs = Inputs::open(&cache, Freshness::Day)?;
    let kernel = Debian.kernel(&mut inputs)?;
    let set = kernel::module_set(
        &place::repository().join("xtask/src/bench/luks/modules.toml"),
        Architecture::Amd64,
    )?;
    let modules = kernel::modules(&cache, &kernel, &set)?.directory;
    let packages = inputs.resolve(&[BUSYBOX])?;
    let unpacked = inputs.unpack(&packages)?;
    let busybox = unpacked.get(BUSYBOX).with_context(|| format!("{BUSYBOX} was not unpacked"))?;
    drop(inputs);

    let mut files = Tree::new();
    for directory in ["dev", "proc", "run", "sys"] {
        files.dir(directory, 0o755)?;
    }
    files.bytes("init", 0o755, include_str!("init"))?;
    files.file("bin/busybox", 0o755, busybox.join("usr/bin/busybox"))?;
    files.file("bin/open_volume", 0o755, opener)?;
    files.load(&format!("lib/modules/{}", kernel.release), &modules)?;
    add_cryptsetup(&mut files)?;
    files.bytes("passphrase", 0o600, PASSPHRASE)?;
    files.bytes("mebibytes", 0o644, ((HEADER_BYTES + DATA_BYTES) >> 20).to_string())?;
    files.bytes("rounds", 0o644, (1..=ROUNDS).map(|round| format!("{round}\n")).collect::<String>())?;
    files.bytes("volume", 0o600, header(work)?)?;

    let initramfs = work.join("luks.initramfs");
    initramfs::write(&initramfs, &[&initramfs::segment(&files)?])?;
    let guest = Guest {
        name: "luks".into(),
        kernel: kernel.vmlinuz,
        initramfs,
        command_line: PARAMETERS.into(),
        drives: Vec::new(),
        ready: FINISHED,
    };
    let console = guest.boot(directory, None)?.text();
    Ok(Mapping { cryptsetup: middle(&console, "cryptsetup")?, billet: middle(&console, "billet")? })
}

/// The host's own, so that it is the same as beside which the times are taken.
fn add_cryptsetup(files: &mut Tree) -> Result<()> {
    let program = Cmd::new("which").arg("cryptsetup").read()?;
    let program = program.trim();
    files.file("sbin/cryptsetup", 0o755, program)?;
    let listed = Cmd::new("ldd").arg(program).read()?;
    let libraries: Vec<&Path> = libraries(&listed).map(Path::new).collect();
    let libc = libraries.iter().find(|path| path.ends_with("libc.so.6"));
    let later: PathBuf = libc.context("cryptsetup has no libc")?.with_file_name(LOADED_LATER);
    for path in libraries.into_iter().chain([later.as_path()]) {
        files.file(path.to_string_lossy().trim_start_matches('/'), 0o755, path)?;
    }
    Ok(())
}

/// The paths in ldd's lines: `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)`, and the loader's, which has no
/// name before it.
fn libraries(listed: &str) -> impl Iterator<Item = &str> {
    listed.split_whitespace().filter(|word| word.starts_with('/'))
}

/// The beginning of a volume of cryptsetup's making; its data are whatever the zeros behind it are decrypted to.
fn header(work: &Path) -> Result<Vec<u8>> {
    let volume = work.join("mapped");
    formatted(
        &volume,
        HEADER_BYTES + DATA_BYTES,
        &["--pbkdf=argon2id", "--pbkdf-memory=65536", "--pbkdf-parallel=1", "--pbkdf-force-iterations=4"],
    )?;
    let mut header = Vec::new();
    let file = File::open(&volume).with_context(|| format!("open {}", volume.display()))?;
    file.take(HEADER_BYTES).read_to_end(&mut header).context("read the volume's header")?;
    Ok(header)
}

fn middle(console: &str, who: &str) -> Result<Steps> {
    let times = |step: &str| {
        let mark = format!("bench: {who} {step}");
        let lines = console.lines().filter(|line| line.contains(&mark));
        lines
            .map(|line| klog::time_of(line, &mark).context("a mark without a time"))
            .collect::<Result<Vec<_>>>()
    };
    let (opens, reads, ends) = (times("opens")?, times("reads")?, times("ends")?);
    let between = |from: &[u64], to: &[u64]| {
        let mut spans: Vec<u64> = from.iter().zip(to).map(|(from, to)| to.saturating_sub(*from)).collect();
        spans.sort_unstable();
        spans.get(spans.len() / 2).copied().with_context(|| format!("{who} left no mark"))
    };
    Ok(Steps { open: between(&opens, &reads)?, read: between(&reads, &ends)? })
}

impl Mapping {
    fn rows(&self) -> [(&'static str, u64, u64, f64); 2] {
        [
            ("opening it: argon2id, 64 MiB, 1 lane", self.cryptsetup.open, self.billet.open, TIME_LIMIT),
            ("reading 64 MiB in a row", self.cryptsetup.read, self.billet.read, READ_LIMIT),
        ]
    }

    pub(super) fn json(&self) -> Vec<Value> {
        let row = |(case, cryptsetup, billet, _): (&str, u64, u64, f64)| {
            json!({
                "case": format!("in a guest, {case}"),
                "cryptsetup_instructions": cryptsetup,
                "billet_instructions": billet,
                "ratio": ratio(billet, cryptsetup),
            })
        };
        self.rows().into_iter().map(row).collect()
    }

    pub(super) fn table(&self) -> String {
        let row = |(case, cryptsetup, billet, limit): (&str, u64, u64, f64)| {
            let part = ratio(billet, cryptsetup);
            let (theirs, ours) = (giga(cryptsetup), giga(billet));
            format!(
                "| {case} | {theirs:.4} | {ours:.4} | {part:.4}, at most {limit}: {} |\n",
                met(part <= limit)
            )
        };
        let rows: String = self.rows().into_iter().map(row).collect();
        format!(
            "\nIn a virtual machine with one processor, the volume in its memory; the middle of {ROUNDS} rounds.\n\n\
             | a volume and its mapping | cryptsetup, G instructions | Billet, G instructions | ratio |\n|---|---|---|---|\n\
             {rows}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "\
[    1.000000] bench: cryptsetup opens
[    2.000000] bench: cryptsetup reads
[    5.000000] bench: cryptsetup ends
[    6.000000] bench: cryptsetup opens
[    6.500000] bench: cryptsetup reads
[   10.500000] bench: cryptsetup ends
[   11.000000] bench: cryptsetup opens
[   14.000000] bench: cryptsetup reads
[   14.100000] bench: cryptsetup ends
";

    #[test]
    fn the_middle_of_each_step_counts() {
        let steps = middle(CONSOLE, "cryptsetup").unwrap();
        assert_eq!(steps, Steps { open: 1_000_000_000, read: 3_000_000_000 });
        assert!(middle(CONSOLE, "billet").is_err());
    }

    #[test]
    fn libraries_are_what_ldd_has_found() {
        let listed = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(libraries(listed).collect::<Vec<_>>(), ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
