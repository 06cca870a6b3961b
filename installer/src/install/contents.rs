//! What a disk holds before something is installed to it.
//!
//! Owns: telling a blank disk, an installed one of ours and a foreign one apart, with names a person knows.
//! Does not: look between the first and the last mebibyte, except where a signature may lie.
//! Order: two signatures that contradict each other, a partition table, one signature, then any byte that is not zero:
//! what is not known to be nothing counts as somebody's data.
//! Source: UEFI specification chapter 5; for signatures [`ondisk::probe`].

use std::fmt;

use ondisk::Digest;
use ondisk::gpt::{self, Geometry, Table};
use ondisk::probe::{Extent, Signature, Survey, Verdict, survey};

use crate::Error;
use crate::device::BlockDevice;

/// How much of either end is looked at: every table and every superblock that a tool puts on a whole disk lies there.
pub const END_BYTES: u64 = 1 << 20;

/// Partitions that every installed disk has.
const OURS: [&str; 3] = ["EFI", "ROOT-A", "META"];

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
    let bytes = disk.bytes();
    let found = survey(&mut &mut *disk, bytes, Extent::Disk)?;
    let contents = match (found.verdict(), table(disk)?) {
        (several @ Verdict::Several(_), _) => Contents::Foreign(several.to_string()),
        (_, Some(contents)) => contents,
        (Verdict::One(one), None) => Contents::Foreign(alone(one, &found, &head)),
        (Verdict::Unknown, None) => unknown(bytes, &head, &tail),
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

/// One signature in words, with its place.
fn alone(one: &Signature, found: &Survey, head: &[u8]) -> String {
    let Signature { name, offset, is_table } = one;
    let words = match *name {
        "gpt" => "a damaged GPT".to_owned(),
        "dos" => format!("an MBR partition table with {} partitions", mbr_partitions(head)),
        "linux_raid_member" => "a member of a Linux software RAID".to_owned(),
        "LVM2_member" | "LVM1_member" => "an LVM physical volume".to_owned(),
        "zfs_member" => "a member of a ZFS pool".to_owned(),
        name if *is_table => format!("a partition table of type {name}"),
        name => {
            let label = found.filesystem().map(|volume| volume.label).filter(|label| !label.is_empty());
            let label = label.map_or_else(String::new, |label| format!(" labelled {label}"));
            return format!("{name}{label}, without a partition table, at byte {offset}");
        }
    };
    format!("{words} ({name} at byte {offset})")
}

/// Entries of a master boot record that are in use.
fn mbr_partitions(head: &[u8]) -> usize {
    let entries = head.get(446..510).unwrap_or_default().chunks(16);
    entries.filter(|entry| entry.get(4).is_some_and(|kind| !matches!(kind, 0 | 0xee))).count()
}

fn unknown(disk_bytes: u64, head: &[u8], tail: &[u8]) -> Contents {
    let not_zero = |bytes: &[u8]| bytes.iter().position(|byte| *byte != 0);
    let tail_start = disk_bytes - tail.len() as u64;
    let at = not_zero(head).map(|at| at as u64).or_else(|| not_zero(tail).map(|at| tail_start + at as u64));
    match at {
        Some(at) => Contents::Foreign(format!("data of an unknown kind, the first at byte {at}")),
        None => Contents::Nothing,
    }
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
