//! META: a small key-value area that outlives upgrades and resets.
//!
//! Owns: two copies of one block of tagged values, which copy counts, and the order of writes that always leaves
//! one of them whole.
//! Does not: the meaning of a value; the rest of the partition (the flight recorder from 512 KiB on, syslinux'
//! older area in the last KiB).
//! Fails by: taking the second copy when the first is damaged, and saying so in [`Found::faults`].
//! Source: docs/formats/meta.md. All integers are big-endian.

pub mod intents;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::field::{be32, bytes, put};
use crate::{Digest, Extent, ReadAt, ReadError, Step};

/// Length of the partition in bytes.
pub const PARTITION_BYTES: u64 = 1 << 20;

/// Length of one copy in bytes; the second follows the first.
pub const COPY_BYTES: u64 = 256 << 10;

/// Tags that have a meaning.
pub mod tags {
    /// Slot or image that an upgrade falls back to.
    pub const UPGRADE_FALLBACK: u32 = 6;
    /// Image of a staged upgrade.
    pub const STAGED_UPGRADE_IMAGE: u32 = 7;
    /// Options of a staged upgrade, JSON.
    pub const STAGED_UPGRADE_OPTIONS: u32 = 8;
    /// How STATE is encrypted, JSON.
    pub const STATE_ENCRYPTION: u32 = 9;
    /// Network settings of a bare machine, YAML.
    pub const METAL_NETWORK: u32 = 10;
    /// The value of `${code}` in the address of a config.
    pub const DOWNLOAD_CODE: u32 = 11;
    /// The first of three tags that are the user's.
    pub const USER_1: u32 = 12;
    /// The second.
    pub const USER_2: u32 = 13;
    /// The third.
    pub const USER_3: u32 = 14;
    /// The machine's UUID in place of the firmware's.
    pub const UUID_OVERRIDE: u32 = 15;
    /// A token that only this machine has.
    pub const MACHINE_TOKEN: u32 = 16;
    /// Boot loader of a disk image.
    pub const BOOT_LOADER: u32 = 17;
}

// Layout of a copy: magic (u32 at 0), records from 4, SHA-256 of the copy with this field zero (32 bytes at
// 262108), second magic (u32 at 262140). A record is tag (u32), length (u32), bytes; tag 0 ends the list.
const COPY_LEN: usize = 256 << 10;
const RECORDS: usize = 4;
const CHECKSUM: usize = 262_108;
const END_MAGIC: usize = 262_140;
const MAGICS: (u32, u32) = (0x5A4B_3C2D, 0xA5B4_C3D2);
/// Bytes of tag and length.
const RECORD_HEAD: usize = 8;
/// What the reference keeps free: the two magics, the end tag and its length field, four bytes more.
const RESERVED: usize = 20;

/// The values by their tags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    values: BTreeMap<u32, Vec<u8>>,
}

/// What a read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The values that count. Empty when neither copy is valid, as in a new partition.
    pub meta: Meta,
    /// What is wrong with either copy.
    pub faults: [Option<Error>; 2],
    /// The second copy says the same as the first.
    agree: bool,
}

/// Why a copy does not count or a value does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A read failed.
    Read(ReadError),
    /// A magic number is wrong: what is there, what should be.
    Magic(u32, u32),
    /// The checksum that is stored is not that of the content.
    Checksum,
    /// A value reaches beyond the records' area.
    Beyond {
        /// Its tag.
        tag: u32,
        /// The length it claims, in bytes.
        length: u32,
    },
    /// Tag 0 ends the list and can hold nothing.
    EndTag,
    /// With the new value the area would be longer than it is, by so many bytes.
    Overflow(usize),
}

impl Meta {
    /// The value of a tag.
    #[must_use]
    pub fn get(&self, tag: u32) -> Option<&[u8]> {
        self.values.get(&tag).map(Vec::as_slice)
    }

    /// All tags and values, by tag.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.values.iter().map(|(tag, value)| (*tag, value.as_slice()))
    }

    /// Sets a tag; nothing changes when the value does not fit.
    pub fn set(&mut self, tag: u32, value: &[u8]) -> Result<(), Error> {
        if tag == 0 {
            return Err(Error::EndTag);
        }
        let others = self.iter().filter(|(other, _)| *other != tag).map(|(_, value)| value.len());
        let used = others
            .chain([value.len()])
            .fold(RESERVED, |used, length| used.saturating_add(length).saturating_add(RECORD_HEAD));
        match used.checked_sub(CHECKSUM - RECORDS) {
            Some(over) if over > 0 => return Err(Error::Overflow(over)),
            _ => {}
        }
        self.values.insert(tag, value.to_vec());
        Ok(())
    }

    /// Removes a tag; says whether it was there.
    pub fn remove(&mut self, tag: u32) -> bool {
        self.values.remove(&tag).is_some()
    }

    /// One copy as bytes.
    fn copy(&self) -> Vec<u8> {
        let mut copy = vec![0; COPY_LEN];
        put(&mut copy, 0, &MAGICS.0.to_be_bytes());
        let mut at = RECORDS;
        for (tag, value) in self.iter() {
            put(&mut copy, at, &tag.to_be_bytes());
            // `set` and `parse` let no value in that is longer than a copy.
            put(&mut copy, at + 4, &u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
            put(&mut copy, at + RECORD_HEAD, value);
            at += RECORD_HEAD + value.len();
        }
        put(&mut copy, END_MAGIC, &MAGICS.1.to_be_bytes());
        let checksum = Digest::sha256(&[&copy]);
        put(&mut copy, CHECKSUM, checksum.as_bytes());
        copy
    }

    fn parse(copy: &[u8]) -> Result<Self, Error> {
        for (at, magic) in [(0, MAGICS.0), (END_MAGIC, MAGICS.1)] {
            match be32(copy, at).unwrap_or(0) {
                found if found == magic => {}
                found => return Err(Error::Magic(found, magic)),
            }
        }
        let (before, after) = (bytes(copy, 0, CHECKSUM), bytes(copy, END_MAGIC, 4));
        let checksum = Digest::sha256(&[before.unwrap_or(&[]), &[0; 32], after.unwrap_or(&[])]);
        if bytes(copy, CHECKSUM, 32) != Some(checksum.as_bytes()) {
            return Err(Error::Checksum);
        }
        Self::records(bytes(copy, RECORDS, CHECKSUM - RECORDS).unwrap_or(&[]))
    }

    fn records(area: &[u8]) -> Result<Self, Error> {
        let mut values = BTreeMap::new();
        let mut at = 0;
        while let Some(tag) = be32(area, at).filter(|tag| *tag != 0) {
            let length = be32(area, at + 4).unwrap_or(u32::MAX);
            let value = usize::try_from(length).ok().and_then(|length| bytes(area, at + RECORD_HEAD, length));
            let value = value.ok_or(Error::Beyond { tag, length })?;
            values.insert(tag, value.to_vec());
            at += RECORD_HEAD + value.len();
        }
        Ok(Self { values })
    }
}

/// Reads both copies; `partition` begins where META begins.
pub fn read(partition: &mut impl ReadAt) -> Found {
    let mut copy_at = |offset| {
        let mut copy = vec![0; COPY_LEN];
        partition.read_at(offset, &mut copy).map_err(Error::Read)?;
        Meta::parse(&copy)
    };
    let (first, second) = (copy_at(0), copy_at(COPY_BYTES));
    let agree = first == second;
    let faults = [first.as_ref().err().cloned(), second.as_ref().err().cloned()];
    Found { meta: first.or(second).unwrap_or_default(), faults, agree }
}

impl Found {
    /// The steps from what was found to `new`.
    ///
    /// First copy, then second. When the second is not what the first is, it is mended before: a cut in the first
    /// step would otherwise find no whole copy.
    #[must_use]
    pub fn change_to(&self, new: &Meta) -> Vec<Step<'static>> {
        let mut steps = Vec::new();
        if !self.agree {
            steps.push(vec![Extent::new(COPY_BYTES, self.meta.copy())]);
        }
        let copy = new.copy();
        steps.push(vec![Extent::new(0, copy.clone())]);
        steps.push(vec![Extent::new(COPY_BYTES, copy)]);
        steps
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Magic(found, magic) => write!(f, "adv: unexpected magic {found:x}, expecting {magic:x}"),
            Self::Checksum => f.write_str("adv: checksum mismatch"),
            Self::Beyond { tag, length } => {
                write!(f, "adv: value goes beyond the end of the buffer: tag {tag}, size {length}")
            }
            Self::EndTag => f.write_str("adv: tag 0 ends the list, it holds no value"),
            Self::Overflow(over) => write!(f, "adv: overflow {over} bytes"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
