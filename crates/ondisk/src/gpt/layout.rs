//! Placing partitions on a disk.
//!
//! Owns: alignment and order; partitions follow each other without gaps beyond the alignment.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Error, Geometry, Guid, Partition, Table};

/// Partitions start at multiples of this: 1 MiB, what every tool uses and every flash erase block divides.
pub const ALIGNMENT_BYTES: u64 = 1 << 20;

/// How long a partition shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// This many bytes, rounded up to the alignment.
    Bytes(u64),
    /// All that is left.
    Rest,
}

/// A partition that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// GPT name.
    pub name: String,
    /// What it is for.
    pub type_guid: Guid,
    /// Its own GUID.
    pub guid: Guid,
    /// See [`super::attributes`].
    pub attributes: u64,
    /// Its length.
    pub size: Size,
}

impl Request {
    /// The partition, so many sectors long, of which there is at least one.
    #[must_use]
    pub fn placed(&self, number: u32, first_lba: u64, sectors: u64) -> Partition {
        Partition {
            number,
            type_guid: self.type_guid,
            guid: self.guid,
            first_lba,
            last_lba: first_lba + sectors - 1,
            attributes: self.attributes,
            name: self.name.clone(),
        }
    }
}

/// Places the partitions in the given order, numbered from 1.
pub fn lay_out(geometry: Geometry, disk_guid: Guid, requests: &[Request]) -> Result<Table, Error> {
    let step = ALIGNMENT_BYTES / u64::from(geometry.sector_bytes);
    let mut next = geometry.first_usable().next_multiple_of(step);
    let mut partitions = Vec::new();
    for (number, request) in (1..).zip(requests) {
        let full = || Error::Full(request.name.clone());
        // One past the last usable sector, down to the alignment.
        let limit = geometry.last_usable().saturating_add(1) / step * step;
        let room = limit.checked_sub(next).filter(|room| *room > 0).ok_or_else(full)?;
        let sectors = match request.size {
            Size::Rest => room,
            Size::Bytes(bytes) => bytes.div_ceil(ALIGNMENT_BYTES).saturating_mul(step),
        };
        if sectors == 0 || sectors > room {
            return Err(full());
        }
        partitions.push(request.placed(number, next, sectors));
        next += sectors;
    }
    let table = Table { geometry, disk_guid, partitions };
    table.check()?;
    Ok(table)
}

impl Table {
    /// The same partitions on a disk that has become larger (or was read by its backup at an older end).
    ///
    /// Its copies then go to the new end; every partition stays where it is.
    pub fn on(mut self, geometry: Geometry) -> Result<Self, Error> {
        self.geometry = geometry;
        self.check()?;
        Ok(self)
    }

    /// Lets a partition reach up to the next one, or to the last usable sector, down to the alignment.
    ///
    /// Says by how many sectors it grew; a partition never shrinks. `None`: there is no such number.
    pub fn grow(&mut self, number: u32) -> Option<u64> {
        let step = ALIGNMENT_BYTES / u64::from(self.geometry.sector_bytes);
        let last = self.partitions.iter().find(|partition| partition.number == number)?.last_lba;
        let next =
            self.partitions.iter().map(|partition| partition.first_lba).filter(|first| *first > last).min();
        let limit = next.unwrap_or_else(|| self.geometry.last_usable().saturating_add(1)) / step * step;
        let grown = limit.saturating_sub(1).max(last);
        self.partitions.iter_mut().find(|partition| partition.number == number)?.last_lba = grown;
        Some(grown - last)
    }
}
