//! Names: the 8.3 form, its long companion, and the entries that hold both.
//!
//! Owns: which names are possible, how a short alias is made, the slots of an entry set.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{SLOT_BYTES, attribute};
use crate::field::put;

/// UTF-16 units in one slot of a long name.
const UNITS_PER_SLOT: usize = 13;

/// Most units of a long name.
const MAX_UNITS: usize = 255;

/// 1980-01-01, the first day that FAT knows: images are the same on any day.
const DATE: u16 = 0x0021;

/// A name in its 8.3 form, space padded, without the dot.
pub(super) type ShortName = [u8; 11];

/// Whether a part of a path can be a long name whose entry set fits `slots` slots.
pub(super) fn is_possible(name: &str, slots: usize) -> bool {
    let bad = |letter: char| letter < ' ' || "\"*/:<>?\\|\u{7f}".contains(letter);
    let units = name.encode_utf16().count();
    !name.is_empty()
        && !name.starts_with(' ')
        && !name.ends_with([' ', '.'])
        && !name.contains(bad)
        && units <= MAX_UNITS
        && units.div_ceil(UNITS_PER_SLOT) < slots
}

/// Whether a byte can stand in a short name (upper case only).
fn is_short_byte(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"!#$%&'()-@^_`{}~".contains(&byte)
}

/// The name as it is, if it already has the 8.3 form and needs no long companion.
pub(super) fn exact_short(name: &str) -> Option<ShortName> {
    let (base, extension) = name.split_once('.').unwrap_or((name, ""));
    let fits = (1..=8).contains(&base.len())
        && extension.len() <= 3
        && !name.ends_with('.')
        && base.bytes().chain(extension.bytes()).all(is_short_byte);
    fits.then(|| pack(base.as_bytes(), extension.as_bytes()))
}

/// A short alias that none of `taken` is: upper case, what is impossible replaced, `~1` and up before the dot.
pub(super) fn make_short(name: &str, taken: &[ShortName]) -> Option<ShortName> {
    let (base, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let (base, extension) = (shorten(base, 8), shorten(extension, 3));
    (1..1_000_000_u32).find_map(|number| {
        let tail = alloc::format!("~{number}");
        let mut base = base.clone();
        base.truncate(8 - tail.len());
        base.extend_from_slice(tail.as_bytes());
        let short = pack(&base, &extension);
        (!taken.contains(&short)).then_some(short)
    })
}

fn shorten(text: &str, most: usize) -> Vec<u8> {
    let letters = text.chars().filter(|letter| !matches!(letter, ' ' | '.'));
    let bytes = letters.map(|letter| match u8::try_from(letter.to_ascii_uppercase()) {
        Ok(byte) if is_short_byte(byte) => byte,
        _ => b'_',
    });
    bytes.take(most).collect()
}

fn pack(base: &[u8], extension: &[u8]) -> ShortName {
    let mut short = [b' '; 11];
    put(&mut short, 0, base);
    put(&mut short, 8, extension);
    short
}

/// `BOOTX64 EFI` to `BOOTX64.EFI`; `lower` are the flags that Windows NT sets for lower-case halves.
pub(super) fn unpack(short: &[u8], lower: u8) -> String {
    let half = |from: usize, to: usize, lower: bool| {
        let bytes = short.get(from..to).unwrap_or(&[]);
        // A first byte 0x05 stands for 0xE5, which would mean "deleted".
        let letters = bytes.iter().map(|byte| if *byte < 0x80 { char::from(*byte) } else { '_' });
        let text: String = letters.collect();
        let text = text.trim_end_matches(' ');
        if lower { text.to_ascii_lowercase() } else { text.into() }
    };
    let (mut name, extension) = (half(0, 8, lower & 0x08 != 0), half(8, 11, lower & 0x10 != 0));
    if !extension.is_empty() {
        name.push('.');
        name.push_str(&extension);
    }
    name
}

/// Ties the slots of a long name to their short entry.
pub(super) fn checksum(short: &[u8]) -> u8 {
    short.iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte))
}

/// How many slots a name takes.
pub(super) fn slots(name: &str) -> usize {
    if exact_short(name).is_some() { 1 } else { name.encode_utf16().count().div_ceil(UNITS_PER_SLOT) + 1 }
}

/// The slots of a long name, in their order on disk: last piece first.
pub(super) fn long_slots(name: &str, short: &ShortName) -> Vec<u8> {
    let mut units: Vec<u16> = name.encode_utf16().collect();
    let pieces = units.len().div_ceil(UNITS_PER_SLOT);
    // A name that does not fill its last slot is ended by a zero and filled with ones.
    if units.len() < pieces * UNITS_PER_SLOT {
        units.push(0);
        units.resize(pieces * UNITS_PER_SLOT, 0xFFFF);
    }
    let numbered: Vec<_> = (1_u8..).zip(units.chunks(UNITS_PER_SLOT)).collect();
    let mut slots = Vec::new();
    for (number, piece) in numbered.into_iter().rev() {
        let last = if usize::from(number) == pieces { 0x40 } else { 0 };
        let mut slot = vec![0; SLOT_BYTES];
        put(&mut slot, 0, &[number | last]);
        put(&mut slot, 11, &[attribute::LONG_NAME, 0, checksum(short)]);
        for (unit, at) in piece.iter().zip(UNIT_OFFSETS) {
            put(&mut slot, at, &unit.to_le_bytes());
        }
        slots.extend(slot);
    }
    slots
}

/// Where the units of a long name lie within a slot.
pub(super) const UNIT_OFFSETS: [usize; UNITS_PER_SLOT] = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];

/// The slot with the short name and everything else.
pub(super) fn short_slot(short: &ShortName, attributes: u8, cluster: u32, bytes: u32) -> Vec<u8> {
    let mut slot = vec![0; SLOT_BYTES];
    put(&mut slot, 0, short);
    put(&mut slot, 11, &[attributes]);
    // Created, accessed, written.
    for at in [16, 18, 24] {
        put(&mut slot, at, &DATE.to_le_bytes());
    }
    let [low0, low1, high0, high1] = cluster.to_le_bytes();
    put(&mut slot, 20, &[high0, high1]);
    put(&mut slot, 26, &[low0, low1]);
    put(&mut slot, 28, &bytes.to_le_bytes());
    slot
}
