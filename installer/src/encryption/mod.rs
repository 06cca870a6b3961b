//! Encrypted volumes: a LUKS2 header made, opened, mended and kept in step with the keys that the config names.
//!
//! | part | owns |
//! |---|---|
//! | `vault` | keys that a server, a TPM or a person's public key seals, and their tokens |
//! | `seal` | what a sealed key is bound to, and what its token says of that |
//! | `race` | every key tried at once |
//! | `synchronise` | slots and tokens in step with the config |
//!
//! Owns: which key is tried on which slot; the order of changes to the header; what is said of a key that failed.
//! Does not: map the data (whoever opened it does, see `unlock`); know where keys come from; keep them.
//! Order: see [`ondisk::luks2`]: each step is durable before the next, so that a power cut leaves a header that an old
//! or a new key opens. New keys come before old ones go.
//! Fails by: [`Error`] with the volume's name and the reason of each key; no key is part of one.
//! Source: docs/formats/luks2.md; LUKS2 On-Disk Format Specification.

mod race;
mod seal;
mod synchronise;
mod vault;

use std::collections::BTreeMap;
use std::fmt;

use ondisk::Step;
use ondisk::luks2::{
    Cipher, Copy, Cost, Fault, Format, Header, Id, NewSlot, RandomBytes, Refusal, Secret, SlotError,
    UnlockError,
};
use unlock::{KeyKind, Refused, SealedKey, Volume};

use crate::Error;
use crate::device::{BlockDevice, apply};
use crate::install::END_BYTES;
use crate::volumes::refuse_contradiction;

use race::Race;
use vault::Minted;

pub use seal::{Lock, Seal, bindings};
pub use synchronise::{Synchronised, Wanted, synchronise};
pub use vault::{KeySecret, Vault};

/// Bytes before the data: as cryptsetup has it.
pub const HEADER_BYTES: u64 = 16 << 20;

/// Where the kernel says how much memory is free.
const MEMINFO: &str = "/proc/meminfo";

/// A key of a volume: what opens one slot.
#[derive(Clone)]
pub struct Key {
    /// LUKS2's slot. Of several keys for one slot the first is the one that it is made with.
    pub slot: u8,
    /// Where it comes from.
    pub kind: KeyKind,
    /// The passphrase, or who has it.
    pub secret: KeySecret,
    /// What deriving its slot's key costs, when the slot is made.
    pub cost: Cost,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}, slot {})", self.kind, self.slot)
    }
}

/// How a new volume is encrypted.
#[derive(Debug, Clone)]
pub struct Protection {
    /// What the data is encrypted with.
    pub cipher: Cipher,
    /// Length of the volume key; one that the cipher takes.
    pub key_bytes: usize,
    /// Bytes that are encrypted together; `None`: as the disk has its sectors.
    pub sector_bytes: Option<u32>,
    /// How the data is opened: `no-read-workqueue`, …
    pub flags: Vec<String>,
    /// The keys. At least one.
    pub keys: Vec<Key>,
}

/// An opened volume.
#[derive(Debug)]
pub struct Opened {
    /// Its header.
    pub header: Header,
    /// The volume key, the slot that gave it, and how the data is mapped.
    pub unlocked: unlock::Opened,
    /// Keys that were tried before, and those that could not be had.
    pub refused: Vec<Refused>,
    /// The copy of the header that does not say the same as the other, and why; `None` when it is whole but older.
    pub stale: Option<(Copy, Option<Fault>)>,
}

/// Makes a volume and opens it. What the partition held is lost; its data begins at [`HEADER_BYTES`]. Keys that cannot be
/// had now are left out, as long as one can.
pub fn format(
    part: &mut dyn BlockDevice,
    name: &str,
    protection: &Protection,
    random: RandomBytes<'_>,
) -> Result<Opened, Error> {
    let failed = |reason: String| Error::Encrypt { name: name.to_owned(), reason };
    if protection.keys.is_empty() {
        return Err(failed("no key is configured".to_owned()));
    }
    if part.bytes() <= HEADER_BYTES {
        let mebibytes = HEADER_BYTES >> 20;
        return Err(failed(format!("the partition has no room behind a header of {mebibytes} MiB")));
    }
    let (mut keys, mut refused) = (Vec::new(), Vec::new());
    for minted in vault::mint(&one_a_slot(&protection.keys), None, random) {
        match minted {
            Ok(key) => keys.push(key),
            Err(why) => refused.push(why),
        }
    }
    // With a recovery key alone it would be locked from the next boot on.
    let Some(first) = keys.iter().find(|key| key.kind != KeyKind::Recovery) else {
        let reasons: Vec<String> = refused.iter().map(Refused::to_string).collect();
        return Err(failed(format!("no key can be had: {}", reasons.join("; "))));
    };
    let mut key = Secret::new(vec![0; protection.key_bytes]);
    random(&mut key);
    let sector_bytes = protection.sector_bytes.unwrap_or_else(|| part.sector_bytes());
    let mut format = Format::new(&uuid(random), sector_bytes);
    format.data_offset = HEADER_BYTES;
    format.cipher = protection.cipher;
    format.flags.clone_from(&protection.flags);
    let slots: Vec<NewSlot<'_>> = keys.iter().map(new_slot).collect();
    let change = format.make(&key, &slots, random)?;
    // The header covers the start. At the end a superblock of what was here before would contradict it.
    let end = END_BYTES.min(part.bytes().saturating_sub(HEADER_BYTES));
    let from = part.bytes().saturating_sub(end);
    part.zero(from, end)?;
    for step in &change.steps {
        write(part, step)?;
    }
    let header = change.header;
    let mapping = header.mapping().map_err(|error| failed(error.to_string()))?;
    let unlocked = unlock::Opened { slot: first.slot, kind: first.kind.clone(), key, mapping };
    Ok(Opened { header, unlocked, refused, stale: None })
}

/// Puts one step on the device. A run of zeros, which can be megabytes, is left to it.
fn write(part: &mut dyn BlockDevice, step: &Step<'_>) -> Result<(), Error> {
    let mut zeros = 0..0;
    for extent in step {
        let range = extent.offset..extent.offset.saturating_add(extent.bytes.len() as u64);
        let is_zero = extent.bytes.iter().all(|byte| *byte == 0);
        if is_zero && (zeros.end == range.start || zeros.is_empty()) {
            zeros = if zeros.is_empty() { range } else { zeros.start..range.end };
            continue;
        }
        if !zeros.is_empty() {
            part.zero(zeros.start, zeros.end - zeros.start)?;
            zeros = 0..0;
        }
        match is_zero {
            true => zeros = range,
            false => part.write_at(extent.offset, &extent.bytes)?,
        }
    }
    if !zeros.is_empty() {
        part.zero(zeros.start, zeros.end - zeros.start)?;
    }
    Ok(part.flush()?)
}

/// Makes the copy of the header that is damaged, or older, say the same as the other. Returns what was done. Only of a volume
/// that a key has opened: a header that no key of ours fits may be left over in data of another format.
pub fn mend(part: &mut dyn BlockDevice, opened: &mut Opened) -> Result<Option<String>, Error> {
    let Some((copy, fault)) = opened.stale.clone() else { return Ok(None) };
    let step = opened.header.repair(copy)?;
    apply(part, 0, &[step])?;
    opened.stale = None;
    let why = fault.map_or_else(|| "it was older".to_owned(), |fault| fault.to_string());
    Ok(Some(format!("the {copy} of the LUKS2 header was written anew: {why}")))
}

/// Tries the keys, each on its own slot, all at once as far as they have to be unsealed. Nothing is written. A key that
/// could not be had comes as the reason why.
pub fn open(
    part: &mut dyn BlockDevice,
    name: &str,
    mut keys: Vec<Result<Key, Refused>>,
) -> Result<Opened, Error> {
    // Before a key is tried: the header may be left over in data of another format.
    refuse_contradiction(part, name)?;
    let mut volume = Volume::read(part)?;
    // One that needs more than there is would be ended by the kernel, without a reason.
    volume.memory_kib = std::fs::read_to_string(MEMINFO).ok().and_then(|text| unlock::available_kib(&text));
    keys.sort_by_key(|key| key.as_ref().map_or_else(|refused| refused.slot, |key| key.slot));
    // Nobody is asked for these while the node can open the volume itself.
    let (with_people, keys): (Vec<_>, Vec<_>) =
        keys.into_iter().partition(|key| key.as_ref().is_ok_and(Key::is_with_people));
    let race = Race::start(&volume.header, keys);
    let mut outcome = unlock::open(&mut volume, race);
    if outcome.opened.is_none() {
        outcome.refused.extend(with_people.into_iter().flatten().map(|key| key.refused(ask_somebody(name))));
    }
    outcome.refused.iter_mut().for_each(|refused| explain(refused, &volume.header));
    let reasons = outcome.reasons();
    match outcome.opened {
        Some(unlocked) => {
            let (header, stale) = (volume.header, volume.stale);
            Ok(Opened { header, unlocked, refused: outcome.refused, stale })
        }
        None => Err(Error::NoKeyMatched { name: name.to_owned(), reasons }),
    }
}

/// What a recovery key waits for.
fn ask_somebody(name: &str) -> String {
    format!("it needs a person: billetctl disk recovery-key {name}, then billetctl unlock {name}")
}

/// Whose fault it is when what was unsealed, or typed, does not open.
fn explain(refused: &mut Refused, header: &Header) {
    if refused.why != SlotError::Passphrase.to_string() {
        return;
    }
    let why = match refused.kind {
        KeyKind::Kms | KeyKind::Tpm
            if SealedKey::of(header, refused.slot).is_some_and(|sealed| sealed.is_locked()) =>
        {
            "it is locked to another STATE than this one, or what was unsealed is not the slot's key"
        }
        KeyKind::Kms | KeyKind::Tpm => "what was unsealed is not the slot's key",
        KeyKind::Recovery => "it is another volume's recovery key, or one that was replaced",
        _ => return,
    };
    refused.why = why.to_owned();
}

/// Whether the slot's key is another one, as against a slot that could not be tried.
fn is_other_key(error: &UnlockError) -> bool {
    let other = |refusal: &Refusal| refusal.why == SlotError::Passphrase;
    matches!(error, UnlockError::Refused(refusals) if refusals.iter().all(other))
}

/// The keys that slots are made with, in the order of the slots.
fn one_a_slot(keys: &[Key]) -> Vec<&Key> {
    let mut slots = BTreeMap::new();
    for key in keys {
        slots.entry(key.slot).or_insert(key);
    }
    slots.into_values().collect()
}

fn new_slot(key: &Minted) -> NewSlot<'_> {
    NewSlot { slot: Some(Id(key.slot)), passphrase: &key.secret, cost: key.cost, token: key.token.as_ref() }
}

/// A random UUID, as text.
fn uuid(random: RandomBytes<'_>) -> String {
    let mut bytes = [0_u8; 16];
    random(&mut bytes);
    let mut number = u128::from_be_bytes(bytes);
    // RFC 9562: version 4, variant 10.
    number = number & !(0xf << 76) | 0x4 << 76;
    number = number & !(0x3 << 62) | 0x2 << 62;
    let hex = format!("{number:032x}");
    let mut rest = hex.as_str();
    let mut parts = Vec::new();
    for length in [8, 4, 4, 4, 12] {
        let (part, behind) = rest.split_at(length);
        parts.push(part);
        rest = behind;
    }
    parts.join("-")
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vault_tests;
