//! The node's side of `installer::host`: device nodes, BLKPG, mkfs.xfs, mappings of encrypted volumes.
//!
//! Owns: the way from a partition in a table to an open device; what the kernel is told about it.
//! Does not: derive keys or make mappings itself: the process of `opening` does.
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
use unlock::{Record, Refused};

use super::handle::Volumes;
use super::key::VolumeKey;
use super::opening::{self, Done, Job, Request};
use super::{encryption, mapping, program};
use crate::system_disk::partition_path;

const CLASS: &str = "/sys/class/block";
/// Unit of the files `start` and `size`, whatever the disk's own sectors.
const SECTOR_BYTES: u64 = 512;
const MKFS: &str = "/usr/sbin/mkfs.xfs";
/// The longest label of an xfs. Names of volumes are ASCII.
const LABEL_BYTES: usize = 12;
/// A slow disk that discards its blocks one after another is done by then.
const MKFS_DEADLINE: Duration = Duration::from_secs(600);

/// An installed disk of this machine.
pub(crate) struct NodeHost {
    path: PathBuf,
    disk: Disk,
    /// The volume that is to be encrypted.
    sealed: Option<Sealed>,
}

/// How a volume is to be encrypted.
struct Sealed {
    volume: String,
    record: Record,
    keys: Vec<Result<VolumeKey, Refused>>,
    /// What making it said.
    made: Option<Done>,
}

impl NodeHost {
    /// Opens the disk, whose partitions may be in use.
    pub(crate) fn open(path: &Path) -> Result<Self, DeviceError> {
        Ok(Self { path: path.to_owned(), disk: Disk::open_shared(path)?, sealed: None })
    }

    /// Has this volume encrypted from now on, with the keys that this machine has for it.
    pub(super) fn seal(&mut self, volumes: &Volumes, volume: &str, record: &Record) {
        let keys = encryption::keys(record, &encryption::Own::of(volumes, record, volume), volume);
        self.sealed = Some(Sealed { volume: volume.to_owned(), record: record.clone(), keys, made: None });
    }

    /// What making the encrypted volume said; `None` if it was there.
    pub(super) fn made(&mut self) -> Option<Done> {
        self.sealed.as_mut()?.made.take()
    }

    /// Opens the encrypted volume that a partition holds; with what a person gave, if it is not empty, by that alone.
    pub(super) fn unlock(&self, partition: &Partition, recovery: &[VolumeKey]) -> Result<Done, String> {
        let Some(sealed) = &self.sealed else { return Err("it is not to be encrypted".to_owned()) };
        let partition = self.partition(partition);
        mapping::load_kernel_modules_of(&partition)?;
        opening::ask(&sealed.request(Job::Open, &partition).with_recovery(recovery))
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

    fn encrypts(&self, partition: &Partition) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.volume == partition.name)
    }

    fn encrypt(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        self.announce(table, partition)?;
        let device = self.partition(partition);
        let failed = |reason: String| Error::Encrypt { name: partition.name.clone(), reason };
        let sealed = self.sealed.as_mut().ok_or_else(|| failed("it has no keys".to_owned()))?;
        let job = encryption::format(&sealed.record, &sealed.keys).map_err(failed)?;
        mapping::load_kernel_modules(&sealed.record.cipher).map_err(failed)?;
        // Of a volume that was half made under an earlier machined.
        mapping::close(&sealed.volume).map_err(failed)?;
        // Nobody else may use it: the process that writes would not notice.
        drop(Disk::open(&device)?);
        sealed.made = Some(opening::ask(&sealed.request(job, &device)).map_err(failed)?);
        Ok(())
    }

    fn open_volume(
        &mut self,
        table: &Table,
        partition: &Partition,
    ) -> Result<Box<dyn BlockDevice + '_>, Error> {
        match self.sealed.as_ref().filter(|_| self.encrypts(partition)) {
            Some(sealed) => Ok(Box::new(Disk::open(&mapping::path(&sealed.volume))?)),
            None => self.open(table, partition),
        }
    }

    fn format(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        self.announce(table, partition)?;
        let device = match self.sealed.as_ref().filter(|_| self.encrypts(partition)) {
            Some(sealed) => mapping::path(&sealed.volume),
            None => self.partition(partition),
        };
        let device = device.display().to_string();
        // What xfs has room for: the name of a volume of the user's may be longer.
        let label = partition.name.get(..LABEL_BYTES).unwrap_or(&partition.name);
        // -f: the intent says that what is there counts for nothing.
        let arguments = ["-q", "-f", "-L", label, &device];
        program::run(MKFS, &arguments, MKFS_DEADLINE)
            .map_err(|reason| Error::Format { name: partition.name.clone(), reason })
    }
}

impl Sealed {
    fn request(&self, job: Job, device: &Path) -> Request {
        Request::new(job, &self.volume, device, &self.keys, &self.record.options)
    }
}

/// Where the kernel has a partition: start and length in bytes.
fn known(device: &Path) -> Option<(u64, u64)> {
    let directory = Path::new(CLASS).join(device.file_name()?);
    let number = |file: &str| -> Option<u64> {
        let sectors: u64 = fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()?;
        sectors.checked_mul(SECTOR_BYTES)
    };
    Some((number("start")?, number("size")?))
}
