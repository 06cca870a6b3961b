//! Sizes of a FAT32 volume and the areas that follow from them: boot sectors, FSInfo, the tables.
//!
//! Owns: cluster size, length of the FATs, every fixed field of the reserved sectors.

use alloc::vec;
use alloc::vec::Vec;

use super::name::ShortName;
use super::write::{Chain, Volume};
use super::{CHAIN_END, CLUSTERS, Error, FIRST_CLUSTER, SLOT_BYTES};
use crate::field::put;

/// Sectors before the first FAT; boot sector and FSInfo at 0 and 1, their copies at 6 and 7.
pub(super) const RESERVED_SECTORS: u64 = 32;

/// Sizes of a volume, and where its parts lie.
pub(super) struct Geometry {
    sector_bytes: u64,
    cluster_sectors: u8,
    sectors: u32,
    fat_sectors: u64,
    pub(super) clusters: u64,
}

/// Clusters of one sector up to 260 MiB and of 4 KiB beyond, doubling above 8 GiB: what mkfs.vfat does.
fn cluster_bytes(volume_bytes: u64) -> u64 {
    match volume_bytes >> 20 {
        0..260 => 512,
        260..8192 => 4096,
        8192..16384 => 8192,
        16384..32768 => 16384,
        _ => 32768,
    }
}

impl Geometry {
    pub(super) fn new(volume: &Volume<'_>) -> Result<Self, Error> {
        if !matches!(volume.sector_bytes, 512 | 1024 | 2048 | 4096) {
            return Err(Error::SectorSize(volume.sector_bytes));
        }
        let wrong = || Error::VolumeSize(volume.bytes);
        let sector_bytes = u64::from(volume.sector_bytes);
        let sectors = u32::try_from(volume.bytes / sector_bytes).map_err(|_| wrong())?;
        let cluster_sectors =
            u8::try_from(cluster_bytes(volume.bytes).div_ceil(sector_bytes)).map_err(|_| wrong())?;
        let behind_reserved = u64::from(sectors).checked_sub(RESERVED_SECTORS).ok_or_else(wrong)?;
        // Room for every cluster there would be without FATs: at most some entries too many.
        let entries = behind_reserved / u64::from(cluster_sectors) + u64::from(FIRST_CLUSTER);
        let fat_sectors = (entries * 4).div_ceil(sector_bytes);
        let data = behind_reserved.checked_sub(2 * fat_sectors).ok_or_else(wrong)?;
        let clusters = data / u64::from(cluster_sectors);
        if !CLUSTERS.contains(&clusters) {
            return Err(wrong());
        }
        Ok(Self { sector_bytes, cluster_sectors, sectors, fat_sectors, clusters })
    }

    pub(super) fn cluster_bytes(&self) -> u64 {
        self.sector_bytes * u64::from(self.cluster_sectors)
    }

    pub(super) fn offset(&self, sector: u64) -> u64 {
        sector * self.sector_bytes
    }

    pub(super) fn second_fat_offset(&self) -> u64 {
        self.offset(RESERVED_SECTORS + self.fat_sectors)
    }

    pub(super) fn cluster_offset(&self, cluster: u32) -> u64 {
        let data = self.offset(RESERVED_SECTORS + 2 * self.fat_sectors);
        data + u64::from(cluster.saturating_sub(FIRST_CLUSTER)) * self.cluster_bytes()
    }

    /// Slots of one sector: the most that an entry set may take.
    pub(super) fn sector_slots(&self) -> usize {
        usize::try_from(self.sector_bytes).unwrap_or(512) / SLOT_BYTES
    }

    /// All reserved sectors.
    pub(super) fn boot_area(&self, volume: &Volume<'_>, label: &ShortName, next_cluster: u32) -> Vec<u8> {
        let sector = usize::try_from(self.sector_bytes).unwrap_or(512);
        let mut area = vec![0; usize::try_from(self.offset(RESERVED_SECTORS)).unwrap_or(0)];
        let boot = self.boot_sector(volume, label);
        let info = self.fs_info(next_cluster);
        for copy in [0, 6] {
            put(&mut area, copy * sector, &boot);
            put(&mut area, (copy + 1) * sector, &info);
        }
        area
    }

    fn boot_sector(&self, volume: &Volume<'_>, label: &ShortName) -> [u8; 512] {
        let mut boot = [0; 512];
        let [size0, size1, ..] = volume.sector_bytes.to_le_bytes();
        // Jump over the fields, who formatted, sector and cluster size, reserved sectors, two FATs, a fixed disk.
        put(&mut boot, 0, b"\xEB\x58\x90BILLET  ");
        put(&mut boot, 11, &[size0, size1, self.cluster_sectors, 32, 0, 2]);
        put(&mut boot, 21, &[0xF8]);
        // Sectors a track and heads: obsolete, but not zero.
        put(&mut boot, 24, &[63, 0, 255, 0]);
        put(&mut boot, 32, &self.sectors.to_le_bytes());
        put(&mut boot, 36, &u32::try_from(self.fat_sectors).unwrap_or(0).to_le_bytes());
        put(&mut boot, 44, &FIRST_CLUSTER.to_le_bytes());
        // FSInfo sector, copy of the boot sector.
        put(&mut boot, 48, &[1, 0, 6, 0]);
        put(&mut boot, 64, &[0x80, 0, 0x29]);
        put(&mut boot, 67, &volume.volume_id.to_le_bytes());
        put(&mut boot, 71, label);
        put(&mut boot, 82, b"FAT32   ");
        // Boot code that returns to the firmware: int 18h.
        put(&mut boot, 90, &[0xCD, 0x18]);
        put(&mut boot, 510, &[0x55, 0xAA]);
        boot
    }

    fn fs_info(&self, next_cluster: u32) -> [u8; 512] {
        let mut info = [0; 512];
        let used = u64::from(next_cluster - FIRST_CLUSTER);
        let free = u32::try_from(self.clusters.saturating_sub(used)).unwrap_or(u32::MAX);
        put(&mut info, 0, b"RRaA");
        put(&mut info, 484, b"rrAa");
        put(&mut info, 488, &free.to_le_bytes());
        // The cluster to search from, or "unknown" when the volume is full.
        let hint = if free == 0 { u32::MAX } else { next_cluster };
        put(&mut info, 492, &hint.to_le_bytes());
        put(&mut info, 510, &[0x55, 0xAA]);
        info
    }

    pub(super) fn fat(&self, chains: &[Chain]) -> Vec<u8> {
        let mut fat = vec![0; usize::try_from(self.offset(self.fat_sectors)).unwrap_or(0)];
        // Media byte; no errors, cleanly unmounted.
        put(&mut fat, 0, &0x0FFF_FFF8_u32.to_le_bytes());
        put(&mut fat, 4, &0x0FFF_FFFF_u32.to_le_bytes());
        for chain in chains {
            for step in 0..chain.clusters {
                let cluster = chain.first + step;
                let next = if step + 1 == chain.clusters { CHAIN_END } else { cluster + 1 };
                put(&mut fat, cluster as usize * 4, &next.to_le_bytes());
            }
        }
        fat
    }
}
