//! The flight recorder: the last log lines of the last boots, on disk, whatever ended them.
//!
//! Owns: a ring of slots of one sector each behind META's values; what a slot holds; which slots count, in which
//! order; lines longer than a slot.
//! Does not: flush; choose lines; keep more than one sector in memory while it writes.
//! Order: a slot's place follows from its number alone, so a writer needs nothing but the highest number there is.
//! A torn slot fails its checksum and is as if never written; no other slot is touched by a write.
//! Source: docs/formats/meta.md.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::field::{array, bytes, le16, le32, le64, put, u8_at};
use crate::{ReadAt, ReadError};

/// Where the ring starts in META, in bytes.
pub const RING_OFFSET_BYTES: u64 = 512 << 10;

/// Slots of the ring: up to the last KiB of META, which older systems use.
pub const SLOTS: u64 = ((1 << 20) - 1024 - RING_OFFSET_BYTES) / SLOT_BYTES as u64;

/// Bytes of a slot: the smallest sector, the unit that a disk writes whole.
pub const SLOT_BYTES: usize = 512;

/// Most bytes of text in a slot.
pub const TEXT_BYTES: usize = SLOT_BYTES - TEXT;

// Layout, little-endian: magic (4 bytes at 0), CRC-32 of everything behind it (u32 at 4), number (u64 at 8), boot id
// (16 bytes at 16), time since the kernel's start in µs (u64 at 32), origin (u8 at 40), flags (u8 at 41), length of
// the text (u16 at 42), text at 44, zeros.
const MAGIC: &[u8; 4] = b"BFLR";
const CHECKSUM: usize = 4;
const SEALED: usize = 8;
const TEXT: usize = 44;
const CONTINUES: u8 = 1;

/// Who wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The kernel, as read from its log.
    Kernel,
    /// PID 1.
    Init,
    /// machined and what it runs.
    Machined,
}

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Counts every slot ever written.
    pub number: u64,
    /// The kernel's boot id.
    pub boot: [u8; 16],
    /// Time since the kernel's start, in microseconds.
    pub time_us: u64,
    /// Who wrote it.
    pub origin: Origin,
    /// The line goes on in the next slot.
    pub continues: bool,
    /// The text, at most [`TEXT_BYTES`]; what is longer is cut off by [`Record::encode`].
    pub text: &'a [u8],
}

/// A line and its circumstances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Time since the kernel's start, in microseconds.
    pub time_us: u64,
    /// Who wrote it.
    pub origin: Origin,
    /// The text; bytes that are no UTF-8 are replaced.
    pub text: String,
}

/// The lines of one boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The kernel's boot id.
    pub id: [u8; 16],
    /// In the order in which they were written. The first ones may be gone: the ring went over them.
    pub lines: Vec<Line>,
}

/// Where the slot of this number lies in META, in bytes.
#[must_use]
pub fn slot_offset(number: u64) -> u64 {
    RING_OFFSET_BYTES + number % SLOTS * SLOT_BYTES as u64
}

impl<'a> Record<'a> {
    /// The slot's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        let text = self.text.get(..TEXT_BYTES).unwrap_or(self.text);
        put(&mut slot, 0, MAGIC);
        put(&mut slot, 8, &self.number.to_le_bytes());
        put(&mut slot, 16, &self.boot);
        put(&mut slot, 32, &self.time_us.to_le_bytes());
        put(&mut slot, 40, &[self.origin.stored(), if self.continues { CONTINUES } else { 0 }]);
        // At most TEXT_BYTES.
        put(&mut slot, 42, &u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
        put(&mut slot, TEXT, text);
        let checksum = crc32fast::hash(slot.get(SEALED..).unwrap_or(&[]));
        put(&mut slot, CHECKSUM, &checksum.to_le_bytes());
        slot
    }

    /// What a slot holds; `None` when it was never written, not wholly, or by a system that knows more.
    #[must_use]
    pub fn decode(slot: &'a [u8]) -> Option<Self> {
        let sealed = bytes(slot, SEALED, SLOT_BYTES - SEALED)?;
        if bytes(slot, 0, 4)? != MAGIC || le32(slot, CHECKSUM)? != crc32fast::hash(sealed) {
            return None;
        }
        Some(Self {
            number: le64(slot, 8)?,
            boot: array(slot, 16)?,
            time_us: le64(slot, 32)?,
            origin: Origin::from_stored(u8_at(slot, 40)?)?,
            continues: u8_at(slot, 41)? & CONTINUES != 0,
            text: bytes(slot, TEXT, usize::from(le16(slot, 42)?)).filter(|text| text.len() <= TEXT_BYTES)?,
        })
    }
}

/// The records of one line, numbered from `first.number`; `first.text` is the whole line.
pub fn records(first: Record<'_>) -> impl Iterator<Item = Record<'_>> {
    let pieces = first.text.len().div_ceil(TEXT_BYTES).max(1);
    (0..pieces).map(move |piece| {
        let rest = first.text.get(piece * TEXT_BYTES..).unwrap_or(&[]);
        Record {
            number: first.number.wrapping_add(piece as u64),
            continues: piece + 1 < pieces,
            text: rest.get(..TEXT_BYTES).unwrap_or(rest),
            ..first
        }
    })
}

/// The number of the next slot to write: one more than the highest that counts. One slot at a time is in memory.
pub fn next_number(meta: &mut impl ReadAt) -> Result<u64, ReadError> {
    let mut next = 0;
    let mut slot = [0; SLOT_BYTES];
    for place in 0..SLOTS {
        meta.read_at(slot_offset(place), &mut slot)?;
        if let Some(record) = counting(&slot, place) {
            next = next.max(record.number.wrapping_add(1));
        }
    }
    Ok(next)
}

/// All boots that the ring still holds, the oldest first.
pub fn boots(meta: &mut impl ReadAt) -> Result<Vec<Boot>, ReadError> {
    let mut ring = vec![0; usize::try_from(SLOTS).unwrap_or(0) * SLOT_BYTES];
    meta.read_at(RING_OFFSET_BYTES, &mut ring)?;
    let mut found: Vec<Record<'_>> =
        (0..).zip(ring.chunks_exact(SLOT_BYTES)).filter_map(|(place, slot)| counting(slot, place)).collect();
    found.sort_by_key(|record| record.number);
    Ok(join(&found))
}

/// A slot that lies where its number puts it.
fn counting(slot: &[u8], place: u64) -> Option<Record<'_>> {
    Record::decode(slot).filter(|record| record.number % SLOTS == place)
}

/// Records in their order to lines, lines to boots.
fn join(records: &[Record<'_>]) -> Vec<Boot> {
    let mut boots: Vec<Boot> = Vec::new();
    let mut open: Option<(u64, Vec<u8>)> = None;
    for record in records {
        if boots.last().is_none_or(|boot| boot.id != record.boot) {
            boots.push(Boot { id: record.boot, lines: Vec::new() });
            open = None;
        }
        let Some(boot) = boots.last_mut() else { continue };
        let mut text = match open.take() {
            Some((expected, text)) if expected == record.number => {
                boot.lines.pop();
                text
            }
            _ => Vec::new(),
        };
        text.extend_from_slice(record.text);
        boot.lines.push(Line {
            time_us: record.time_us,
            origin: record.origin,
            text: String::from_utf8_lossy(&text).into_owned(),
        });
        if record.continues {
            open = Some((record.number.wrapping_add(1), text));
        }
    }
    boots
}

impl Origin {
    fn stored(self) -> u8 {
        match self {
            Self::Kernel => 0,
            Self::Init => 1,
            Self::Machined => 2,
        }
    }

    fn from_stored(stored: u8) -> Option<Self> {
        [Self::Kernel, Self::Init, Self::Machined].into_iter().find(|origin| origin.stored() == stored)
    }
}

#[cfg(test)]
mod tests;
