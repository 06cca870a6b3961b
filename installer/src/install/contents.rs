//! What a disk holds before something is installed to it.
//!
//! Owns: telling a blank disk, an installed one of ours and a foreign one apart, with names a person knows.
//! Does not: look between the first and the last mebibyte, except where a partition table points.
//! Order: a partition table, then signatures, then any byte that is not zero: what is not known to be nothing counts
//! as somebody's data.
//! Source: UEFI specification chapter 5; lvm2's `format_text/layout.h`; mdadm's `super0.c` and `super1.c`; for file
//! systems [`ondisk::probe`].

use std::fmt;

use ondisk::Digest;
use ondisk::gpt::{self, Geometry, Table};
use ondisk::probe::{PROBE_BYTES, probe};

use crate::Error;
use crate::device::BlockDevice;

/// How much of either end is looked at: every table and every superblock that a tool puts on a whole disk lies there.
pub const END_BYTES: u64 = 1 << 20;

/// Partitions that every installed disk has.
const OURS: [&str; 3] = ["EFI", "ROOT-A", "META"];

/// Start of the sector with LVM's label.
const LVM_LABEL: &[u8] = b"LABELONE";
/// Sectors at the start among which LVM looks for its label.
const LVM_SECTORS: usize = 4;
/// First word of a superblock of Linux's software RAID.
const RAID_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
/// Places of RAID superblocks of version 1.1 and 1.2, from the start.
const RAID_AT_START: [usize; 2] = [0, 4096];

/// What a disk holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// Zeros.
    Nothing,
    /// An installation of Billet.
    Billet(Table),
    /// What somebody else put there, in words.
    Foreign(String),
}

/// What a disk holds, and a digest of what that was told from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// What it holds.
    pub contents: Contents,
    /// Of both ends: another one means that somebody wrote to the disk since.
    pub digest: Digest,
}

/// Looks at a disk. Nothing is written.
pub fn inspect(disk: &mut dyn BlockDevice) -> Result<Inspection, Error> {
    let end_bytes = END_BYTES.min(disk.bytes());
    // At most END_BYTES.
    let length = usize::try_from(end_bytes).unwrap_or(0);
    let (mut head, mut tail) = (vec![0; length], vec![0; length]);
    disk.read_at(0, &mut head)?;
    disk.read_at(disk.bytes() - end_bytes, &mut tail)?;
    let digest = Digest::sha256(&[&head, &tail]);
    let contents = match table(disk)? {
        Some(contents) => contents,
        None => signatures(disk, &head, &tail),
    };
    Ok(Inspection { contents, digest })
}

/// What a GPT says, in sectors of this disk or of the other size.
fn table(disk: &mut dyn BlockDevice) -> Result<Option<Contents>, Error> {
    let own = disk.sector_bytes();
    for sector_bytes in [own, if own == 512 { 4096 } else { 512 }] {
        let Ok(geometry) = Geometry::new(sector_bytes, disk.bytes()) else { continue };
        match gpt::read(&mut &mut *disk, geometry) {
            Ok(found) if sector_bytes != own => {
                let names = names(&found.table);
                return Ok(Some(Contents::Foreign(format!(
                    "a GPT made for sectors of {sector_bytes} bytes, with {names}"
                ))));
            }
            Ok(found) if OURS.iter().all(|name| found.table.by_name(name).is_some()) => {
                return Ok(Some(Contents::Billet(found.table)));
            }
            Ok(found) => {
                return Ok(Some(Contents::Foreign(format!("a GPT with {}", names(&found.table)))));
            }
            Err(gpt::Error::Read(error)) => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(None)
}

fn names(table: &Table) -> String {
    let name = |partition: &gpt::Partition| {
        if partition.name.is_empty() {
            format!("{} (no name)", partition.number)
        } else {
            partition.name.clone()
        }
    };
    let names: Vec<String> = table.partitions.iter().map(name).collect();
    if names.is_empty() { "no partitions".into() } else { format!("partitions {}", names.join(", ")) }
}

fn signatures(disk: &dyn BlockDevice, head: &[u8], tail: &[u8]) -> Contents {
    let found = raid(disk.bytes(), head, tail)
        .or_else(|| lvm(head))
        .or_else(|| file_system(head))
        .or_else(|| mbr(head))
        .or_else(|| broken_gpt(head, tail));
    if let Some(text) = found {
        return Contents::Foreign(text);
    }
    let not_zero = |bytes: &[u8]| bytes.iter().position(|byte| *byte != 0);
    let tail_start = disk.bytes() - tail.len() as u64;
    let at = not_zero(head).map(|at| at as u64).or_else(|| not_zero(tail).map(|at| tail_start + at as u64));
    match at {
        Some(at) => Contents::Foreign(format!("data of an unknown kind, the first at byte {at}")),
        None => Contents::Nothing,
    }
}

fn raid(disk_bytes: u64, head: &[u8], tail: &[u8]) -> Option<String> {
    // Version 1.0: the last 8 KiB, down to 4 KiB. Version 0.90: 64 KiB, at the last whole 64 KiB.
    let one = (disk_bytes / 512).checked_sub(16).map(|sector| sector / 8 * 8 * 512);
    let old = (disk_bytes / 65_536 * 65_536).checked_sub(65_536);
    let tail_start = disk_bytes - tail.len() as u64;
    let in_tail =
        [one, old].into_iter().flatten().filter_map(|at| usize::try_from(at.checked_sub(tail_start)?).ok());
    let is_there =
        |bytes: &[u8], at: usize| bytes.get(at..).is_some_and(|rest| rest.starts_with(&RAID_MAGIC));
    let there = RAID_AT_START.into_iter().any(|at| is_there(head, at))
        || in_tail.into_iter().any(|at| is_there(tail, at));
    there.then(|| "a member of a Linux software RAID".into())
}

fn lvm(head: &[u8]) -> Option<String> {
    let label = head.chunks(512).take(LVM_SECTORS).any(|sector| sector.starts_with(LVM_LABEL));
    label.then(|| "an LVM physical volume".into())
}

fn file_system(head: &[u8]) -> Option<String> {
    let found = probe(head.get(..PROBE_BYTES.min(head.len()))?)?;
    let label = if found.label.is_empty() { String::new() } else { format!(" labelled {}", found.label) };
    Some(format!("{}{label}, without a partition table", found.kind))
}

/// A partition table of the old kind: a signature and an entry that is in use.
fn mbr(head: &[u8]) -> Option<String> {
    let entries = head.get(446..510)?.chunks(16);
    let used = entries.filter(|entry| entry.get(4).is_some_and(|kind| !matches!(kind, 0 | 0xee))).count();
    (head.get(510..512)? == [0x55, 0xaa] && used > 0)
        .then(|| format!("an MBR partition table with {used} partitions"))
}

fn broken_gpt(head: &[u8], tail: &[u8]) -> Option<String> {
    let mut sectors = head.chunks(512).take(16).chain(tail.chunks(512));
    sectors.any(|sector| sector.starts_with(b"EFI PART")).then(|| "a damaged GPT".into())
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Billet(table) => write!(f, "Billet, with {}", names(table)),
            Self::Foreign(text) => f.write_str(text),
        }
    }
}
