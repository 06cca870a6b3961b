//! Partition tables by their magic.
//!
//! Does not: read them: [`crate::gpt`] does.
//! Source: UEFI specification 2.10 §5; names as libblkid 2.38 has them (`PTTYPE`); kernel block/partitions/*.c.

use super::ends::Finder;
use super::pieces::Pieces;

pub(super) const TABLES: &[(&str, Finder)] = &[
    ("gpt", gpt),
    ("dos", dos),
    ("mac", |on| (on.has(0, b"ER") && (on.has(512, b"PM") || on.has(2048, b"PM"))).then_some(0)),
    ("sun", sun),
    ("sgi", |on| on.has(0, b"\x0b\xe5\xa9\x41").then_some(0)),
    ("bsd", |on| [0x200, 0x40, 0x80].into_iter().find(|at| on.has(*at, b"\x57\x45\x56\x82"))),
    ("aix", |on| on.has(0, b"\xc9\xc2\xd4\xc1").then_some(0)),
];

/// In the second sector, or the last, of 512 or 4096 bytes.
fn gpt(on: &Pieces) -> Option<u64> {
    let last = |sector: u64| (on.bytes / sector).checked_sub(1).map(|number| number * sector);
    let places = [Some(512), Some(4096), last(512), last(4096)];
    places.into_iter().flatten().find(|at| on.has(*at, b"EFI PART"))
}

/// Four entries of 16 bytes from 446, of which one has a type; status 0 or 0x80 in each. A boot sector of a file system
/// has code there.
fn dos(on: &Pieces) -> Option<u64> {
    let entries = on.bytes(446, 64)?.chunks_exact(16);
    let all_sane = entries.clone().all(|entry| matches!(entry.first(), Some(0 | 0x80)));
    let used = |entry: &[u8]| entry.get(4).is_some_and(|kind| *kind != 0);
    (on.has(510, b"\x55\xaa") && all_sane && entries.into_iter().any(used)).then_some(510)
}

/// Magic at 508; all words of the sector make zero.
fn sun(on: &Pieces) -> Option<u64> {
    let words = on.bytes(0, 512)?.chunks_exact(2);
    let sum = words.fold(0_u16, |sum, word| sum ^ word.try_into().map_or(0, u16::from_be_bytes));
    (on.has(508, b"\xda\xbe") && sum == 0).then_some(508)
}
