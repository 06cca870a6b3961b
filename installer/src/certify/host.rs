//! An installed disk in memory in the place of a node's: [`Host`] without a kernel, and file systems that are one region.

use ondisk::gpt::{self, Geometry, Guid, Partition, Table, types};

use crate::Error;
use crate::device::{BlockDevice, Memory, Part, Recorder};
use crate::host::Host;
use crate::layout::partition;

/// A disk in memory that records what is done to it.
#[derive(Debug)]
pub struct MemoryHost {
    /// The disk.
    pub disk: Recorder,
}

/// What [`MemoryHost`] writes to format a partition: a superblock and something behind it.
#[must_use]
pub fn formatted(name: &str) -> Vec<u8> {
    let mut bytes = b"XFSB".to_vec();
    bytes.resize(108, 0);
    bytes.extend(format!("{name:\0<12}").as_bytes());
    bytes.resize(16 << 10, 0x5a);
    bytes
}

impl MemoryHost {
    /// Records from this state on.
    #[must_use]
    pub fn new(disk: Memory) -> Self {
        Self { disk: Recorder::new(disk) }
    }

    fn part(&mut self, table: &Table, partition: &Partition) -> Box<dyn BlockDevice + '_> {
        let (start, length) = (table.offset_bytes(partition), table.size_bytes(partition));
        Box::new(Part::new(&mut self.disk, start, length))
    }
}

impl Host for MemoryHost {
    fn disk(&mut self) -> &mut dyn BlockDevice {
        &mut self.disk
    }

    fn open(&mut self, table: &Table, partition: &Partition) -> Result<Box<dyn BlockDevice + '_>, Error> {
        Ok(self.part(table, partition))
    }

    fn open_shared(
        &mut self,
        table: &Table,
        partition: &Partition,
    ) -> Result<Box<dyn BlockDevice + '_>, Error> {
        Ok(self.part(table, partition))
    }

    fn announce(&mut self, _table: &Table, _partition: &Partition) -> Result<(), Error> {
        Ok(())
    }

    fn format(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        let bytes = formatted(&partition.name);
        Ok(self.part(table, partition).write_at(0, &bytes)?)
    }
}

/// The table of a disk with boot partitions and META, as an image or an installation leaves it.
pub fn boot_table(bytes: u64, sector_bytes: u32) -> Result<Table, gpt::Error> {
    let names = [("EFI", types::EFI_SYSTEM, 2), ("ROOT-A", types::LINUX, 2), ("ROOT-B", types::LINUX, 2)];
    let mut requests: Vec<_> =
        names.map(|(name, kind, size)| partition(&[7; 32], name, kind, size << 20)).into();
    requests.push(partition(&[7; 32], "META", types::LINUX, 1 << 20));
    gpt::lay_out(Geometry::new(sector_bytes, bytes)?, Guid::from_seed(b"disk"), &requests)
}

/// A disk with that table on it, and nothing else.
pub fn boot_disk(bytes: u64, sector_bytes: u32) -> Result<Memory, Error> {
    let mut disk = Memory::new(bytes, sector_bytes);
    for extent in boot_table(bytes, sector_bytes)?.extents()? {
        disk.write_at(extent.offset, &extent.bytes)?;
    }
    Ok(disk)
}
