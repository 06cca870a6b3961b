//! Lines into slots.
//!
//! Owns: as many lines in a slot as fit; lines longer than a slot; numbers and sequence numbers of the slots; going on
//! behind places that cannot be written ([`MOST_SKIPPED`]).
//! Does not: allocate, write, or give a slot out twice: what [`Packer::finish`] gave out stays as it is.

use super::{GOES_ON, Head, Kind, LINE_HEAD, PAYLOAD_BYTES, SLOT_BYTES, Slot, Writer, encode, slot_offset};
use crate::field::put;
use crate::kmsg::Record;

/// Places that one slot is tried at besides its own: the slots of two pages of flash, each of which goes bad as one.
pub const MOST_SKIPPED: u32 = 16;

/// Takes a full slot: its place in META, and its bytes.
pub type Put<'p, E> = &'p mut dyn FnMut(u64, &[u8; SLOT_BYTES]) -> Result<(), E>;

/// Fills slots.
#[derive(Debug, Clone)]
pub struct Packer {
    head: Head,
    payload: [u8; PAYLOAD_BYTES],
    used: usize,
}

impl Packer {
    /// A packer whose first slot has this number, and whose first line this sequence number or a higher one.
    #[must_use]
    pub fn new(boot: [u8; 16], writer: Writer, number: u64, sequence: u64) -> Self {
        let head = Head { number, boot, sequence, time_us: 0, started_us: 0, writer, kind: Kind::Lines };
        Self { head, payload: [0; PAYLOAD_BYTES], used: 0 }
    }

    /// The number of the next slot that will be given out.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.head.number
    }

    /// The kernel log record to go on with.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.head.sequence
    }

    /// When the kernel started, in microseconds since 1970: a clock that was set changes it.
    pub fn set_started_us(&mut self, started_us: u64) {
        self.head.started_us = started_us;
    }

    /// Adds a line; gives out slots that became full. Lines that were recorded before are left out.
    pub fn line<E>(&mut self, line: &Record<'_>, put_slot: Put<'_, E>) -> Result<(), E> {
        if line.sequence < self.head.sequence {
            return Ok(());
        }
        let mut rest = line.text.as_bytes();
        let fits = self.used + LINE_HEAD + rest.len() <= PAYLOAD_BYTES;
        if self.used > 0 && (!fits || self.delta(line.stamp_us).is_none()) {
            self.give_out(put_slot)?;
        }
        while LINE_HEAD + rest.len() > PAYLOAD_BYTES {
            let (piece, after) = rest.split_at(PAYLOAD_BYTES - LINE_HEAD);
            self.piece(line, piece, true);
            self.give_out(put_slot)?;
            rest = after;
        }
        self.piece(line, rest, false);
        self.head.sequence = line.sequence.saturating_add(1);
        Ok(())
    }

    /// Gives out the slot that is begun, if one is.
    pub fn finish<E>(&mut self, put_slot: Put<'_, E>) -> Result<(), E> {
        if self.used > 0 { self.give_out(put_slot) } else { Ok(()) }
    }

    /// Gives out a slot of facts, `name=value` a line.
    pub fn facts<E>(&mut self, kind: Kind, time_us: u64, facts: &str, put_slot: Put<'_, E>) -> Result<(), E> {
        self.finish(put_slot)?;
        self.put(kind, time_us, facts.as_bytes(), put_slot)
    }

    /// A slot that was given out and could not be written, with the number that comes next.
    pub fn renumbered(&mut self, slot: &[u8; SLOT_BYTES]) -> Option<(u64, [u8; SLOT_BYTES])> {
        let slot = Slot::decode(slot)?;
        let number = self.head.number;
        self.head.number = number.wrapping_add(1);
        // It becomes the newest one, by which others go on.
        let head = Head { number, sequence: self.head.sequence, ..slot.head };
        Some((slot_offset(number), encode(&head, slot.payload)))
    }

    /// The time of a line in its slot, if it can be put so.
    fn delta(&self, stamp_us: u64) -> Option<u32> {
        u32::try_from(stamp_us.checked_sub(self.head.time_us)?).ok()
    }

    fn piece(&mut self, line: &Record<'_>, text: &[u8], goes_on: bool) {
        if self.used == 0 {
            self.head.time_us = line.stamp_us;
        }
        // At most PAYLOAD_BYTES; and the slot's time is no later than the line's.
        let length = u16::try_from(text.len()).unwrap_or(0) | if goes_on { GOES_ON } else { 0 };
        let delta = self.delta(line.stamp_us).unwrap_or(0);
        put(&mut self.payload, self.used, &line.prefix.to_le_bytes());
        put(&mut self.payload, self.used + 2, &length.to_le_bytes());
        put(&mut self.payload, self.used + 4, &delta.to_le_bytes());
        put(&mut self.payload, self.used + LINE_HEAD, text);
        self.used += LINE_HEAD + text.len();
    }

    fn give_out<E>(&mut self, put_slot: Put<'_, E>) -> Result<(), E> {
        let (payload, used) = (self.payload, core::mem::take(&mut self.used));
        let Head { kind, time_us, .. } = self.head;
        self.put(kind, time_us, payload.get(..used).unwrap_or(&payload), put_slot)
    }

    /// Gives out a slot; one whose place cannot be written goes to the next.
    fn put<E>(&mut self, kind: Kind, time_us: u64, payload: &[u8], put_slot: Put<'_, E>) -> Result<(), E> {
        let mut skipped = 0;
        loop {
            let head = Head { kind, time_us, ..self.head };
            self.head.number = head.number.wrapping_add(1);
            match put_slot(slot_offset(head.number), &encode(&head, payload)) {
                Err(_) if skipped < MOST_SKIPPED => skipped += 1,
                done => return done,
            }
        }
    }
}
