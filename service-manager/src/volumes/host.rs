//! The node's side of `installer::host`: device nodes, BLKPG, mkfs.xfs.
//!
//! Owns: the way from a partition in a table to an open device; what the kernel is told about it.
//! Order: before a partition is opened the kernel knows it where the table has it.
//! Fails by: `installer::Error` with device and operation; a partition that is mounted cannot be opened.
//! Source: include/uapi/linux/blkpg.h; Documentation/ABI/stable/sysfs-block; mkfs.xfs(8).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use installer::Error;
use installer::device::{BlockDevice, DeviceError, Disk};
use installer::host::Host;
use ondisk::gpt::{Partition, Table};

use super::program;
use crate::system_disk::partition_path;

const CLASS: &str = "/sys/class/block";
/// Unit of the files `start` and `size`, whatever the disk's own sectors.
const SECTOR_BYTES: u64 = 512;
const MKFS: &str = "/usr/sbin/mkfs.xfs";
/// A slow disk that discards its blocks one after another is done by then.
const MKFS_DEADLINE: Duration = Duration::from_secs(600);

/// An installed disk of this machine.
pub(crate) struct NodeHost {
    path: PathBuf,
    disk: Disk,
}

impl NodeHost {
    /// Opens the disk, whose partitions may be in use.
    pub(crate) fn open(path: &Path) -> Result<Self, DeviceError> {
        Ok(Self { path: path.to_owned(), disk: Disk::open_shared(path)? })
    }

    fn partition(&self, partition: &Partition) -> PathBuf {
        partition_path(&self.path, partition.number)
    }
}

impl Host for NodeHost {
    fn disk(&mut self) -> &mut dyn BlockDevice {
        &mut self.disk
    }

    fn open(&mut self, table: &Table, partition: &Partition) -> Result<Box<dyn BlockDevice + '_>, Error> {
        self.announce(table, partition)?;
        Ok(Box::new(Disk::open(&self.partition(partition))?))
    }

    fn open_shared(
        &mut self,
        table: &Table,
        partition: &Partition,
    ) -> Result<Box<dyn BlockDevice + '_>, Error> {
        self.announce(table, partition)?;
        Ok(Box::new(Disk::open_shared(&self.partition(partition))?))
    }

    fn announce(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        let wanted = (table.offset_bytes(partition), table.size_bytes(partition));
        let known = known(&self.partition(partition));
        if known == Some(wanted) {
            return Ok(());
        }
        let failed = |source: io::Error| Error::Announce { name: partition.name.clone(), source };
        if let Some((start, _)) = known.filter(|(start, _)| *start != wanted.0) {
            let number = partition.number;
            let text = format!("it knows another partition {number}, at byte {start}: restart the machine");
            return Err(failed(io::Error::other(text)));
        }
        let disk = File::open(&self.path).map_err(failed)?;
        let told = match known {
            None => sys::block::add_partition(&disk, partition.number, wanted.0, wanted.1),
            Some(_) => sys::block::resize_partition(&disk, partition.number, wanted.0, wanted.1),
        };
        told.map_err(|errno| failed(errno.into()))
    }

    fn format(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        self.announce(table, partition)?;
        let device = self.partition(partition).display().to_string();
        // -f: the intent says that what is there counts for nothing.
        let arguments = ["-q", "-f", "-L", &partition.name, &device];
        program::run(MKFS, &arguments, MKFS_DEADLINE)
            .map_err(|reason| Error::Format { name: partition.name.clone(), reason })
    }
}

/// Where the kernel has a partition: start and length in bytes.
fn known(device: &Path) -> Option<(u64, u64)> {
    let folder = Path::new(CLASS).join(device.file_name()?);
    let number = |file: &str| -> Option<u64> {
        let sectors: u64 = fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()?;
        sectors.checked_mul(SECTOR_BYTES)
    };
    Some((number("start")?, number("size")?))
}
