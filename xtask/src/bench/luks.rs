//! How fast a LUKS2 volume opens, beside cryptsetup, and what memory it takes.
//!
//! Owns: `target/bench/luks.json` and its part of docs/benchmarks.md.
//! Order: for each cost cryptsetup makes a header in a file; in each round cryptsetup opens it, then the node's code does,
//! as a program of its own with an image's profile (installer/examples/open_volume.rs); the middle round of each counts.
//! Times are the host's own: an emulated processor says nothing of its registers' speed. What needs the kernel's
//! mappings is counted in a virtual machine ([`mapping`]).

mod mapping;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::document;
use super::measure::middle;
use crate::command::Cmd;
use crate::place;
use crate::step::step;
use mapping::Mapping;

const ROUNDS: usize = 5;
const PASSPHRASE: &[u8] = b"correct horse battery staple";
const FILE_BYTES: u64 = 32 << 20;

/// The limits of issue "Disk encryption".
const TIME_LIMIT: f64 = 1.1;
const MEMORY_LIMIT_KIB: u64 = 2 << 10;

/// A name, KiB of memory, and how cryptsetup is told.
const CASES: [(&str, u64, &[&str]); 5] = [
    (
        "argon2id, 64 MiB, 1 lane",
        64 << 10,
        &["--pbkdf=argon2id", "--pbkdf-memory=65536", "--pbkdf-parallel=1", "--pbkdf-force-iterations=4"],
    ),
    (
        "argon2id, 64 MiB, 4 lanes",
        64 << 10,
        &["--pbkdf=argon2id", "--pbkdf-memory=65536", "--pbkdf-parallel=4", "--pbkdf-force-iterations=4"],
    ),
    (
        "argon2id, 1 GiB, 1 lane",
        1 << 20,
        &["--pbkdf=argon2id", "--pbkdf-memory=1048576", "--pbkdf-parallel=1", "--pbkdf-force-iterations=4"],
    ),
    (
        "argon2id, 1 GiB, 4 lanes",
        1 << 20,
        &["--pbkdf=argon2id", "--pbkdf-memory=1048576", "--pbkdf-parallel=4", "--pbkdf-force-iterations=4"],
    ),
    ("pbkdf2, 2 million rounds", 0, &["--pbkdf=pbkdf2", "--pbkdf-force-iterations=2000000"]),
];

struct Case {
    name: &'static str,
    memory_kib: u64,
    cryptsetup: Duration,
    ours: Duration,
    /// The most that our process had.
    most_kib: u64,
}

pub(super) fn measure(directory: &Path) -> Result<()> {
    let opener = step("build the opener as an image has it", opener)?;
    let work = tempfile::tempdir_in(directory).context("create a directory for the volumes")?;
    let mut cases = Vec::new();
    for (name, memory_kib, words) in CASES {
        cases.push(step(name, || case(&opener, work.path(), name, memory_kib, words))?);
    }
    let mapping =
        step("open and read in a virtual machine", || mapping::measure(&opener, directory, work.path()))?;
    let figures: Vec<Value> = cases.iter().map(Case::json).chain(mapping.json()).collect();
    document::keep(directory, "luks", &json!(figures))?;
    document::write("luks", &table(&cases, &mapping, &document::today()?))
}

fn opener() -> Result<PathBuf> {
    let words =
        ["build", "--quiet", "--profile", "image", "--package", "installer", "--example", "open_volume"];
    Cmd::new("cargo").args(words).run()?;
    let path = place::target().join("x86_64-unknown-linux-gnu/image/examples/open_volume");
    ensure!(path.exists(), "cargo made no {}", path.display());
    Ok(path)
}

fn case(
    opener: &Path,
    directory: &Path,
    name: &'static str,
    memory_kib: u64,
    words: &[&str],
) -> Result<Case> {
    let volume = directory.join("volume");
    formatted(&volume, FILE_BYTES, words)?;
    let (mut theirs, mut ours, mut most_kib) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut open = Command::new("cryptsetup");
        fed(open.args(["open", "--test-passphrase", "--key-slot=0", "--key-file=-"]).arg(&volume))?;
        theirs.push(began.elapsed());
        let began = Instant::now();
        let told = fed(Command::new(opener).arg(&volume).arg("0"))?;
        ours.push(began.elapsed());
        let kib = told.trim().parse().with_context(|| format!("the opener told {told:?}"))?;
        most_kib = most_kib.max(kib);
    }
    Ok(Case { name, memory_kib, cryptsetup: middle(theirs), ours: middle(ours), most_kib })
}

/// A file that is a volume of cryptsetup's making, with the passphrase in slot 0.
fn formatted(volume: &Path, bytes: u64, words: &[&str]) -> Result<()> {
    File::create(volume).and_then(|file| file.set_len(bytes)).context("create a volume")?;
    let mut format = Command::new("cryptsetup");
    format.args(["luksFormat", "--batch-mode", "--type=luks2", "--key-file=-"]).args(words).arg(volume);
    fed(&mut format).map(drop)
}

/// Runs a program that reads the passphrase; what it printed.
fn fed(command: &mut Command) -> Result<String> {
    let what = format!("{:?}", command.get_program());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("start {what}"))?;
    let mut input = child.stdin.take().context("a pipe to the program")?;
    std::io::Write::write_all(&mut input, PASSPHRASE)
        .with_context(|| format!("tell {what} the passphrase"))?;
    drop(input);
    let output = child.wait_with_output().with_context(|| format!("wait for {what}"))?;
    ensure!(output.status.success(), "{what} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).with_context(|| format!("{what} printed no text"))
}

impl Case {
    /// Our time in parts of cryptsetup's.
    fn ratio(&self) -> f64 {
        self.ours.as_secs_f64() / self.cryptsetup.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// What it took beside the derivation's own memory.
    fn beside_kib(&self) -> u64 {
        self.most_kib.saturating_sub(self.memory_kib)
    }

    fn json(&self) -> Value {
        json!({
            "case": self.name,
            "cryptsetup_s": self.cryptsetup.as_secs_f64(),
            "billet_s": self.ours.as_secs_f64(),
            "ratio": self.ratio(),
            "most_memory_kib": self.most_kib,
            "beside_derivation_kib": self.beside_kib(),
        })
    }

    fn row(&self) -> String {
        format!(
            "| {} | {:.2} | {:.2} | {:.2}: {} | {}: {} |\n",
            self.name,
            self.cryptsetup.as_secs_f64(),
            self.ours.as_secs_f64(),
            self.ratio(),
            met(self.ratio() <= TIME_LIMIT),
            self.beside_kib(),
            met(self.beside_kib() <= MEMORY_LIMIT_KIB),
        )
    }
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}

fn table(cases: &[Case], mapping: &Mapping, date: &str) -> String {
    let rows: String = cases.iter().map(Case::row).collect();
    format!(
        "Measured {date} on the host; the middle of {ROUNDS} rounds of whole programs, from start to end.\n\n\
         | the slot's cost | cryptsetup, s | Billet, s | ratio, at most {TIME_LIMIT} | KiB beside the derivation's, at most \
         {MEMORY_LIMIT_KIB} |\n|---|---|---|---|---|\n{rows}{}",
        mapping.table()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_or_greedy_opening_misses_its_limit() {
        let case = |ours, most_kib| Case {
            name: "a case",
            memory_kib: 1000,
            cryptsetup: Duration::from_secs(10),
            ours: Duration::from_secs(ours),
            most_kib,
        };
        assert_eq!(case(11, 3048).row(), "| a case | 10.00 | 11.00 | 1.10: met | 2048: met |\n");
        assert_eq!(
            case(12, 3049).row(),
            "| a case | 10.00 | 12.00 | 1.20: **missed** | 2049: **missed** |\n"
        );
    }
}
