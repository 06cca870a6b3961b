//! Reading one file of the root directory of an ISO 9660 image, under its Rock Ridge, Joliet or plain name.
//!
//! Owns: what counts as a regular file; the bounds of every walk.
//! Does not: enter directories, follow links, unpack zisofs, join files of several extents: each is refused by name.
//! Source: ECMA-119 §8.4 (descriptors), §9.1 (records); Joliet 1995 (escape sequences, UCS-2); IEEE P1281 (SP, CE), IEEE P1282 (PX, NM,
//! SL, CL). Offsets of a descriptor: type 0, escape sequences 88, bytes of a block 128, the root's record 156. Of a record: its
//! length 0, blocks of attributes 1, extent 2, bytes 10, flags 25, interleaving 26, length of the name 32, name 33.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::{DESCRIPTOR_BYTES, DESCRIPTOR_OFFSET};
use crate::field::{array, bytes, le16, le32, u8_at};
use crate::{ReadAt, ReadError};

/// A block; other lengths are allowed, and made by nobody.
const BLOCK_BYTES: u64 = 2048;
/// Most descriptors before the one that ends them.
const MOST_DESCRIPTORS: u64 = 32;
/// Longest root directory that is read: 10,000 names.
const MOST_FOLDER_BYTES: u32 = 1 << 20;
/// Most continuations of one record, and the longest.
const MOST_CONTINUATIONS: usize = 8;
const MOST_CONTINUED_BYTES: u32 = 64 << 10;
/// Bytes of a record before its name.
const RECORD_BYTES: usize = 33;
/// What UCS-2 is announced by.
const JOLIET: [&[u8]; 3] = [b"%/@", b"%/C", b"%/E"];

/// Why a file is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// The image cannot be read.
    Read(ReadError),
    /// It has no primary descriptor, or blocks of another length than 2048.
    NotIso,
    /// A record that contradicts itself.
    Damaged(&'static str),
    /// Nothing has this name.
    NotFound(String),
    /// It is no regular file of one piece.
    NotAFile(String, &'static str),
    /// A file longer than the caller takes, in bytes.
    TooLong(u32),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("iso9660: ")?;
        match self {
            Self::Read(error) => error.fmt(f),
            Self::NotIso => f.write_str("no descriptor of a volume with blocks of 2048 bytes"),
            Self::Damaged(what) => write!(f, "the root directory is damaged: {what}"),
            Self::NotFound(name) => write!(f, "no {name:?}"),
            Self::NotAFile(name, what) => write!(f, "{name:?} is {what}: put a regular file there"),
            Self::TooLong(bytes) => write!(f, "a file of {bytes} bytes is longer than allowed"),
        }
    }
}

impl core::error::Error for Unreadable {}

/// The content of the regular file of this name in the root directory, if it has at most `limit` bytes. Case matters in Rock Ridge
/// names alone.
pub fn read_in_root<R: ReadAt>(mut volume: R, name: &str, limit: u32) -> Result<Vec<u8>, Unreadable> {
    let (plain, joliet) = roots(&mut volume)?;
    let mut found = look_up(&mut volume, plain, name, &plain_name)?;
    if found.is_none()
        && let Some(joliet) = joliet
    {
        found = look_up(&mut volume, joliet, name, &joliet_name)?;
    }
    let extent = found.ok_or_else(|| Unreadable::NotFound(name.to_owned()))?;
    if extent.bytes > limit {
        return Err(Unreadable::TooLong(extent.bytes));
    }
    content(&mut volume, extent)
}

/// Where something lies.
#[derive(Debug, Clone, Copy)]
struct Extent {
    block: u32,
    bytes: u32,
}

impl Extent {
    fn of_record(record: &[u8]) -> Option<Self> {
        let attributes = u32::from(u8_at(record, 1)?);
        Some(Self { block: le32(record, 2)?.checked_add(attributes)?, bytes: le32(record, 10)? })
    }
}

fn content<R: ReadAt>(volume: &mut R, extent: Extent) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = vec![0; usize::try_from(extent.bytes).map_err(|_| Unreadable::TooLong(extent.bytes))?];
    volume.read_at(u64::from(extent.block) * BLOCK_BYTES, &mut bytes).map_err(Unreadable::Read)?;
    Ok(bytes)
}

/// The root directories of the primary descriptor and of Joliet's.
fn roots<R: ReadAt>(volume: &mut R) -> Result<(Extent, Option<Extent>), Unreadable> {
    let (mut plain, mut joliet) = (None, None);
    for number in 0..MOST_DESCRIPTORS {
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        let offset = DESCRIPTOR_OFFSET as u64 + number * BLOCK_BYTES;
        volume.read_at(offset, &mut descriptor).map_err(Unreadable::Read)?;
        if bytes(&descriptor, 1, 5) != Some(b"CD001") {
            break;
        }
        let root = descriptor.get(156..).and_then(Extent::of_record);
        let usable = root.filter(|_| le16(&descriptor, 128).map(u64::from) == Some(BLOCK_BYTES));
        let escapes = bytes(&descriptor, 88, 3).unwrap_or_default();
        match descriptor.first() {
            Some(1) if plain.is_none() => plain = usable,
            Some(2) if joliet.is_none() && JOLIET.contains(&escapes) => joliet = usable,
            Some(255) => break,
            _ => {}
        }
    }
    Ok((plain.ok_or(Unreadable::NotIso)?, joliet))
}

/// The file of a name in a directory; something else of that name is an error.
fn look_up<R: ReadAt>(
    volume: &mut R,
    directory: Extent,
    name: &str,
    shown: &dyn Fn(&[u8]) -> String,
) -> Result<Option<Extent>, Unreadable> {
    if directory.bytes > MOST_FOLDER_BYTES {
        return Err(Unreadable::Damaged("it is longer than 1 MiB"));
    }
    let directory = content(volume, directory)?;
    let mut skip = None;
    // No record lies in two blocks.
    for block in directory.chunks(usize::try_from(BLOCK_BYTES).unwrap_or(1)) {
        let mut rest = block;
        while let Some(length) = rest.first().map(|length| usize::from(*length)).filter(|length| *length > 0)
        {
            let whole = rest.split_at_checked(length);
            let (record, behind) = whole.ok_or(Unreadable::Damaged("a record lies in two blocks"))?;
            rest = behind;
            let (stored, area) = parts(record).ok_or(Unreadable::Damaged("a record is too short"))?;
            // The first record is the directory itself, and says whether there are Rock Ridge names.
            let skip = *skip.get_or_insert_with(|| rock_ridge(area));
            let ridge = match skip {
                Some(skip) => Ridge::read(volume, area.get(skip..).unwrap_or_default())?,
                None => Ridge::default(),
            };
            let is_wanted = match &ridge.name {
                Some(found) => found == name.as_bytes(),
                None => shown(stored).eq_ignore_ascii_case(name),
            };
            if is_wanted {
                return regular(record, &ridge, name).map(Some);
            }
        }
    }
    Ok(None)
}

/// Stored name and system use area of a record.
fn parts(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(u8_at(record, 32)?);
    let name = bytes(record, RECORD_BYTES, length)?;
    let area = RECORD_BYTES + length + usize::from(length.is_multiple_of(2));
    Some((name, record.get(area..).unwrap_or_default()))
}

fn regular(record: &[u8], ridge: &Ridge, name: &str) -> Result<Extent, Unreadable> {
    let refuse = |what| Err(Unreadable::NotAFile(name.to_owned(), what));
    let flags = u8_at(record, 25).unwrap_or(0xFF);
    if let Some(what) = ridge.special {
        return refuse(what);
    }
    match flags {
        flags if flags & 0x02 != 0 => return refuse("a directory"),
        flags if flags & 0x80 != 0 => return refuse("a file in several pieces"),
        flags if flags & 0x04 != 0 => return refuse("an associated file"),
        _ => {}
    }
    if bytes(record, 26, 2) != Some(&[0, 0]) {
        return refuse("an interleaved file");
    }
    Extent::of_record(record).ok_or(Unreadable::Damaged("a record is too short"))
}

/// How many bytes of each area come before its entries; `None`: there are no Rock Ridge names.
fn rock_ridge(area: &[u8]) -> Option<usize> {
    let is_used = bytes(area, 0, 2)? == b"SP" && bytes(area, 4, 2)? == [0xBE, 0xEF];
    is_used.then(|| usize::from(u8_at(area, 6).unwrap_or(0)))
}

/// What Rock Ridge says of a record.
#[derive(Default)]
struct Ridge {
    name: Option<Vec<u8>>,
    /// Why it is no regular file.
    special: Option<&'static str>,
}

impl Ridge {
    fn read<R: ReadAt>(volume: &mut R, area: &[u8]) -> Result<Self, Unreadable> {
        let mut ridge = Self::default();
        let mut next = ridge.entries(area);
        for _ in 0..MOST_CONTINUATIONS {
            let Some((extent, skipped)) = next else { return Ok(ridge) };
            if extent.bytes > MOST_CONTINUED_BYTES {
                return Err(Unreadable::Damaged("a record goes on for more than 64 KiB"));
            }
            let offset = u64::from(extent.block) * BLOCK_BYTES + u64::from(skipped);
            let mut continued = vec![0; usize::try_from(extent.bytes).unwrap_or(0)];
            volume.read_at(offset, &mut continued).map_err(Unreadable::Read)?;
            next = ridge.entries(&continued);
        }
        Err(Unreadable::Damaged("a record goes on for ever"))
    }

    /// Takes the entries of an area; where it goes on, and how many bytes into that block.
    fn entries(&mut self, area: &[u8]) -> Option<(Extent, u32)> {
        let (mut rest, mut next) = (area, None);
        while let Some([first, second, length, ..]) = rest.first_chunk::<4>() {
            let whole = rest.split_at_checked(usize::from(*length)).filter(|_| *length >= 4);
            let Some((entry, behind)) = whole else { break };
            rest = behind;
            match [*first, *second] {
                // Flags 2 and 4 are `.` and `..`.
                [b'N', b'M'] if u8_at(entry, 4).is_some_and(|flags| flags & 0x06 == 0) => {
                    self.name.get_or_insert_default().extend(entry.get(5..).unwrap_or_default());
                }
                [b'S', b'L'] => self.special = Some("a symbolic link"),
                [b'C', b'L'] => self.special = Some("a directory that lies elsewhere"),
                [b'Z', b'F'] => self.special = Some("a file that is packed (zisofs)"),
                [b'P', b'X'] => {
                    // S_IFMT and S_IFREG of stat.h.
                    let is_file = le32(entry, 4).is_some_and(|mode| mode & 0o170_000 == 0o100_000);
                    self.special = self.special.or((!is_file).then_some("no regular file"));
                }
                [b'C', b'E'] => {
                    let place = le32(entry, 4).zip(le32(entry, 12)).zip(le32(entry, 20));
                    next = place.map(|((block, skipped), bytes)| (Extent { block, bytes }, skipped));
                }
                [b'S', b'T'] => break,
                _ => {}
            }
        }
        next
    }
}

/// `CONFIG.YAM;1` without its version, as the kernel shows it.
fn plain_name(stored: &[u8]) -> String {
    let text = String::from_utf8_lossy(stored);
    let text = text.split(';').next().unwrap_or_default();
    text.strip_suffix('.').unwrap_or(text).to_owned()
}

fn joliet_name(stored: &[u8]) -> String {
    let units = stored.chunks_exact(2).filter_map(|unit| array(unit, 0)).map(u16::from_be_bytes);
    let letters = char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER));
    let text: String = letters.collect();
    text.split(';').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
