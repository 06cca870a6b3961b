//! Opening: which slots a passphrase is tried on, and what the kernel then needs to know.
//!
//! Order: slots that are preferred, then the usual ones, each by number. Those that are to be ignored only when asked for.
//! Fails by: the reason of each slot.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::argon2::{Alone, Workers};
use super::metadata::{Id, Segment};
use super::slot::{self, SlotError};
use super::validate::unknown_requirements;
use super::{Header, Secret, cipher};
use crate::ReadAt;

/// An opened volume.
#[derive(Debug)]
pub struct Unlocked {
    /// The slot that opened.
    pub slot: Id,
    /// The volume key.
    pub key: Secret,
    /// How the kernel maps the data.
    pub mapping: Mapping,
}

/// How the kernel maps the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Cipher, mode and initialisation vector, as dm-crypt names them.
    pub cipher: String,
    /// Where the data begins on its device, in bytes.
    pub offset: u64,
    /// Its length in bytes; `None` for the rest of the device.
    pub length: Option<u64>,
    /// Added to each sector's number for its initialisation vector.
    pub iv_offset: u64,
    /// Bytes that are encrypted together.
    pub sector_size: u32,
    /// What the header says of discards and work queues.
    pub flags: Vec<String>,
}

/// Why a volume was not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnlockError {
    /// The header demands what is not known here: an unfinished re-encryption, mostly.
    Requirements(String),
    /// There is not just one segment, encrypted in a way that is known here.
    Segment(String),
    /// No slot that may be tried.
    NoSlot,
    /// Each slot that was tried, and why it gave no key.
    Refused(Vec<Refusal>),
}

/// Why a slot gave no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The slot.
    pub slot: Id,
    /// Why.
    pub why: SlotError,
}

impl fmt::Display for UnlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requirements(names) => {
                write!(f, "the header demands {names}; finish that with cryptsetup first")
            }
            Self::Segment(problem) => write!(f, "data: {problem}"),
            Self::NoSlot => f.write_str("there is no key slot to try"),
            Self::Refused(refusals) => {
                for (place, refusal) in refusals.iter().enumerate() {
                    let between = if place == 0 { "" } else { "; " };
                    write!(f, "{between}key slot {}: {}", refusal.slot, refusal.why)?;
                }
                Ok(())
            }
        }
    }
}

impl core::error::Error for UnlockError {}

impl Header {
    /// Opens the volume with a passphrase: of one slot, or of any that may be tried. In the calling thread alone.
    pub fn unlock(
        &self,
        device: &mut impl ReadAt,
        passphrase: &[u8],
        slot: Option<Id>,
    ) -> Result<Unlocked, UnlockError> {
        self.unlock_with(device, passphrase, slot, &Alone)
    }

    /// The same, with threads for slots whose derivation has lanes.
    pub fn unlock_with<W: Workers>(
        &self,
        device: &mut impl ReadAt,
        passphrase: &[u8],
        slot: Option<Id>,
        workers: &W,
    ) -> Result<Unlocked, UnlockError> {
        if let Some(names) = unknown_requirements(&self.metadata) {
            return Err(UnlockError::Requirements(names));
        }
        let mapping = self.mapping()?;
        let slots = slot.map_or_else(|| self.slots_to_try(), |slot| alloc::vec![slot]);
        let mut refusals = Vec::new();
        for slot in slots {
            match slot::open(&self.metadata, slot, device, passphrase, workers) {
                Ok(key) => return Ok(Unlocked { slot, key, mapping }),
                Err(why) => refusals.push(Refusal { slot, why }),
            }
        }
        Err(if refusals.is_empty() { UnlockError::NoSlot } else { UnlockError::Refused(refusals) })
    }

    /// How the kernel maps the data.
    pub fn mapping(&self) -> Result<Mapping, UnlockError> {
        let problem = |problem: &str| UnlockError::Segment(problem.into());
        let mut segments = self.metadata.segments.values();
        let (Some(segment), None) = (segments.next(), segments.next()) else {
            return Err(problem("not just one segment: a re-encryption is unfinished"));
        };
        if segment.kind.starts_with("hw-opal") {
            return Err(problem(
                "the drive encrypts it itself (OPAL), which is not known here: open it with cryptsetup elsewhere, copy what it \
                 holds, and take that away with `cryptsetup erase`",
            ));
        }
        if segment.integrity.is_some() {
            return Err(problem(
                "it is protected by integrity (dm-integrity), which is not known here: open it with cryptsetup elsewhere, and \
                 make it anew without --integrity",
            ));
        }
        let Segment { encryption: Some(name), sector_size: Some(sector_size), .. } = segment else {
            return Err(problem("it is not encrypted"));
        };
        // Slots of other keys, which cryptsetup calls unbound, may have other lengths.
        let mut slots = self.metadata.keyslots.iter().filter(|(id, _)| self.opens_data(**id));
        let key_bytes = slots.next().and_then(|(_, slot)| usize::try_from(slot.key_size).ok());
        let known = key_bytes.is_none_or(|bytes| cipher::known(name, bytes).is_some());
        if segment.kind != "crypt" || !known {
            let key_bytes = key_bytes.unwrap_or_default();
            return Err(UnlockError::Segment(alloc::format!(
                "type {:?}, {name} with {key_bytes} bytes of key, is not known here",
                segment.kind
            )));
        }
        Ok(Mapping {
            cipher: name.clone(),
            offset: segment.offset,
            length: segment.size.parse().ok(),
            iv_offset: segment.iv_tweak.unwrap_or_default(),
            sector_size: *sector_size,
            flags: self.metadata.config.flags.clone(),
        })
    }

    /// Whether the slot holds the key of the data.
    fn opens_data(&self, slot: Id) -> bool {
        self.metadata.digest_of(slot).is_some_and(|(_, digest)| !digest.segments.is_empty())
    }

    fn slots_to_try(&self) -> Vec<Id> {
        const USUAL: u32 = 1;
        let slots = self.metadata.keyslots.iter();
        let slots = slots.map(|(id, slot)| (slot.priority.unwrap_or(USUAL), *id));
        let mut slots: Vec<(u32, Id)> =
            slots.filter(|(priority, id)| *priority > 0 && self.opens_data(*id)).collect();
        slots.sort_unstable_by_key(|(priority, id)| (core::cmp::Reverse(*priority), *id));
        slots.into_iter().map(|(_, id)| id).collect()
    }
}
