//! What lies on a volume.
//!
//! | part | owns |
//! |---|---|
//! | this file | the few formats that are used here, with label and identifier, by a volume's first bytes |
//! | `survey` | every signature of a device, and whether they contradict each other |
//! | `known`, `ends`, `tables` | names, places and magics of all formats that libblkid 2.38 knows |
//! | `check` | what a weak magic needs besides |
//! | `pieces` | what is read of a device |
//! | `essential` | where a volume keeps what makes it readable |
//!
//! Does not: check more than what tells one format from another; mounting does that.
//! Fails by: `None` or [`Verdict::Unknown`] for anything it does not know; a caller must not take that for "empty".
//! Source: the kernel's uapi headers and fs/*/ for the offsets given beside each reader.

mod check;
mod ends;
mod essential;
mod known;
mod pieces;
mod survey;
mod tables;

use alloc::format;
use alloc::string::String;
use core::fmt;

pub use essential::essentials;
pub use pieces::ranges;
pub use survey::{Extent, Signature, Survey, Verdict, survey};

use crate::field::{array, be16, bytes, le32};
use crate::{fat, iso9660, squashfs};

/// How much from a volume's start [`probe`] wants to see: past btrfs's superblock at 64 KiB.
pub const PROBE_BYTES: usize = 70 * 1024;

/// What was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// squashfs 4.0.
    Squashfs,
    /// ISO 9660.
    Iso9660,
    /// FAT12, FAT16 or FAT32.
    Vfat,
    /// XFS.
    Xfs,
    /// ext2, ext3 or ext4.
    Ext4,
    /// btrfs.
    Btrfs,
    /// LUKS version 1.
    Luks1,
    /// LUKS version 2.
    Luks2,
    /// A swap area.
    Swap,
}

impl Kind {
    /// The name that `blkid` prints and mount(2) takes, where it can be mounted.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Squashfs => "squashfs",
            Self::Iso9660 => "iso9660",
            Self::Vfat => "vfat",
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
            Self::Btrfs => "btrfs",
            Self::Luks1 | Self::Luks2 => "crypto_LUKS",
            Self::Swap => "swap",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A recognised volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filesystem {
    /// What it is.
    pub kind: Kind,
    /// Its label; empty when it has none.
    pub label: String,
    /// Its identifier as `blkid` writes it; empty when it has none.
    pub uuid: String,
}

type Reader = fn(&[u8]) -> Option<Filesystem>;

/// ISO 9660 before FAT: a hybrid image has boot code that could pass for a FAT boot sector.
const READERS: [Reader; 8] = [luks, squashfs_image, xfs, iso, ext, btrfs, swap, vfat];

/// Recognises a volume by its first bytes, at best [`PROBE_BYTES`] of them; fewer hide what lies further on.
#[must_use]
pub fn probe(start: &[u8]) -> Option<Filesystem> {
    READERS.iter().find_map(|reader| reader(start))
}

fn squashfs_image(start: &[u8]) -> Option<Filesystem> {
    squashfs::Superblock::parse(start).ok()?;
    Some(Filesystem { kind: Kind::Squashfs, label: String::new(), uuid: String::new() })
}

fn iso(start: &[u8]) -> Option<Filesystem> {
    let volume = iso9660::parse(start)?;
    Some(Filesystem { kind: Kind::Iso9660, label: volume.label, uuid: volume.uuid })
}

fn vfat(start: &[u8]) -> Option<Filesystem> {
    let identity = fat::identify(start)?;
    let uuid = format!("{:04X}-{:04X}", identity.volume_id >> 16, identity.volume_id & 0xffff);
    Some(Filesystem { kind: Kind::Vfat, label: identity.label, uuid })
}

/// Magic at 0, UUID at 32, label at 108 (12 bytes).
fn xfs(start: &[u8]) -> Option<Filesystem> {
    magic(start, 0, b"XFSB")?;
    Some(Filesystem { kind: Kind::Xfs, label: text(start, 108, 12)?, uuid: uuid(start, 32)? })
}

/// Superblock at 1024: magic at 56, UUID at 104, label at 120 (16 bytes).
fn ext(start: &[u8]) -> Option<Filesystem> {
    magic(start, 1024 + 56, &[0x53, 0xef])?;
    // Two bytes are a weak sign: the block size must make sense too.
    le32(start, 1024 + 24).filter(|log_block_size| *log_block_size <= 6)?;
    Some(Filesystem { kind: Kind::Ext4, label: text(start, 1024 + 120, 16)?, uuid: uuid(start, 1024 + 104)? })
}

/// Superblock at 64 KiB: UUID at 32, magic at 64, label at 299 (256 bytes).
fn btrfs(start: &[u8]) -> Option<Filesystem> {
    const AT: usize = 64 * 1024;
    magic(start, AT + 64, b"_BHRfS_M")?;
    Some(Filesystem { kind: Kind::Btrfs, label: text(start, AT + 299, 256)?, uuid: uuid(start, AT + 32)? })
}

/// Magic at 0, version at 6 (big-endian), UUID as text at 168 (40 bytes); version 2: label at 24 (48 bytes).
fn luks(start: &[u8]) -> Option<Filesystem> {
    magic(start, 0, b"LUKS\xba\xbe")?;
    let uuid = text(start, 168, 40)?;
    match be16(start, 6)? {
        1 => Some(Filesystem { kind: Kind::Luks1, label: String::new(), uuid }),
        2 => Some(Filesystem { kind: Kind::Luks2, label: text(start, 24, 48)?, uuid }),
        _ => None,
    }
}

/// Magic in the last ten bytes of the first page (4, 16 or 64 KiB); UUID at 1036, label at 1052 (16 bytes).
fn swap(start: &[u8]) -> Option<Filesystem> {
    let pages = [4096, 16384, 65536];
    pages.iter().find_map(|page| magic(start, page - 10, b"SWAPSPACE2"))?;
    Some(Filesystem { kind: Kind::Swap, label: text(start, 1052, 16)?, uuid: uuid(start, 1036)? })
}

fn magic(start: &[u8], offset: usize, wanted: &[u8]) -> Option<()> {
    (bytes(start, offset, wanted.len())? == wanted).then_some(())
}

/// Text up to a zero byte.
fn text(start: &[u8], offset: usize, width: usize) -> Option<String> {
    let field = bytes(start, offset, width)?;
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(width);
    Some(String::from_utf8_lossy(field.get(..end)?).into_owned())
}

/// A UUID in its own byte order; all zeros are none.
fn uuid(start: &[u8], offset: usize) -> Option<String> {
    let bytes: [u8; 16] = array(start, offset)?;
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    if bytes == [0; 16] {
        return Some(String::new());
    }
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    Some(format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)))
}

#[cfg(test)]
mod survey_tests;
#[cfg(test)]
mod tests;
