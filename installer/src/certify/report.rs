//! What the certificate says, for programs (`target/certify.json`) and for people.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::run::Outcome;

/// Flushes that no state proves, and why they are kept: operation, how the flush's name begins, reason.
const KEPT: [(&str, &str, &str); 29] = [
    ("install", "EFI files + EFI head + EFI tables", READ_BACK),
    ("install", "ROOT-A", READ_BACK),
    (
        "install",
        "backup table",
        "before the promise a disk without a table is allowed; with a whole backup a torn primary leaves a system that \
         starts instead",
    ),
    ("upgrade", "ROOT-", READ_BACK),
    ("upgrade", "EFI tables", FREED),
    ("upgrade", "EFI head + EFI tables", FREED),
    (
        "bios install",
        "META + ROOT-B",
        "a blank disk has no old table that could lead to new content; over an installation it is needed, as install shows",
    ),
    ("bios install", "BIOS + EFI", READ_BACK),
    ("bios install", "ROOT-A", READ_BACK),
    ("bios upgrade", "ROOT-", READ_BACK),
    ("bios upgrade", "EFI tables", FREED),
    ("bios upgrade", "EFI head + EFI tables", FREED),
    (
        "bios upgrade",
        "EFI files, 1 before the last",
        "names the script; the UKI's name comes behind the flush of its content, too; kept because every step of a change \
         of the ESP ends with a flush",
    ),
    ("bios rollback", "EFI tables", FREED),
    ("first boot", "META", META_COPIES),
    (
        "first boot",
        "primary table",
        "the backup is on the medium already; kept so that the kernel hears of no partition that a cut takes away",
    ),
    (
        "first boot",
        "EPHEMERAL",
        "an empty partition is formatted again; over an older file system it is needed, as STATE's is",
    ),
    ("reset", "META", META_COPIES),
    ("reset", "ROOT-", READ_BACK),
    (
        "reset",
        "primary table",
        "while one copy of the table is there the reset resumes; what is read back must be on the medium",
    ),
    ("reset", "EFI ", READ_BACK),
    ("format encrypted", "META", META_COPIES),
    (
        "format encrypted",
        "primary table",
        "the backup is on the medium already; kept so that the kernel hears of no partition that a cut takes away",
    ),
    ("format encrypted", "LUKS2", UNDER_INTENT),
    ("format encrypted", "STATE, 1 before the last", UNDER_INTENT),
    ("add key", "STATE", AREA),
    ("add key", "LUKS2 second copy", SECOND_COPY),
    ("key rotation", "STATE", AREA),
    ("key rotation", "LUKS2 second copy", SECOND_COPY),
];

const UNDER_INTENT: &str = "the intent has a half made volume made again, whatever is there of it; kept because a header is                             written in one order everywhere";

const AREA: &str = "the key that stays opens the volume whatever an area holds, and a promise comes behind later flushes;                     kept so that no header names a slot whose area is not there, and what goes is gone when it is told";

const SECOND_COPY: &str = "the first copy is on the medium and counts alone; kept so that a promise has both, as header                            repair proves";

const META_COPIES: &str = "one copy of META is enough to resume, and a META without other values has none to lose; that \
                           the copies are needed one by one is proven by the operation meta";

const READ_BACK: &str =
    "what is read back and compared must be what the medium has; for order alone a later flush would do";

const FREED: &str = "frees clusters that no name leads to: lost, the next change frees them; kept because every step of a \
                     change of the ESP ends with a flush";

/// What is not checked here, and where it is.
const ELSEWHERE: [(&str, &str); 2] = [
    ("config save", "a file on STATE's xfs: qemu-tests power_cut boots replayed prefixes of a recorded node"),
    ("format", "file systems are made by mkfs under an intent record; its writes count as one region"),
];

/// The whole certificate.
#[derive(Debug, Serialize)]
pub struct Report {
    /// States checked.
    pub states: usize,
    /// States that break their rule.
    pub bad: usize,
    /// The first seed of the disks, and the one behind the last.
    pub seeds: (u64, u64),
    /// By operation and sector size.
    pub operations: Vec<Entry>,
    /// Operations that are checked by other means, and by which.
    pub elsewhere: BTreeMap<&'static str, &'static str>,
}

/// One operation on disks with one sector size.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Bytes of a sector.
    pub sector_bytes: u32,
    /// The situations it was recorded in.
    pub situations: Vec<&'static str>,
    /// Recordings.
    pub recordings: usize,
    /// States checked.
    pub states: usize,
    /// Different contents of the disk among them, counted for each recording.
    pub different: usize,
    /// States that break the rule.
    pub bad: usize,
    /// The first of them: job, number, cut and reason.
    pub first_bad: Option<String>,
    /// Promises made.
    pub acknowledgements: usize,
    /// Flushes done.
    pub flushes: usize,
    /// Kinds of flushes, each with the proof that it is needed or the reason why it is kept without one.
    pub flushes_necessary: Vec<Flush>,
}

/// A kind of flush: what was written before it.
#[derive(Debug, Serialize)]
pub struct Flush {
    /// What was written before it.
    pub after: String,
    /// Recordings in which leaving it out makes a state bad.
    pub proven: usize,
    /// Recordings that have it.
    pub of: usize,
    /// Such a state.
    pub proof: Option<String>,
    /// Why it is kept though no state proves it.
    pub reason: Option<&'static str>,
}

impl Report {
    /// Sums outcomes up.
    #[must_use]
    pub fn new(outcomes: &[Outcome], seeds: std::ops::Range<u64>) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        for outcome in outcomes {
            let is = |entry: &&mut Entry| {
                entry.name == outcome.job.operation && entry.sector_bytes == outcome.job.sector_bytes
            };
            match entries.iter_mut().find(is) {
                Some(entry) => entry.add(outcome),
                None => {
                    let mut entry = Entry::new(outcome);
                    entry.add(outcome);
                    entries.push(entry);
                }
            }
        }
        let sum = |count: fn(&Entry) -> usize| entries.iter().map(count).sum();
        Self {
            states: sum(|entry| entry.states),
            bad: sum(|entry| entry.bad),
            seeds: (seeds.start, seeds.end),
            operations: entries,
            elsewhere: ELSEWHERE.into_iter().collect(),
        }
    }

    /// What makes the certificate void: bad states, and flushes that are neither proven nor explained.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for entry in &self.operations {
            let name = format!("{} with sectors of {}", entry.name, entry.sector_bytes);
            if let Some(bad) = &entry.first_bad {
                faults.push(format!("{name}: {} bad states, the first: {bad}", entry.bad));
            }
            for flush in
                entry.flushes_necessary.iter().filter(|flush| flush.proven == 0 && flush.reason.is_none())
            {
                faults.push(format!(
                    "{name}: nothing breaks without the flush after {:?}: drop it, or give the reason in \
                     installer's certify/report.rs",
                    flush.after
                ));
            }
        }
        faults
    }
}

impl Entry {
    fn new(outcome: &Outcome) -> Self {
        Self {
            name: outcome.job.operation,
            sector_bytes: outcome.job.sector_bytes,
            situations: Vec::new(),
            recordings: 0,
            states: 0,
            different: 0,
            bad: 0,
            first_bad: None,
            acknowledgements: 0,
            flushes: 0,
            flushes_necessary: Vec::new(),
        }
    }

    fn add(&mut self, outcome: &Outcome) {
        if !self.situations.contains(&outcome.job.situation) {
            self.situations.push(outcome.job.situation);
        }
        self.recordings += 1;
        self.states += outcome.states;
        self.different += outcome.different;
        self.bad += outcome.bad;
        self.acknowledgements += outcome.acknowledgements;
        self.flushes += outcome.flushes.len();
        if let (None, Some(bad)) = (&self.first_bad, outcome.first_bad.first()) {
            let name = outcome.job.name();
            self.first_bad = Some(format!(
                "{}; {} (`cargo xtask certify --operation {name} --state {}`)",
                bad.cut, bad.why, bad.number
            ));
        }
        for (name, proof) in &outcome.flushes {
            self.add_flush(
                name,
                proof.as_ref().map(|bad| format!("{}: {}; {}", outcome.job.name(), bad.cut, bad.why)),
            );
        }
    }

    fn add_flush(&mut self, name: &str, proof: Option<String>) {
        let at = self.flushes_necessary.iter().position(|flush| flush.after == name).unwrap_or_else(|| {
            let reason =
                KEPT.iter().find(|(operation, after, _)| *operation == self.name && name.starts_with(after));
            let reason = reason.map(|(.., reason)| *reason);
            self.flushes_necessary.push(Flush { after: name.into(), proven: 0, of: 0, proof: None, reason });
            self.flushes_necessary.len() - 1
        });
        let Some(flush) = self.flushes_necessary.get_mut(at) else { return };
        flush.of += 1;
        flush.proven += usize::from(proof.is_some());
        flush.proof = flush.proof.take().or(proof);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>6} {:>10} {:>8} {:>8} {:>5} {:>9} {:>8}",
            "operation", "sector", "recordings", "states", "different", "bad", "promises", "flushes"
        )?;
        for entry in &self.operations {
            let Entry {
                name,
                sector_bytes,
                recordings,
                states,
                different,
                bad,
                acknowledgements,
                flushes,
                ..
            } = entry;
            writeln!(
                f,
                "{name:<12} {sector_bytes:>6} {recordings:>10} {states:>8} {different:>9} {bad:>5} {acknowledgements:>9} {flushes:>8}"
            )?;
            for Flush { after, proven, of, reason, .. } in &entry.flushes_necessary {
                let why =
                    if *proven > 0 { "needed" } else { reason.unwrap_or("neither needed nor explained") };
                writeln!(f, "    flush after {after}: {proven} of {of}: {why}")?;
            }
        }
        for (name, how) in &self.elsewhere {
            writeln!(f, "{name}: {how}")?;
        }
        write!(f, "states: {}, bad: {}", self.states, self.bad)
    }
}
