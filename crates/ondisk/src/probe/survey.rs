//! Every signature of a device, and what they say together.
//!
//! Owns: [`Survey`]; which signatures belong to one format, and which two contradict each other.
//! Does not: write, or say whether a volume is whole.
//! Order: what a superblock is made of (a boot sector of NTFS, a hybrid image) is one signature; of what is left, two
//! are somebody's data whose kind is not known.
//! Source: libblkid 2.38 for names; `blkid -p` prints one of several, or exits with 8 ("ambivalent").

use alloc::vec::Vec;
use core::fmt;

use super::ends::{ENDS, WHOLE_DISK_ENDS};
use super::known::{CONTAINERS, FILE_SYSTEMS, Known, WHOLE_DISKS};
use super::pieces::Pieces;
use super::tables::TABLES;
use super::{Filesystem, PROBE_BYTES, check, probe};
use crate::{ReadAt, ReadError};

/// A magic that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// The format, as `blkid` calls it (`TYPE`, for partition tables `PTTYPE`).
    pub name: &'static str,
    /// Where the magic lies, in bytes from the start.
    pub offset: u64,
    /// Whether it is a partition table.
    pub is_table: bool,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_table { "partition table " } else { "" };
        write!(f, "{what}{} at byte {}", self.name, self.offset)
    }
}

/// What is surveyed: BIOS RAIDs and partition tables are looked for on disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A whole disk.
    Disk,
    /// A partition, or a mapping.
    Partition,
}

/// What the signatures say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<'s> {
    /// Nothing that is known. It may be anything.
    Unknown,
    /// One format.
    One(&'s Signature),
    /// Formats of which only one can be the real one.
    Several(&'s [Signature]),
}

impl fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("nothing that is known"),
            Self::One(one) => one.fmt(f),
            Self::Several(several) => {
                for (number, one) in several.iter().enumerate() {
                    let between = if number == 0 { "" } else { " and " };
                    write!(f, "{between}{one}")?;
                }
                f.write_str(" at once")
            }
        }
    }
}

/// What the ends of a device hold.
#[derive(Debug, Clone)]
pub struct Survey {
    pieces: Pieces,
    found: Vec<Signature>,
}

/// Reads the parts of a device that signatures lie in ([`super::ranges`]), and looks for all of them.
pub fn survey(device: &mut dyn ReadAt, device_bytes: u64, extent: Extent) -> Result<Survey, ReadError> {
    let pieces = Pieces::read(device, device_bytes)?;
    let mut found = signatures(&pieces, extent);
    belong_together(&mut found);
    Ok(Survey { pieces, found })
}

impl Survey {
    /// What the signatures say.
    #[must_use]
    pub fn verdict(&self) -> Verdict<'_> {
        match self.found.as_slice() {
            [] => Verdict::Unknown,
            [one] => Verdict::One(one),
            several => Verdict::Several(several),
        }
    }

    /// All signatures, containers first.
    #[must_use]
    pub fn signatures(&self) -> &[Signature] {
        &self.found
    }

    /// Label and identifier, where [`probe`] knows the format.
    #[must_use]
    pub fn filesystem(&self) -> Option<Filesystem> {
        probe(self.pieces.start(PROBE_BYTES))
    }

    /// Whether nothing but zeros was read.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.pieces.first_byte().is_none()
    }

    /// Leaves out what lies in the data of the XFS or ext4 at the start: whoever may write files there can write any magic
    /// at any place that a file can reach. The first 32 KiB are the file system's own, and what lies behind its end is
    /// not its data: of a member of a RAID the file system ends before the superblock.
    #[must_use]
    pub fn without_data_of_files(mut self) -> Self {
        const OWN_BYTES: u64 = 32 << 10;
        let Some(end) = self.filesystem_bytes() else { return self };
        self.found.retain(|one| one.offset < OWN_BYTES || one.offset >= end);
        self
    }

    /// Length of the file system at the start, as its superblock says.
    fn filesystem_bytes(&self) -> Option<u64> {
        let on = &self.pieces;
        match self.found.iter().find(|one| matches!(one.name, "xfs" | "ext2" | "ext3" | "ext4"))?.name {
            // Bytes of a block at 4, blocks at 8.
            "xfs" => on.be64(8)?.checked_mul(u64::from(on.be32(4)?)),
            // Blocks at 4; their size at 24.
            _ => u64::from(on.le32(1024 + 4)?).checked_mul(1024_u64.checked_shl(on.le32(1024 + 24)?)?),
        }
    }
}

fn signatures(on: &Pieces, extent: Extent) -> Vec<Signature> {
    let mut found: Vec<Signature> = Vec::new();
    let mut add = |name: &'static str, offset, is_table| {
        if !found.iter().any(|one| one.name == name) {
            found.push(Signature { name, offset, is_table });
        }
    };
    let is_disk = extent == Extent::Disk;
    ENDS.iter().for_each(|(name, finder)| finder(on).into_iter().for_each(|at| add(name, at, false)));
    if is_disk {
        for (name, finder) in WHOLE_DISK_ENDS {
            finder(on).into_iter().for_each(|at| add(name, at, false));
        }
    }
    let tables = [CONTAINERS, if is_disk { WHOLE_DISKS } else { &[] }, FILE_SYSTEMS];
    for known in tables.into_iter().flatten() {
        place(on, known).into_iter().for_each(|at| add(known.name, at, false));
    }
    for (name, finder) in [
        ("vfat", check::vfat as fn(&Pieces) -> Option<u64>),
        ("udf", check::udf),
        ("xfs_external_log", check::xfs_log),
    ] {
        finder(on).into_iter().for_each(|at| add(name, at, false));
    }
    if is_disk {
        TABLES.iter().for_each(|(name, finder)| finder(on).into_iter().for_each(|at| add(name, at, true)));
    }
    found
}

fn place(on: &Pieces, known: &Known) -> Option<u64> {
    known.at.iter().copied().find(|at| on.has(*at, known.magic) && (known.check)(on, *at))
}

/// Signatures that one format has, each with what goes with it: dropped where the first is there.
const TOGETHER: &[(&str, &[&str])] = &[
    // The boot sector of one looks like a FAT's or has the signature of a table.
    ("BitLocker", &["vfat", "ntfs", "dos"]),
    ("vfat", &["dos"]),
    ("ntfs", &["dos"]),
    ("exfat", &["dos"]),
    // Bridge and hybrid images.
    ("udf", &["iso9660", "dos", "gpt", "mac"]),
    ("iso9660", &["dos", "gpt", "mac"]),
    // Its protective record.
    ("gpt", &["dos"]),
];

fn belong_together(found: &mut Vec<Signature>) {
    for (first, others) in TOGETHER {
        if found.iter().any(|one| one.name == *first) {
            found.retain(|one| !others.contains(&one.name));
        }
    }
}
