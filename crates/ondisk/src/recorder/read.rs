//! What the ring holds.
//!
//! Owns: finding the newest slot; all lines by boot.
//! Fails by: [`ReadError`] where nothing can be read; else what cannot be is left out.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{
    Head, Kind, RING_OFFSET_BYTES, SLOT_BYTES, SLOTS, Slot, Writer, claimed_number, counting, slot_offset,
};
use crate::{ReadAt, ReadError};

/// Slots that a bad sector costs: a sector of most disks, or a page of flash.
const SLOTS_AT_ONCE: usize = 8;

/// The slot that was written last.
pub type Newest = Head;

/// A line and its circumstances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// syslog facility times eight, and priority.
    pub prefix: u16,
    /// Time since the kernel's start, in microseconds.
    pub time_us: u64,
    /// Who recorded it.
    pub writer: Writer,
    /// The text; bytes that are no UTF-8 are replaced.
    pub text: String,
}

/// What is known of a boot's beginning or end: `name=value` a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(pub String);

impl Facts {
    /// The value of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }
}

/// What is left of one boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The kernel's boot id.
    pub id: [u8; 16],
    /// When the kernel started, in microseconds since 1970, as its last slot has it; 0: unknown.
    pub started_us: u64,
    /// Time of the last slot since then, in microseconds: the boot lasted at least so long.
    pub last_us: u64,
    /// How it began, unless the ring went over that.
    pub begin: Option<Facts>,
    /// How it ended; `None`: by the power, a reset or a kernel panic, or it still runs.
    pub end: Option<Facts>,
    /// In the order in which they were written. The first ones may be gone: the ring went over them.
    pub lines: Vec<Line>,
}

/// The slot with the highest number; `None` in an empty ring. Reads as much at once as `buffer` has whole slots.
///
/// The last place is looked at first: numbers fall on the way down but for one place, so that few checksums are made.
pub fn newest(meta: &mut impl ReadAt, buffer: &mut [u8]) -> Result<Option<Newest>, ReadError> {
    let at_once = (buffer.len() / SLOT_BYTES).max(1) as u64;
    let mut newest: Option<Newest> = None;
    let mut whole = Err(ReadError { offset: RING_OFFSET_BYTES, length: 0, errno: 0 });
    let mut end = SLOTS;
    while end > 0 {
        let first = end.saturating_sub(at_once);
        let length = usize::try_from(end - first).unwrap_or(0).saturating_mul(SLOT_BYTES);
        let missing = ReadError { offset: slot_offset(first), length, errno: 0 };
        let chunk = buffer.get_mut(..length).ok_or(missing)?;
        let read = read_around(meta, slot_offset(first), chunk);
        whole = whole.or(read);
        for (place, slot) in (first..end).rev().zip(chunk.chunks_exact(SLOT_BYTES).rev()) {
            let claimed = claimed_number(slot, place);
            let higher = claimed.filter(|number| newest.is_none_or(|found| found.number < *number));
            if higher.is_some()
                && let Some(found) = counting(slot, place)
            {
                newest = Some(found.head);
            }
        }
        end = first;
    }
    whole.map(|()| newest)
}

/// Reads what can be read, page by page of the disk; the rest is zeros. `Err`: nothing can.
fn read_around(meta: &mut impl ReadAt, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
    let whole = meta.read_at(offset, buffer);
    if whole.is_ok() {
        return whole;
    }
    let mut read = whole;
    let (mut offset, mut rest) = (offset, buffer);
    while !rest.is_empty() {
        let page = (SLOTS_AT_ONCE * SLOT_BYTES) as u64;
        let length = usize::try_from(page - offset % page).unwrap_or(usize::MAX).min(rest.len());
        let (piece, behind) = rest.split_at_mut(length);
        match meta.read_at(offset, piece) {
            Ok(()) => read = Ok(()),
            Err(_) => piece.fill(0),
        }
        offset += length as u64;
        rest = behind;
    }
    read
}

/// All boots that the ring still holds, the oldest first.
pub fn boots(meta: &mut impl ReadAt) -> Result<Vec<Boot>, ReadError> {
    let mut ring = vec![0; usize::try_from(SLOTS).unwrap_or(0) * SLOT_BYTES];
    read_around(meta, RING_OFFSET_BYTES, &mut ring)?;
    let mut found: Vec<Slot<'_>> =
        (0..).zip(ring.chunks_exact(SLOT_BYTES)).filter_map(|(place, slot)| counting(slot, place)).collect();
    found.sort_by_key(|slot| slot.head.number);
    Ok(join(&found))
}

/// Slots in their order to boots.
fn join(slots: &[Slot<'_>]) -> Vec<Boot> {
    let mut boots: Vec<Boot> = Vec::new();
    let mut open = None;
    for slot in slots {
        let head = slot.head;
        if boots.last().is_none_or(|boot| boot.id != head.boot) {
            open = None;
            let lines = Vec::new();
            boots.push(Boot { id: head.boot, started_us: 0, last_us: 0, begin: None, end: None, lines });
        }
        let Some(boot) = boots.last_mut() else { continue };
        boot.started_us = head.started_us;
        boot.last_us = boot.last_us.max(head.time_us);
        let facts = || Some(Facts(String::from_utf8_lossy(slot.payload).into_owned()));
        match head.kind {
            Kind::Lines => lines(boot, slot, &mut open),
            Kind::Begin => boot.begin = facts(),
            Kind::End => boot.end = facts(),
        }
    }
    boots
}

/// The text of a line that goes on, and the number of the slot where it does.
type Open = Option<(u64, Vec<u8>)>;

/// A slot's lines. One whose other half is gone is shown as far as it goes.
fn lines(boot: &mut Boot, slot: &Slot<'_>, open: &mut Open) {
    for piece in slot.pieces() {
        let mut text = match open.take() {
            Some((expected, text)) if expected == slot.head.number => {
                boot.lines.pop();
                text
            }
            _ => Vec::new(),
        };
        text.extend_from_slice(piece.text);
        boot.last_us = boot.last_us.max(piece.time_us);
        boot.lines.push(Line {
            prefix: piece.prefix,
            time_us: piece.time_us,
            writer: slot.head.writer,
            text: String::from_utf8_lossy(&text).into_owned(),
        });
        if piece.goes_on {
            *open = Some((slot.head.number.wrapping_add(1), text));
        }
    }
}
