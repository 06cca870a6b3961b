//! The GUID partition table.
//!
//! Owns: reading and writing protective MBR, both headers and both entry arrays, for 512- and 4096-byte sectors.
//! Does not: make up GUIDs, decide sizes, talk to the kernel about partitions.
//! Fails by: taking the backup when the primary is damaged, and saying so in [`Found::primary_fault`].
//! Source: UEFI specification 2.10, chapter 5.

mod guid;
mod layout;
mod read;
mod write;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::ReadError;

pub use guid::{Guid, types};
pub use layout::{ALIGNMENT_BYTES, Request, Size, lay_out};
pub use read::{Copy, Found, read, read_stated};

/// Bytes of one entry. Others are allowed by the standard and read, this is what is written.
const ENTRY_BYTES: u32 = 128;

/// Entries that are written: 16 KiB, what every tool expects.
const ENTRIES: u32 = 128;

/// UTF-16 units in a partition's name.
const NAME_UNITS: usize = 36;

/// Attribute bits of an entry.
pub mod attributes {
    /// Firmware must not delete it.
    pub const REQUIRED: u64 = 1;
    /// A BIOS boot loader may start here.
    pub const LEGACY_BOOTABLE: u64 = 1 << 2;
    /// The content is not to be written.
    pub const READ_ONLY: u64 = 1 << 60;
    /// Not to be mounted by a desktop or a generator of mount units.
    pub const NO_AUTO: u64 = 1 << 63;
}

/// The sizes that give every number in a table its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// 512 or 4096.
    pub sector_bytes: u32,
    /// Whole sectors of the disk.
    pub sectors: u64,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Place in the entry array, from 1, as in `vda1`.
    pub number: u32,
    /// What it is for.
    pub type_guid: Guid,
    /// Its own GUID, the `PARTUUID`.
    pub guid: Guid,
    /// First sector.
    pub first_lba: u64,
    /// Last sector, included.
    pub last_lba: u64,
    /// See [`attributes`].
    pub attributes: u64,
    /// Its name, at most 36 UTF-16 units.
    pub name: String,
}

/// A whole table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The disk it is on.
    pub geometry: Geometry,
    /// The disk's GUID.
    pub disk_guid: Guid,
    /// Sorted by number.
    pub partitions: Vec<Partition>,
}

/// Why a table cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Sectors of this many bytes.
    SectorSize(u32),
    /// The disk has no room for a table.
    DiskTooSmall,
    /// A read failed.
    Read(ReadError),
    /// No `EFI PART` here.
    NoSignature,
    /// A header of another revision or length.
    Header,
    /// The header's checksum is wrong.
    HeaderChecksum,
    /// The header says that it lies elsewhere: the table was made for another sector size or disk.
    Misplaced,
    /// Number or size of the entries is beyond what is read.
    Entries,
    /// The entries' checksum is wrong.
    EntriesChecksum,
    /// A partition lies outside the usable sectors or ends before it starts.
    Range(u32),
    /// Two partitions share a sector.
    Overlap(u32, u32),
    /// A partition's number is 0, too high or used twice.
    Number(u32),
    /// A partition's name is longer than 36 UTF-16 units.
    Name(u32),
    /// Two of these partitions have this GUID.
    DuplicateGuid(Guid),
    /// Partitions ask for more than the disk has; the first that does not fit.
    Full(String),
    /// Both copies are bad.
    BothBad {
        /// What is wrong with the primary.
        primary: alloc::boxed::Box<Error>,
        /// What is wrong with the backup.
        backup: alloc::boxed::Box<Error>,
    },
}

impl Geometry {
    /// The geometry of a disk of this many bytes.
    pub fn new(sector_bytes: u32, disk_bytes: u64) -> Result<Self, Error> {
        if !matches!(sector_bytes, 512 | 4096) {
            return Err(Error::SectorSize(sector_bytes));
        }
        let geometry = Self { sector_bytes, sectors: disk_bytes / u64::from(sector_bytes) };
        if geometry.sectors < 2 * geometry.first_usable() {
            return Err(Error::DiskTooSmall);
        }
        Ok(geometry)
    }

    /// Sectors of an entry array of the size that is written.
    fn entry_sectors(self) -> u64 {
        u64::from(ENTRIES * ENTRY_BYTES).div_ceil(u64::from(self.sector_bytes))
    }

    /// First sector that a partition may take: behind MBR, header and entries.
    #[must_use]
    pub fn first_usable(self) -> u64 {
        2 + self.entry_sectors()
    }

    /// Last sector that a partition may take: before the backup entries and header.
    #[must_use]
    pub fn last_usable(self) -> u64 {
        self.sectors.saturating_sub(self.first_usable())
    }

    fn last_lba(self) -> u64 {
        self.sectors.saturating_sub(1)
    }

    /// A sector's place in bytes.
    fn offset(self, lba: u64) -> u64 {
        lba.saturating_mul(u64::from(self.sector_bytes))
    }
}

impl Partition {
    /// How many sectors it has.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.last_lba.saturating_sub(self.first_lba).saturating_add(1)
    }
}

impl Table {
    /// The partition of this name, if there is exactly one.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Partition> {
        let mut named = self.partitions.iter().filter(|partition| partition.name == name);
        named.next().filter(|_| named.next().is_none())
    }

    /// The partition with this GUID.
    #[must_use]
    pub fn by_guid(&self, guid: Guid) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.guid == guid)
    }

    /// Where a partition starts, in bytes.
    #[must_use]
    pub fn offset_bytes(&self, partition: &Partition) -> u64 {
        self.geometry.offset(partition.first_lba)
    }

    /// How long a partition is, in bytes.
    #[must_use]
    pub fn size_bytes(&self, partition: &Partition) -> u64 {
        self.geometry.offset(partition.sectors())
    }

    /// Checks that every partition lies inside the disk, alone, under a number and GUID of its own.
    pub fn check(&self) -> Result<(), Error> {
        let (first, last) = (self.geometry.first_usable(), self.geometry.last_usable());
        self.check_within(first, last)
    }

    fn check_within(&self, first: u64, last: u64) -> Result<(), Error> {
        for partition in &self.partitions {
            let number = partition.number;
            if partition.first_lba < first
                || partition.last_lba > last
                || partition.last_lba < partition.first_lba
            {
                return Err(Error::Range(number));
            }
            if partition.name.encode_utf16().count() > NAME_UNITS {
                return Err(Error::Name(number));
            }
        }
        self.check_pairs()
    }

    fn check_pairs(&self) -> Result<(), Error> {
        for (index, a) in self.partitions.iter().enumerate() {
            for b in self.partitions.iter().skip(index + 1) {
                if a.number == b.number {
                    return Err(Error::Number(a.number));
                }
                if a.first_lba <= b.last_lba && b.first_lba <= a.last_lba {
                    return Err(Error::Overlap(a.number, b.number));
                }
                if a.guid == b.guid {
                    return Err(Error::DuplicateGuid(a.guid));
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("partition table: ")?;
        match self {
            Self::SectorSize(bytes) => write!(f, "sectors of {bytes} bytes are not supported"),
            Self::DiskTooSmall => f.write_str("the disk has no room for one"),
            Self::Read(error) => error.fmt(f),
            Self::NoSignature => f.write_str("no GPT signature"),
            Self::Header => f.write_str("unknown header revision or length"),
            Self::HeaderChecksum => f.write_str("wrong header checksum"),
            Self::Misplaced => f.write_str("made for another sector size or disk"),
            Self::Entries => f.write_str("number or size of entries out of range"),
            Self::EntriesChecksum => f.write_str("wrong checksum of entries"),
            Self::Range(number) => write!(f, "partition {number} lies outside the usable sectors"),
            Self::Overlap(a, b) => write!(f, "partitions {a} and {b} overlap"),
            Self::Number(number) => write!(f, "partition number {number} is out of range or used twice"),
            Self::Name(number) => write!(f, "name of partition {number} is longer than 36 characters"),
            Self::DuplicateGuid(guid) => write!(f, "two partitions have the GUID {guid}"),
            Self::Full(name) => write!(f, "no room on the disk for partition {name}"),
            Self::BothBad { primary, backup } => write!(f, "primary: {primary}; backup: {backup}"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
