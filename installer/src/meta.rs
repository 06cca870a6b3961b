//! META on a disk: its values, and what a node notes there about work that must not be left half done.
//!
//! Owns: reading and changing values; the intents: which partition is being formatted, which reset is under way.
//! Does not: find the partition; touch the flight recorder behind the values.
//! Order: a change is on the disk, in both copies, when it returns.
//! Fails by: [`Error`]; a META of which neither copy could be read is never written over.
//! Source: docs/formats/meta.md.

use std::sync::{Mutex, PoisonError};

use ondisk::gpt::Guid;
use ondisk::meta::{self, Found, Meta};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::device::{BlockDevice, apply};

/// Tags of Billet's own, beyond the one byte that clients can name.
pub mod tags {
    use ondisk::meta::intents;

    /// Partitions that are being formatted: a JSON list of [`super::FormatIntent`].
    pub const FORMAT_INTENTS: u32 = intents::FORMAT_TAG;
    /// A reset under way: JSON of [`super::ResetIntent`].
    pub const RESET_INTENT: u32 = intents::RESET_TAG;
    /// Other disks that are being wiped: JSON of [`super::WipeIntent`].
    pub const WIPE_INTENT: u32 = 0x4249_0003;
    /// This machine has a config on STATE: `1`.
    pub const CONFIGURED: u32 = 0x4249_0004;
}

/// A partition whose content is being made: until the note is gone, what it holds counts for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatIntent {
    /// Its GPT name.
    pub partition: String,
    /// Its own GUID, as text.
    pub guid: String,
}

/// A reset that has begun: until the note is gone, the next boot goes on with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetIntent {
    /// GPT names of the partitions to wipe. Empty: the whole disk.
    pub partitions: Vec<String>,
    /// What happens afterwards: `reboot` or `shutdown`.
    #[serde(default)]
    pub then: String,
}

/// Other disks that a reset wipes: until the note is gone, the next boot goes on with those that are in it.
///
/// A note of its own: whoever does not know it must not read a [`ResetIntent`] without partitions, which is the whole
/// system disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WipeIntent {
    /// Those that do not yet read as zeros.
    pub disks: Vec<WipedDisk>,
    /// What happens afterwards: `reboot` or `shutdown`.
    pub then: String,
}

/// A disk, by what does not change with the order in which drivers find disks.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WipedDisk {
    /// What it was called when the reset was asked for.
    pub path: String,
    /// Its serial number; empty: it has none.
    pub serial: String,
    /// Its world-wide name; empty: it has none.
    pub wwid: String,
    /// Its length.
    pub bytes: u64,
}

impl WipedDisk {
    /// Whether another look shows the same disk. One without any number of its own is known by name and length.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let same = (&self.serial, &self.wwid, self.bytes) == (&other.serial, &other.wwid, other.bytes);
        let numbered = !self.serial.is_empty() || !self.wwid.is_empty();
        same && (numbered || self.path == other.path)
    }
}

impl FormatIntent {
    /// For this partition.
    #[must_use]
    pub fn new(partition: &str, guid: Guid) -> Self {
        Self { partition: partition.to_owned(), guid: guid.to_string() }
    }
}

/// Reads the values. A new or damaged META has none; one that cannot be read is an error.
pub fn read(part: &mut dyn BlockDevice) -> Result<Found, Error> {
    let found = meta::read(&mut &mut *part);
    match &found.faults {
        [Some(first), Some(second)] => {
            let failed = [first, second].into_iter().find_map(|fault| match fault {
                meta::Error::Read(error) => Some(*error),
                _ => None,
            });
            failed.map_or(Ok(found), |error| Err(error.into()))
        }
        _ => Ok(found),
    }
}

/// Held while a change reads, decides and writes: two at once would lose one.
static CHANGING: Mutex<()> = Mutex::new(());

/// Changes the values; returns what they are now. A change that changes nothing writes nothing.
pub fn update(
    part: &mut dyn BlockDevice,
    change: impl FnOnce(&mut Meta) -> Result<(), meta::Error>,
) -> Result<Meta, Error> {
    let _one_at_a_time = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let found = read(part)?;
    let mut new = found.meta.clone();
    change(&mut new)?;
    if new != found.meta {
        apply(part, 0, &found.change_to(&new))?;
    }
    Ok(new)
}

/// The partitions that are being formatted.
#[must_use]
pub fn format_intents(meta: &Meta) -> Vec<FormatIntent> {
    // What cannot be read was written by another version: it protects nothing that this one could resume.
    meta.get(tags::FORMAT_INTENTS).and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default()
}

/// Notes that a partition is being formatted, before it is touched.
pub fn begin_format(part: &mut dyn BlockDevice, intent: &FormatIntent) -> Result<(), Error> {
    update(part, |meta| {
        let mut intents = format_intents(meta);
        // An older note about a partition of that name is about one that was never made.
        intents.retain(|other| other.partition != intent.partition);
        intents.push(intent.clone());
        set_intents(meta, &intents)
    })
    .map(drop)
}

/// Notes that a partition's content is whole.
pub fn end_format(part: &mut dyn BlockDevice, intent: &FormatIntent) -> Result<(), Error> {
    update(part, |meta| {
        let mut intents = format_intents(meta);
        intents.retain(|other| other != intent);
        set_intents(meta, &intents)
    })
    .map(drop)
}

fn set_intents(meta: &mut Meta, intents: &[FormatIntent]) -> Result<(), meta::Error> {
    if intents.is_empty() {
        meta.remove(tags::FORMAT_INTENTS);
        return Ok(());
    }
    meta.set(tags::FORMAT_INTENTS, &json(&intents))
}

/// The reset that is under way.
#[must_use]
pub fn reset_intent(meta: &Meta) -> Option<ResetIntent> {
    let json = meta.get(tags::RESET_INTENT)?;
    // One that cannot be read is a reset of the whole disk: what somebody wanted gone must not come up again.
    Some(serde_json::from_slice(json).unwrap_or_default())
}

/// Notes a reset before it begins.
pub fn begin_reset(part: &mut dyn BlockDevice, intent: &ResetIntent) -> Result<(), Error> {
    update(part, |meta| meta.set(tags::RESET_INTENT, &json(intent))).map(drop)
}

/// Notes that a reset is through; with STATE goes how to open it, and that there was a config.
pub fn end_reset(part: &mut dyn BlockDevice, without_state: bool) -> Result<(), Error> {
    update(part, |meta| {
        meta.remove(tags::RESET_INTENT);
        if without_state {
            meta.remove(meta::tags::STATE_ENCRYPTION);
            meta.remove(tags::CONFIGURED);
        }
        Ok(())
    })
    .map(drop)
}

/// The other disks that are being wiped.
#[must_use]
pub fn wipe_intent(meta: &Meta) -> Option<WipeIntent> {
    // One that cannot be read names no disk, and none is wiped that was not named.
    serde_json::from_slice(meta.get(tags::WIPE_INTENT)?).ok()
}

/// Notes which other disks are wiped, before the first is touched. It replaces an older note.
pub fn begin_wipe(part: &mut dyn BlockDevice, intent: &WipeIntent) -> Result<(), Error> {
    update(part, |meta| meta.set(tags::WIPE_INTENT, &json(intent))).map(drop)
}

/// Notes that a disk reads as zeros; with the last one the note goes.
pub fn end_wipe(part: &mut dyn BlockDevice, disk: &WipedDisk) -> Result<(), Error> {
    update(part, |meta| {
        let mut left = wipe_intent(meta).unwrap_or_default();
        left.disks.retain(|other| other != disk);
        if left.disks.is_empty() {
            meta.remove(tags::WIPE_INTENT);
            return Ok(());
        }
        meta.set(tags::WIPE_INTENT, &json(&left))
    })
    .map(drop)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("invariant: strings and lists of them are JSON")
}
