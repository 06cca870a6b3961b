//! FAT32 volumes: the EFI system partition and config volumes; single files of smaller FATs.
//!
//! Owns: formatting a volume together with its files, reading one back, adding, renaming and removing single files,
//! telling a volume's label and identifier.
//! Does not: write FAT12 or FAT16, make directories on a volume that is there.
//! Order: every directory entry set lies within one sector, so that a device writes it whole or not at all.
//! Source: Microsoft "FAT: General Overview of On-Disk Format" 1.03; kernel fs/fat.

mod edit;
mod geometry;
mod identify;
mod name;
mod read;
mod small;
mod table;
mod write;

use alloc::string::String;
use core::fmt;

use crate::ReadError;

pub use identify::{Identity, identify};
pub use read::{DirEntry, Reader};
pub use small::read_in_root;
pub use write::{File, Volume, format};

/// Bytes of a directory entry.
const SLOT_BYTES: usize = 32;

/// The number of the cluster that the first data byte belongs to.
const FIRST_CLUSTER: u32 = 2;

/// Fewer clusters make a volume FAT16, more than the upper limit do not fit an entry's 28 bits.
const CLUSTERS: core::ops::Range<u64> = 65525..0x0FFF_FFF5;

/// Entries at or above mark the end of a chain.
const CHAIN_END: u32 = 0x0FFF_FFF8;

/// The bits of an entry that count.
const ENTRY_MASK: u32 = 0x0FFF_FFFF;

/// Most bytes of a directory (the standard's 65536 entries).
const MAX_DIR_BYTES: usize = 65536 * SLOT_BYTES;

/// Most directories on the way to a file.
const MAX_DEPTH: usize = 64;

/// Bits of an entry's attribute byte.
mod attribute {
    pub(super) const VOLUME_LABEL: u8 = 0x08;
    pub(super) const DIR: u8 = 0x10;
    pub(super) const ARCHIVE: u8 = 0x20;
    pub(super) const LONG_NAME: u8 = 0x0F;
}

/// Why a volume cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A sector size that is not 512, 1024, 2048 or 4096.
    SectorSize(u32),
    /// Too few or too many clusters for FAT32 in a volume of this many bytes.
    VolumeSize(u64),
    /// A label that is empty, longer than 11 or holds a letter that labels cannot.
    Label(String),
    /// A path with an empty or impossible part, too deep, or with a name too long for one sector of entries.
    Path(String),
    /// Two paths that are one on a file system without case, or a file that is also a directory.
    Conflict(String),
    /// A directory with more than 65536 entries.
    DirFull(String),
    /// The files do not fit; how many bytes the volume has for them.
    Full(u64),
    /// A file of 4 GiB or more.
    TooLarge(String),
    /// A read failed.
    Read(ReadError),
    /// Not a FAT32 boot sector.
    NotFat32,
    /// A chain of clusters leaves the volume, is too short or runs in a circle.
    BadChain(u32),
    /// Nothing has this path.
    NotFound(String),
    /// A file where a directory is needed or the other way round.
    WrongKind(String),
    /// A file longer than the caller takes, in bytes.
    TooLong(u64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fat32: ")?;
        match self {
            Self::SectorSize(bytes) => write!(f, "sectors of {bytes} bytes are not supported"),
            Self::VolumeSize(bytes) => write!(f, "a volume of {bytes} bytes is too small or too large"),
            Self::Label(label) => write!(f, "{label:?} cannot be a volume label"),
            Self::Path(path) => write!(f, "{path:?} cannot be a path"),
            Self::Conflict(path) => write!(f, "{path:?} is there twice but for its case or kind"),
            Self::DirFull(path) => write!(f, "too many entries in {path:?}"),
            Self::Full(bytes) => write!(f, "the files do not fit the volume's {bytes} bytes"),
            Self::TooLarge(path) => write!(f, "{path:?} has 4 GiB or more"),
            Self::Read(error) => error.fmt(f),
            Self::NotFat32 => f.write_str("no FAT32 boot sector"),
            Self::BadChain(cluster) => write!(f, "the chain from cluster {cluster} is damaged"),
            Self::NotFound(path) => write!(f, "no {path:?}"),
            Self::WrongKind(path) => write!(f, "{path:?} is a directory where a file is wanted, or a file"),
            Self::TooLong(bytes) => write!(f, "a file of {bytes} bytes is longer than allowed"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
