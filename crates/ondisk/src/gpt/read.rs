//! A table from a disk.
//!
//! Owns: the choice between the two copies. A copy counts only when both checksums and all its ranges are right.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{Error, Geometry, Guid, NAME_UNITS, Partition, Table};
use crate::field::{array, bytes, le16, le32, le64};
use crate::{ReadAt, crc32};

/// Most bytes of an entry array that are read: 64 times the usual.
const MAX_ARRAY_BYTES: u64 = 1 << 20;

/// Which copy of the table was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copy {
    /// The one at the start of the disk.
    Primary,
    /// The one at its end.
    Backup,
}

/// A table and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The table.
    pub table: Table,
    /// The copy it was read from.
    pub copy: Copy,
    /// What is wrong with the primary, when the backup was taken.
    pub primary_fault: Option<Error>,
}

/// Reads the table of a disk; from the backup when the primary is damaged.
pub fn read(disk: &mut impl ReadAt, geometry: Geometry) -> Result<Found, Error> {
    let primary = match read_copy(disk, geometry, 1) {
        Ok(table) => return Ok(Found { table, copy: Copy::Primary, primary_fault: None }),
        Err(fault) => fault,
    };
    match read_copy(disk, geometry, geometry.last_lba()) {
        Ok(table) => Ok(Found { table, copy: Copy::Backup, primary_fault: Some(primary) }),
        Err(backup) => Err(Error::BothBad { primary: Box::new(primary), backup: Box::new(backup) }),
    }
}

/// The table at the start of a disk or image as it says of itself, however long that really is: of an image that was cut
/// off it tells how far it would reach. The geometry is the one that the header states.
pub fn read_stated(disk: &mut impl ReadAt, sector_bytes: u32) -> Result<Table, Error> {
    // Refuses other sectors before there is room for one.
    let any = Geometry::new(sector_bytes, u64::MAX)?;
    let mut sector = vec![0; sector_bytes as usize];
    disk.read_at(any.offset(1), &mut sector).map_err(Error::Read)?;
    let backup = Header::parse(&sector, 1)?.backup_lba;
    let geometry = Geometry::new(sector_bytes, any.offset(backup.saturating_add(1)))?;
    read_copy(disk, geometry, 1)
}

fn read_copy(disk: &mut impl ReadAt, geometry: Geometry, lba: u64) -> Result<Table, Error> {
    let mut sector = vec![0; geometry.sector_bytes as usize];
    disk.read_at(geometry.offset(lba), &mut sector).map_err(Error::Read)?;
    let header = Header::parse(&sector, lba)?;
    let mut entries = vec![0; header.array_len()?];
    disk.read_at(geometry.offset(header.entries_lba), &mut entries).map_err(Error::Read)?;
    if crc32::hash(&entries) != header.entries_checksum {
        return Err(Error::EntriesChecksum);
    }
    let partitions = parse_entries(&entries, header.entry_bytes)?;
    let table = Table { geometry, disk_guid: header.disk_guid, partitions };
    let last = header.last_usable.min(geometry.last_lba());
    table.check_within(header.first_usable.max(2), last)?;
    Ok(table)
}

struct Header {
    backup_lba: u64,
    first_usable: u64,
    last_usable: u64,
    disk_guid: Guid,
    entries_lba: u64,
    entries: u32,
    entry_bytes: u32,
    entries_checksum: u32,
}

impl Header {
    fn parse(sector: &[u8], lba: u64) -> Result<Self, Error> {
        if bytes(sector, 0, 8) != Some(b"EFI PART") {
            return Err(Error::NoSignature);
        }
        Self::check_sum(sector)?;
        if le64(sector, 24) != Some(lba) {
            return Err(Error::Misplaced);
        }
        Self::fields(sector).ok_or(Error::Header)
    }

    fn check_sum(sector: &[u8]) -> Result<(), Error> {
        let length = le32(sector, 12).and_then(|length| usize::try_from(length).ok()).ok_or(Error::Header)?;
        let mut header = sector.get(..length).filter(|h| h.len() >= 92).ok_or(Error::Header)?.to_vec();
        let revision = le32(&header, 8);
        let stored = le32(&header, 16);
        crate::field::put(&mut header, 16, &[0; 4]);
        if stored != Some(crc32::hash(&header)) {
            return Err(Error::HeaderChecksum);
        }
        if revision == Some(0x0001_0000) { Ok(()) } else { Err(Error::Header) }
    }

    fn fields(sector: &[u8]) -> Option<Self> {
        Some(Self {
            backup_lba: le64(sector, 32)?,
            first_usable: le64(sector, 40)?,
            last_usable: le64(sector, 48)?,
            disk_guid: Guid::from_stored(array(sector, 56)?),
            entries_lba: le64(sector, 72)?,
            entries: le32(sector, 80)?,
            entry_bytes: le32(sector, 84)?,
            entries_checksum: le32(sector, 88)?,
        })
    }

    fn array_len(&self) -> Result<usize, Error> {
        // A table without room for an entry is nobody's empty disk: what it hides is not known.
        if self.entries == 0 {
            return Err(Error::Entries);
        }
        let length = u64::from(self.entries) * u64::from(self.entry_bytes);
        if self.entry_bytes < 128 || !self.entry_bytes.is_power_of_two() || length > MAX_ARRAY_BYTES {
            return Err(Error::Entries);
        }
        usize::try_from(length).map_err(|_| Error::Entries)
    }
}

fn parse_entries(array: &[u8], entry_bytes: u32) -> Result<Vec<Partition>, Error> {
    let used = |entry: &&[u8]| entry.iter().take(16).any(|byte| *byte != 0);
    (1..)
        .zip(array.chunks_exact(entry_bytes as usize))
        .filter(|(_, entry)| used(entry))
        .map(|(number, entry)| parse_entry(number, entry).ok_or(Error::Entries))
        .collect()
}

fn parse_entry(number: u32, entry: &[u8]) -> Option<Partition> {
    Some(Partition {
        number,
        type_guid: Guid::from_stored(array(entry, 0)?),
        guid: Guid::from_stored(array(entry, 16)?),
        first_lba: le64(entry, 32)?,
        last_lba: le64(entry, 40)?,
        attributes: le64(entry, 48)?,
        name: parse_name(bytes(entry, 56, NAME_UNITS * 2)?),
    })
}

/// UTF-16LE up to a zero; a lone surrogate becomes U+FFFD, which still fits the 36 units.
fn parse_name(stored: &[u8]) -> String {
    let units = (0..NAME_UNITS).filter_map(|unit| le16(stored, unit * 2)).take_while(|unit| *unit != 0);
    char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}
