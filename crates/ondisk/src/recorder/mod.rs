//! The flight recorder: the kernel logs of the last boots, on disk, whatever ended them.
//!
//! Owns: a ring of slots of one sector each behind META's values; what a slot holds ([`Slot`]); how lines are put
//! into slots ([`Packer`]); which slots count, in which order ([`newest`], [`boots`]).
//! Does not: read, write or flush; choose lines.
//! Order: a slot's place follows from its number alone, so a writer needs nothing but the highest number there is.
//! A slot is written once: a torn one fails its checksum and is as if never written, and no other is touched. What a
//! bad sector does not take goes to the next place, and reads leave it out.
//! Source: docs/formats/meta.md.

mod pack;
mod read;

pub use pack::{MOST_SKIPPED, Packer, Put};
pub use read::{Boot, Facts, Line, Newest, boots, newest};

use crate::crc32;
use crate::field::{array, bytes, le16, le32, le64, put, u8_at};

/// Where the ring starts in META, in bytes.
pub const RING_OFFSET_BYTES: u64 = 512 << 10;

/// Slots of the ring: up to the last KiB of META, which older systems use.
pub const SLOTS: u64 = ((1 << 20) - 1024 - RING_OFFSET_BYTES) / SLOT_BYTES as u64;

/// Bytes of the ring.
pub const RING_BYTES: u64 = SLOTS * SLOT_BYTES as u64;

/// Bytes of a slot: the smallest sector, the unit that a disk writes whole.
pub const SLOT_BYTES: usize = 512;

/// Most bytes of a slot that lines or facts take.
pub const PAYLOAD_BYTES: usize = SLOT_BYTES - PAYLOAD;

// Layout of a slot, little-endian: magic (4 bytes at 0), CRC-32 of everything behind it (u32 at 4), number (u64 at 8),
// boot id (16 bytes at 16), sequence (u64 at 32), time (u64 at 40), start (u64 at 48), writer (u8 at 56), kind (u8 at
// 57), length of the payload (u16 at 58), payload at 60, zeros.
const MAGIC: &[u8; 4] = b"BFLR";
const CHECKSUM: usize = 4;
const SEALED: usize = 8;
const PAYLOAD: usize = 60;

// A line in the payload: prefix (u16), length of the text (u15; the highest bit: the text goes on in the next slot's
// first line), time since the slot's in µs (u32), text.
const LINE_HEAD: usize = 8;
const GOES_ON: u16 = 1 << 15;

/// Who wrote a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// PID 1.
    Init,
    /// machined.
    Machined,
}

/// What a slot's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Lines of the kernel log.
    Lines,
    /// How a boot began: [`Facts`].
    Begin,
    /// How it ended, as far as the node had a say: [`Facts`].
    End,
}

/// What every slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Counts every slot ever written.
    pub number: u64,
    /// The kernel's boot id.
    pub boot: [u8; 16],
    /// One more than the sequence number of the last kernel log record that is recorded: what is to be recorded next.
    pub sequence: u64,
    /// Time since the kernel's start, in microseconds.
    pub time_us: u64,
    /// When the kernel started, in microseconds since 1970, as the clock had it when the slot was written.
    pub started_us: u64,
    /// Who wrote it.
    pub writer: Writer,
    /// What the payload is.
    pub kind: Kind,
}

/// A slot that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot<'a> {
    /// What every slot says.
    pub head: Head,
    /// At most [`PAYLOAD_BYTES`].
    pub payload: &'a [u8],
}

/// A line, or the part of one that a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// syslog facility times eight, and priority.
    pub prefix: u16,
    /// Time since the kernel's start, in microseconds.
    pub time_us: u64,
    /// The text goes on in the next slot.
    pub goes_on: bool,
    /// The text.
    pub text: &'a [u8],
}

/// Where the slot of this number lies in META, in bytes.
#[must_use]
pub fn slot_offset(number: u64) -> u64 {
    RING_OFFSET_BYTES + number % SLOTS * SLOT_BYTES as u64
}

/// The bytes of a slot; a payload that is too long is cut off.
#[must_use]
pub fn encode(head: &Head, payload: &[u8]) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    let payload = payload.get(..PAYLOAD_BYTES).unwrap_or(payload);
    put(&mut slot, 0, MAGIC);
    put(&mut slot, 8, &head.number.to_le_bytes());
    put(&mut slot, 16, &head.boot);
    put(&mut slot, 32, &head.sequence.to_le_bytes());
    put(&mut slot, 40, &head.time_us.to_le_bytes());
    put(&mut slot, 48, &head.started_us.to_le_bytes());
    put(&mut slot, 56, &[head.writer.stored(), head.kind.stored()]);
    // At most PAYLOAD_BYTES.
    put(&mut slot, 58, &u16::try_from(payload.len()).unwrap_or(0).to_le_bytes());
    put(&mut slot, PAYLOAD, payload);
    let checksum = crc32::hash(slot.get(SEALED..).unwrap_or(&[]));
    put(&mut slot, CHECKSUM, &checksum.to_le_bytes());
    slot
}

impl<'a> Slot<'a> {
    /// What a slot holds; `None` when it was never written, not wholly, or by a system that knows more.
    #[must_use]
    pub fn decode(slot: &'a [u8]) -> Option<Self> {
        let sealed = bytes(slot, SEALED, SLOT_BYTES - SEALED)?;
        if bytes(slot, 0, 4)? != MAGIC || le32(slot, CHECKSUM)? != crc32::hash(sealed) {
            return None;
        }
        let head = Head {
            number: le64(slot, 8)?,
            boot: array(slot, 16)?,
            sequence: le64(slot, 32)?,
            time_us: le64(slot, 40)?,
            started_us: le64(slot, 48)?,
            writer: Writer::from_stored(u8_at(slot, 56)?)?,
            kind: Kind::from_stored(u8_at(slot, 57)?)?,
        };
        let payload = bytes(slot, PAYLOAD, usize::from(le16(slot, 58)?))?;
        (payload.len() <= PAYLOAD_BYTES).then_some(Self { head, payload })
    }

    /// The lines of a slot of [`Kind::Lines`]; ends where the payload makes no sense.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'a>> + use<'a> {
        let (payload, head) = (self.payload, self.head);
        let mut at = if head.kind == Kind::Lines { 0 } else { payload.len() };
        core::iter::from_fn(move || {
            let length = le16(payload, at.checked_add(2)?)?;
            let text = bytes(payload, at.checked_add(LINE_HEAD)?, usize::from(length & !GOES_ON))?;
            let piece = Piece {
                prefix: le16(payload, at)?,
                time_us: head.time_us.saturating_add(u64::from(le32(payload, at.checked_add(4)?)?)),
                goes_on: length & GOES_ON != 0,
                text,
            };
            at = at.checked_add(LINE_HEAD)?.checked_add(text.len())?;
            Some(piece)
        })
    }
}

/// A boot id as the kernel writes it: 32 hexadecimal digits in groups.
#[must_use]
pub fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    let mut digits = text.trim_end().chars().filter(|c| *c != '-').map(|c| c.to_digit(16));
    for byte in &mut id {
        *byte = u8::try_from(digits.next()?? << 4 | digits.next()??).ok()?;
    }
    digits.next().is_none().then_some(id)
}

/// The number that a slot claims, without a look at its checksum; `None` where it cannot count.
fn claimed_number(slot: &[u8], place: u64) -> Option<u64> {
    let number = le64(slot, 8)?;
    (bytes(slot, 0, 4)? == MAGIC && number % SLOTS == place).then_some(number)
}

/// A slot that lies where its number puts it.
fn counting(slot: &[u8], place: u64) -> Option<Slot<'_>> {
    Slot::decode(slot).filter(|found| found.head.number % SLOTS == place)
}

impl Writer {
    fn stored(self) -> u8 {
        match self {
            Self::Init => 1,
            Self::Machined => 2,
        }
    }

    fn from_stored(stored: u8) -> Option<Self> {
        [Self::Init, Self::Machined].into_iter().find(|writer| writer.stored() == stored)
    }
}

impl Kind {
    fn stored(self) -> u8 {
        match self {
            Self::Lines => 0,
            Self::Begin => 1,
            Self::End => 2,
        }
    }

    fn from_stored(stored: u8) -> Option<Self> {
        [Self::Lines, Self::Begin, Self::End].into_iter().find(|kind| kind.stored() == stored)
    }
}

#[cfg(test)]
mod tests;
