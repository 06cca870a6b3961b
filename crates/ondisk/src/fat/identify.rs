//! Label and identifier of a FAT volume of any width.
//!
//! Owns: the decision whether a first sector is a FAT boot sector at all: there is no magic, only plausibility.
//! Source: offsets in the boot sector: sector size 11, sectors a cluster 13, reserved 14, FATs 16, root entries 17,
//! media 21, FAT sectors 22 or 36 (FAT32), root cluster 44; identifier and label at 39/43 or 67/71 (FAT32).

use alloc::string::String;

use super::{SLOT_BYTES, attribute};
use crate::field::{array, bytes, le16, le32, u8_at};

/// Name and number of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The label without padding, case as stored; empty when there is none.
    pub label: String,
    /// The number; `blkid` writes it as `XXXX-XXXX`.
    pub volume_id: u32,
}

/// Reads label and number from a volume's first bytes. The label in the root directory counts if it is among them,
/// else the copy in the boot sector, which every formatter writes.
#[must_use]
pub fn identify(start: &[u8]) -> Option<Identity> {
    let shape = Shape::read(start)?;
    let (id_at, label_at) = if shape.fat32 { (67, 71) } else { (39, 43) };
    let stored: [u8; 11] = array(start, label_at)?;
    let label = root_label(start, &shape).unwrap_or(stored);
    let text = String::from_utf8_lossy(&label);
    let text = text.trim_end_matches([' ', '\0']);
    let label = if text == "NO NAME" { String::new() } else { text.into() };
    Some(Identity { label, volume_id: le32(start, id_at)? })
}

struct Shape {
    fat32: bool,
    /// Where the root directory starts, in bytes.
    root: u64,
}

impl Shape {
    fn read(start: &[u8]) -> Option<Self> {
        let sector = u64::from(le16(start, 11)?);
        let cluster = u8_at(start, 13)?;
        let reserved = u64::from(le16(start, 14)?);
        let fats = u64::from(u8_at(start, 16)?);
        let media = u8_at(start, 21)?;
        let plausible = bytes(start, 510, 2)? == [0x55, 0xAA]
            && matches!(u8_at(start, 0)?, 0xEB | 0xE9)
            && matches!(sector, 512 | 1024 | 2048 | 4096)
            && cluster.is_power_of_two()
            && reserved > 0
            && (1..=2).contains(&fats)
            && (media == 0xF0 || media >= 0xF8);
        let fat16 = u64::from(le16(start, 22)?);
        let fat32 = fat16 == 0;
        let fat = if fat32 { u64::from(le32(start, 36)?) } else { fat16 };
        if !plausible || fat == 0 || fat32 != (le16(start, 17)? == 0) {
            return None;
        }
        let root_cluster = if fat32 { u64::from(le32(start, 44)?.checked_sub(2)?) } else { 0 };
        let root = (reserved + fats * fat + root_cluster * u64::from(cluster)) * sector;
        Some(Self { fat32, root })
    }
}

/// The volume label among those entries of the root directory that are in view.
fn root_label(start: &[u8], shape: &Shape) -> Option<[u8; 11]> {
    let root = start.get(usize::try_from(shape.root).ok()?..)?;
    let mut slots = root.chunks_exact(SLOT_BYTES).take_while(|slot| slot.first() != Some(&0));
    let label = slots.find(|slot| {
        let kind = u8_at(slot, 11).unwrap_or(0) & 0x3F;
        slot.first() != Some(&0xE5) && kind != attribute::LONG_NAME && kind & attribute::VOLUME_LABEL != 0
    })?;
    array(label, 0)
}
