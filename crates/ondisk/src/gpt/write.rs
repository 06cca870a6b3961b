//! A table as bytes.
//!
//! Owns: the extents of the backup, the primary and the protective MBR, so that a caller can flush between them.
//! Order: backup first, flush, then primary: one of the two is whole at any moment.

use alloc::vec;
use alloc::vec::Vec;

use super::{Copy, ENTRIES, ENTRY_BYTES, Error, Found, Geometry, NAME_UNITS, Table};
use crate::field::put;
use crate::{Extent, Step, crc32};

/// Bytes of a header; the rest of its sector is zero.
const HEADER_BYTES: usize = 92;

impl Table {
    /// Protective MBR, primary header and primary entries, in one piece from sector 0.
    ///
    /// The 440 bytes of boot code at the start of the MBR are zero.
    pub fn primary(&self) -> Result<Extent<'static>, Error> {
        let entries = self.entries()?;
        let sector = sector_len(self.geometry);
        let mut bytes = protective_mbr(self.geometry);
        bytes.extend(self.header(Place::primary(self.geometry), &entries, sector));
        bytes.extend(entries);
        Ok(Extent::new(0, bytes))
    }

    /// Backup entries and backup header, in one piece to the disk's last sector.
    pub fn backup(&self) -> Result<Extent<'static>, Error> {
        let place = Place::backup(self.geometry);
        let mut bytes = self.entries()?;
        let header = self.header(place, &bytes, sector_len(self.geometry));
        bytes.extend(header);
        Ok(Extent::new(self.geometry.offset(place.entries), bytes))
    }

    /// Both copies, backup first.
    pub fn extents(&self) -> Result<Vec<Extent<'static>>, Error> {
        Ok(Vec::from([self.backup()?, self.primary()?]))
    }

    fn header(&self, place: Place, entries: &[u8], sector: usize) -> Vec<u8> {
        let mut header = vec![0; sector];
        put(&mut header, 0, b"EFI PART");
        put(&mut header, 8, &0x0001_0000_u32.to_le_bytes());
        put(&mut header, 12, &92_u32.to_le_bytes());
        put(&mut header, 24, &place.here.to_le_bytes());
        put(&mut header, 32, &place.other.to_le_bytes());
        put(&mut header, 40, &self.geometry.first_usable().to_le_bytes());
        put(&mut header, 48, &self.geometry.last_usable().to_le_bytes());
        put(&mut header, 56, &self.disk_guid.stored());
        put(&mut header, 72, &place.entries.to_le_bytes());
        put(&mut header, 80, &ENTRIES.to_le_bytes());
        put(&mut header, 84, &ENTRY_BYTES.to_le_bytes());
        put(&mut header, 88, &crc32::hash(entries).to_le_bytes());
        // The checksum is made while its own field is zero.
        let checksum = crc32::hash(header.get(..HEADER_BYTES).unwrap_or(&[]));
        put(&mut header, 16, &checksum.to_le_bytes());
        header
    }

    /// The entry array, filled up to whole sectors (16 KiB is one already).
    fn entries(&self) -> Result<Vec<u8>, Error> {
        self.check()?;
        let mut array = vec![0; (ENTRIES * ENTRY_BYTES) as usize];
        for partition in &self.partitions {
            if !(1..=ENTRIES).contains(&partition.number) {
                return Err(Error::Number(partition.number));
            }
            let at = (partition.number - 1) as usize * ENTRY_BYTES as usize;
            put(&mut array, at, &partition.type_guid.stored());
            put(&mut array, at + 16, &partition.guid.stored());
            put(&mut array, at + 32, &partition.first_lba.to_le_bytes());
            put(&mut array, at + 40, &partition.last_lba.to_le_bytes());
            put(&mut array, at + 48, &partition.attributes.to_le_bytes());
            for (unit, letter) in partition.name.encode_utf16().take(NAME_UNITS).enumerate() {
                put(&mut array, at + 56 + unit * 2, &letter.to_le_bytes());
            }
        }
        Ok(array)
    }
}

impl Found {
    /// The steps from the table that was found to `new`, which lies on the same disk.
    ///
    /// Backup first, then primary. When the table was taken from the backup, the primary is mended before: a cut in the
    /// backup would otherwise find no whole copy.
    pub fn change_to(&self, new: &Table) -> Result<Vec<Step<'static>>, Error> {
        let mut steps = Vec::new();
        if self.copy == Copy::Backup {
            steps.push(vec![self.table.primary()?]);
        }
        steps.push(vec![new.backup()?]);
        steps.push(vec![new.primary()?]);
        Ok(steps)
    }
}

fn sector_len(geometry: Geometry) -> usize {
    // 512 or 4096, checked when the geometry was made.
    geometry.sector_bytes as usize
}

/// Where a header, its twin and its entries lie.
#[derive(Clone, Copy)]
struct Place {
    here: u64,
    other: u64,
    entries: u64,
}

impl Place {
    fn primary(geometry: Geometry) -> Self {
        Self { here: 1, other: geometry.last_lba(), entries: 2 }
    }

    fn backup(geometry: Geometry) -> Self {
        Self { here: geometry.last_lba(), other: 1, entries: geometry.last_usable().saturating_add(1) }
    }
}

/// One sector with a single partition of type 0xEE over the whole disk.
fn protective_mbr(geometry: Geometry) -> Vec<u8> {
    let mut mbr = vec![0; sector_len(geometry)];
    // Start CHS 0/0/2, type, end CHS "too large", first LBA, number of sectors (or all ones).
    put(&mut mbr, 446, &[0x00, 0x00, 0x02, 0x00, 0xEE, 0xFF, 0xFF, 0xFF]);
    put(&mut mbr, 454, &1_u32.to_le_bytes());
    let sectors = u32::try_from(geometry.last_lba()).unwrap_or(u32::MAX);
    put(&mut mbr, 458, &sectors.to_le_bytes());
    put(&mut mbr, 510, &[0x55, 0xAA]);
    mbr
}
