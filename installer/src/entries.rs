//! Boot entries: the names of UKIs on the ESP, and which of them systemd-boot starts.
//!
//! Owns: what a name says (generation, tries), the names of a trial, a blessing and a rollback, the loader's choice as
//! a model.
//! Does not: read or write the ESP.
//! Order: all UKIs of ours have one `ID` and no version in `.osrel`, so the loader sorts by name alone: what has no
//! tries left comes last, else the highest generation comes first, whatever version is in it.
//! Source: systemd's Automatic Boot Assessment; docs/formats/disk.md.

use std::fmt;

/// Directory of the UKIs on the ESP.
pub const DIRECTORY: &str = "EFI/Linux";

/// How often a new system is tried.
pub const TRIES: u32 = 3;

const PREFIX: &str = "billet-";
const SUFFIX: &str = ".efi";

/// Digits of a generation, so that names of different ones have one length.
const DIGITS: usize = 6;

/// The largest generation that has a name.
const LAST_GENERATION: u32 = 999_999;

/// What the name of a UKI says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Grows with every installation and every rollback.
    pub generation: u32,
    /// `None`: a system that proved itself.
    pub trial: Option<Trial>,
}

/// The counters of a system on trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// Boots that it still gets.
    pub left: u32,
    /// Boots that it had.
    pub done: u32,
}

impl Entry {
    /// Reads `billet-000012.efi`, `billet-000012+3.efi`, `billet-000012+2-1.efi`; anything else is not ours. Case does
    /// not matter: firmware may keep names in upper case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let middle = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let (generation, counters) = match middle.split_once('+') {
            Some((generation, counters)) => (generation, Some(counters)),
            None => (middle, None),
        };
        if generation.len() != DIGITS {
            return None;
        }
        let trial = match counters.map(|counters| counters.split_once('-').unwrap_or((counters, "0"))) {
            Some((left, done)) => Some(Trial { left: number(left)?, done: number(done)? }),
            None => None,
        };
        Some(Self { generation: number(generation)?, trial })
    }

    /// An entry that proves itself or is left behind after [`TRIES`] boots; newer than all of `existing`. `None`: there
    /// are no more generations.
    #[must_use]
    pub fn new_trial(existing: &[Self]) -> Option<Self> {
        let trial = Trial { left: TRIES, done: 0 };
        Some(Self { generation: next_generation(existing)?, trial: Some(trial) })
    }

    /// The entry that a rollback makes of this one: good, and newer than all of `existing`.
    #[must_use]
    pub fn rolled_back_to(self, existing: &[Self]) -> Option<Self> {
        Some(Self { generation: next_generation(existing)?, trial: None })
    }

    /// The same system once it has proved itself.
    #[must_use]
    pub fn blessed(self) -> Self {
        Self { trial: None, ..self }
    }

    /// What systemd-boot renames the entry to before it starts it: one boot fewer left, one more done.
    #[must_use]
    pub fn started(self) -> Self {
        let count = |trial: Trial| Trial { left: trial.left.saturating_sub(1), done: trial.done + 1 };
        Self { trial: self.trial.map(count), ..self }
    }

    /// Whether all its boots failed.
    #[must_use]
    pub fn is_exhausted(self) -> bool {
        self.trial.is_some_and(|trial| trial.left == 0)
    }
}

/// The entry that systemd-boot starts by itself.
#[must_use]
pub fn chosen(entries: &[Entry]) -> Option<Entry> {
    entries.iter().copied().max_by_key(|entry| (!entry.is_exhausted(), entry.generation))
}

fn next_generation(existing: &[Entry]) -> Option<u32> {
    let highest = existing.iter().map(|entry| entry.generation).max().unwrap_or(0);
    highest.checked_add(1).filter(|next| *next <= LAST_GENERATION)
}

/// Digits only: `+3` would be a number too.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:0DIGITS$}", self.generation)?;
        match self.trial {
            None => {}
            Some(Trial { left, done: 0 }) => write!(f, "+{left}")?,
            Some(Trial { left, done }) => write!(f, "+{left}-{done}")?,
        }
        f.write_str(SUFFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry::parse(name).unwrap_or_else(|| panic!("{name} is no entry"))
    }

    #[test]
    fn names_are_read_and_written() {
        for name in
            ["billet-000001.efi", "billet-000012+3.efi", "billet-000012+2-1.efi", "billet-999999+0-3.efi"]
        {
            assert_eq!(entry(name).to_string(), name);
        }
        assert_eq!(entry("BILLET-000012+2-1.EFI"), entry("billet-000012+2-1.efi"));
        let foreign = ["billet-12.efi", "billet-000012+.efi", "billet-000012+3-.efi", "billet-0000-1.efi"];
        for name in
            foreign.into_iter().chain(["talos-000012.efi", "billet-000012", "billet-000012++3.efi", ""])
        {
            assert_eq!(Entry::parse(name), None, "{name}");
        }
    }

    /// A bad upgrade: three boots of the new system, then the old one, whatever version each is.
    #[test]
    fn a_trial_that_fails_three_times_is_left_behind() {
        let old = entry("billet-000007.efi");
        let mut new = Entry::new_trial(&[old]).unwrap();
        let mut names = vec![new.to_string()];
        let mut boots = Vec::new();
        for _ in 0..4 {
            let chosen = chosen(&[old, new]).unwrap();
            boots.push(chosen.generation);
            if chosen == new {
                new = new.started();
                names.push(new.to_string());
            }
        }
        assert_eq!(boots, [8, 8, 8, 7]);
        let renamed = [
            "billet-000008+3.efi",
            "billet-000008+2-1.efi",
            "billet-000008+1-2.efi",
            "billet-000008+0-3.efi",
        ];
        assert_eq!(names, renamed);
        assert!(new.is_exhausted());
    }

    #[test]
    fn a_blessed_system_stays_and_a_rollback_goes_back() {
        let old = entry("billet-000007.efi");
        let blessed = Entry::new_trial(&[old]).unwrap().started().blessed();
        assert_eq!(blessed.to_string(), "billet-000008.efi");
        assert_eq!(chosen(&[old, blessed]), Some(blessed));
        let back = old.rolled_back_to(&[old, blessed]).unwrap();
        assert_eq!((back.to_string().as_str(), chosen(&[back, blessed])), ("billet-000009.efi", Some(back)));
    }

    #[test]
    fn a_name_that_is_blessed_or_counted_is_never_longer_than_one_slot_set_of_the_first() {
        // Long names take slots of 13 units: all of these take two.
        for name in ["billet-000008+3.efi", "billet-000008+2-1.efi", "billet-000008.efi"] {
            assert_eq!(name.len().div_ceil(13), 2, "{name}");
        }
    }

    #[test]
    fn generations_end() {
        assert_eq!(Entry::new_trial(&[entry("billet-999999.efi")]), None);
        assert_eq!(chosen(&[]), None);
    }
}
