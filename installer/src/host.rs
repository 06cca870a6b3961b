//! An installed disk as its node sees it: the whole disk, its partitions, the kernel, a program that formats.
//!
//! Owns: [`Host`], behind which a node opens devices and a test keeps a disk in memory; reading and writing the table.
//! Order: a table is written backup first, flushed, then primary, flushed; a damaged primary is mended before. The
//! kernel hears of it last.
//! Fails by: [`Error`] of the operation.

use ondisk::gpt::{self, Geometry, Partition, Table};
use ondisk::meta::Meta;

use crate::device::{BlockDevice, apply};
use crate::{Error, meta};

/// Bytes of boot code in the first sector, which no table owns.
const BOOT_CODE_BYTES: usize = 440;

/// What volumes and resets need of the machine.
pub trait Host {
    /// The whole disk: for its table only.
    fn disk(&mut self) -> &mut dyn BlockDevice;

    /// A partition for nobody else: one that is mounted is refused. The kernel learns of it if it must.
    fn open(&mut self, table: &Table, partition: &Partition) -> Result<Box<dyn BlockDevice + '_>, Error>;

    /// A partition that others use beside us: META, and the slot that runs.
    fn open_shared(
        &mut self,
        table: &Table,
        partition: &Partition,
    ) -> Result<Box<dyn BlockDevice + '_>, Error>;

    /// Tells the kernel where a partition is now.
    fn announce(&mut self, table: &Table, partition: &Partition) -> Result<(), Error>;

    /// Whether the partition is to be an encrypted volume.
    fn encrypts(&self, partition: &Partition) -> bool {
        let _ = partition;
        false
    }

    /// Makes an encrypted volume of a partition for which [`Host::encrypts`] says so, and opens it. What was there is
    /// lost.
    fn encrypt(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        let _ = table;
        let reason = "there are no keys for it".to_owned();
        Err(Error::Encrypt { name: partition.name.clone(), reason })
    }

    /// Makes an empty file system with the partition's name as its label, within the encryption if there is one. What
    /// was there is lost.
    fn format(&mut self, table: &Table, partition: &Partition) -> Result<(), Error>;

    /// What lies within the encryption of a volume that [`Host::encrypt`] opened; without encryption the partition.
    fn open_volume(
        &mut self,
        table: &Table,
        partition: &Partition,
    ) -> Result<Box<dyn BlockDevice + '_>, Error> {
        self.open(table, partition)
    }
}

/// Reads the table; from the backup when the primary is damaged.
pub fn read_table(host: &mut dyn Host) -> Result<gpt::Found, Error> {
    let disk = host.disk();
    let geometry = Geometry::new(disk.sector_bytes(), disk.bytes())?;
    Ok(gpt::read(&mut &mut *disk, geometry)?)
}

/// Writes a table over an older one of the same disk; boot code in the first sector stays.
pub fn write_table(host: &mut dyn Host, table: &Table) -> Result<(), Error> {
    let mut steps = read_table(host)?.change_to(table)?;
    let disk = host.disk();
    let mut code = [0; BOOT_CODE_BYTES];
    disk.read_at(0, &mut code)?;
    for primary in steps.iter_mut().flatten().filter(|extent| extent.offset == 0) {
        if let Some(start) = primary.bytes.to_mut().get_mut(..BOOT_CODE_BYTES) {
            start.copy_from_slice(&code);
        }
    }
    Ok(apply(disk, 0, &steps)?)
}

/// The partition of this name; none if it is not there, an error if several are.
pub(crate) fn partition<'t>(table: &'t Table, name: &str) -> Result<Option<&'t Partition>, Error> {
    let count = table.partitions.iter().filter(|partition| partition.name == name).count();
    if count > 1 {
        return Err(Error::SeveralPartitions { name: name.to_owned(), count });
    }
    Ok(table.by_name(name))
}

/// Does something with META.
pub(crate) fn with_meta<T>(
    host: &mut dyn Host,
    table: &Table,
    act: impl FnOnce(&mut dyn BlockDevice) -> Result<T, Error>,
) -> Result<T, Error> {
    let place = partition(table, "META")?.ok_or(Error::NoPartition { name: "META" })?;
    act(&mut *host.open_shared(table, place)?)
}

/// What META says now.
pub(crate) fn values(host: &mut dyn Host, table: &Table) -> Result<Meta, Error> {
    with_meta(host, table, |part| Ok(meta::read(part)?.meta))
}
