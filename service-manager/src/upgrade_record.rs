//! What META keeps of an upgrade: enough to tell afterwards what became of it.
//!
//! Owns: the record, and the verdict over it on a boot.
//! Does not: act on it ([`crate::upgrade`] does).
//! Order: it is written before the new system may boot, so that a fallback is never without its reason.
//! Source: docs/formats/meta.md (tag 0x42490010).

use installer::entries::Entry;
use serde::{Deserialize, Serialize};

use crate::meta::{Meta, MetaError};

/// Its tag: beyond the one byte that clients can name.
const TAG: u32 = 0x4249_0010;

/// An upgrade. A later version may add fields; unknown ones are passed over, since the version that it fell back to
/// reads what the newer one wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The version before.
    pub(crate) from: String,
    /// The version after.
    pub(crate) to: String,
    /// Its image.
    pub(crate) image: String,
    /// The generation in the new system's UKI.
    pub(crate) generation: u32,
    /// The boot that installed it, by the kernel's id: what earlier boots left is not of this upgrade.
    #[serde(default)]
    pub(crate) since: String,
    /// What became of it.
    pub(crate) state: State,
    /// Conditions outside of the node that were good before.
    #[serde(default)]
    pub(crate) outside: Vec<String>,
    /// How often the new system was started.
    #[serde(default)]
    pub(crate) boots: u32,
    /// How far it came.
    #[serde(default)]
    pub(crate) stage: String,
    /// Why it was left.
    #[serde(default)]
    pub(crate) reason: String,
    /// The last lines of its last boot.
    #[serde(default)]
    pub(crate) last_lines: Vec<String>,
}

/// What became of an upgrade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// It was begun, and nobody knows yet.
    #[default]
    Trial,
    /// The new system is kept.
    Kept,
    /// The loader went back to the old one.
    FellBack,
    /// It ended before the new system could be started.
    Interrupted,
    /// A person went back.
    RolledBack,
}

/// What a boot finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing new.
    Settled,
    /// The new system runs, and has to prove itself.
    OnTrial,
    /// The new system runs and was kept already.
    Kept,
    /// The old system runs after so many starts of the new one.
    FellBack(u32),
    /// The old system runs, and the new one was never on the loader's list.
    Interrupted,
}

impl Record {
    /// What this boot means. `own`: the generation in the running UKI, which one that somebody signed has none of;
    /// `running`: its entry; `entries`: all there are.
    pub(crate) fn verdict(&self, own: Option<u32>, running: Entry, entries: &[Entry]) -> Verdict {
        if self.state != State::Trial {
            return Verdict::Settled;
        }
        if own.unwrap_or(running.generation) == self.generation {
            return if running.trial.is_some() { Verdict::OnTrial } else { Verdict::Kept };
        }
        match entries.iter().find(|entry| entry.generation == self.generation) {
            Some(entry) => Verdict::FellBack(entry.trial.map_or(0, |trial| trial.done)),
            None => Verdict::Interrupted,
        }
    }

    /// For META.
    fn to_bytes(&self) -> Vec<u8> {
        // Texts and numbers only: it cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// From META; what cannot be read is no record.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

impl State {
    /// For people.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Trial => "trial",
            Self::Kept => "kept",
            Self::FellBack => "fell back",
            Self::Interrupted => "interrupted",
            Self::RolledBack => "rolled back",
        }
    }
}

/// The record in META.
pub(crate) fn read(meta: &Meta) -> Option<Record> {
    Record::from_bytes(&meta.get(TAG)?)
}

/// Keeps a record in META; durable when this returns.
pub(crate) async fn keep(meta: &Meta, record: &Record) -> Result<(), MetaError> {
    meta.set(TAG, &record.to_bytes()).await
}

/// Whether a system is on trial, this one or one that an upgrade has put on the disk: what is written must suit both.
pub(crate) fn is_on_trial(meta: &Meta) -> bool {
    read(meta).is_some_and(|record| record.state == State::Trial)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry::parse(name).unwrap()
    }

    #[test]
    fn every_boot_has_its_verdict() {
        let record = Record { generation: 8, ..Record::default() };
        let old = entry("billet-000007.efi");
        let verdict = |own, running: Entry, other: &str| record.verdict(own, running, &[old, entry(other)]);
        let trial = entry("billet-000008+1-2.efi");
        assert_eq!(verdict(Some(8), trial, "billet-000008+1-2.efi"), Verdict::OnTrial);
        assert_eq!(verdict(Some(8), entry("billet-000008.efi"), "billet-000008.efi"), Verdict::Kept);
        assert_eq!(verdict(None, old, "billet-000008+0-3.efi"), Verdict::FellBack(3));
        assert_eq!(verdict(Some(7), old, "billet-000008+2-1.efi"), Verdict::FellBack(1));
        assert_eq!(record.verdict(None, old, &[old]), Verdict::Interrupted);
        // Signed UKIs name no generation: the entry that runs is what counts.
        assert_eq!(verdict(None, trial, "billet-000008+1-2.efi"), Verdict::OnTrial);
        assert_eq!(verdict(None, entry("billet-000008.efi"), "billet-000008.efi"), Verdict::Kept);
        let settled = Record { state: State::FellBack, ..record.clone() };
        assert_eq!(settled.verdict(None, old, &[old]), Verdict::Settled);
    }

    #[test]
    fn records_of_other_versions_are_read() {
        let record = Record { from: "1".into(), to: "2".into(), state: State::FellBack, ..Record::default() };
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record.clone()));
        let text = String::from_utf8(record.to_bytes()).unwrap();
        assert!(text.contains(r#""state":"fell-back""#), "{text}");
        let newer = text.replace('}', r#","more":[1]}"#);
        assert_eq!(Record::from_bytes(newer.as_bytes()), Some(record));
        assert_eq!(Record::from_bytes(b"{}"), None);
    }
}
