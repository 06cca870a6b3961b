//! A disk of this machine, or an image file that stands for one.
//!
//! Owns: opening for nobody else, so that a disk in use is refused; reads that come from the medium.
//! Order: [`BlockDevice::flush`] ends with the kernel forgetting what it had of the disk: what is read afterwards, to
//! be proved, is what the disk kept.
//! Fails by: [`DeviceError`] with the path; `EBUSY` of a disk that is mounted or part of something larger.
//! Source: open(2) on `O_EXCL` for block devices; posix_fadvise(2).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use ondisk::{ReadAt, ReadError};
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};

use super::{BlockDevice, DeviceError};

/// Sectors of an image file.
const FILE_SECTOR_BYTES: u32 = 512;

/// A write of at least this is begun on the disk at once, beside the work on the next one: the kernel on its own would
/// gather a tenth of the memory first, and the flush would wait for all of that.
const SOON_BYTES: usize = 1 << 20;

/// What is written of zeros at once, to a file whose file system knows no holes.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// A range that is forgotten, in a file of the same length.
const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// What a disk is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// To be changed by nobody else meanwhile.
    Alone,
    /// To be changed beside others.
    Shared,
    /// To be read, changed by nobody meanwhile if it is a file.
    Read,
}

/// A disk or an image file, open for reading, and for writing unless it was opened to read.
#[derive(Debug)]
pub struct Disk {
    file: File,
    path: String,
    bytes: u64,
    sector_bytes: u32,
    is_block_device: bool,
    /// Whether it makes zeros without writing them: believed until it refuses.
    zeroes_at_once: bool,
}

impl Disk {
    /// Opens a disk; the kernel lends it to nobody else meanwhile. A file counts as a disk of 512-byte sectors.
    pub fn open(path: &Path) -> Result<Self, DeviceError> {
        Self::open_with_sectors(path, FILE_SECTOR_BYTES)
    }

    /// Opens a disk although its partitions are in use, or a partition that others write to as well: for a partition
    /// table and for META, whose bytes nobody else writes.
    pub fn open_shared(path: &Path) -> Result<Self, DeviceError> {
        Self::open_as(path, FILE_SECTOR_BYTES, Use::Shared)
    }

    /// Opens a disk or an image file that is only read, and may be in use. Writes fail.
    pub fn open_to_read(path: &Path) -> Result<Self, DeviceError> {
        Self::open_as(path, FILE_SECTOR_BYTES, Use::Read)
    }

    /// As [`Disk::open`], for an image file of a disk with sectors of this size. A block device knows its own.
    pub fn open_with_sectors(path: &Path, file_sector_bytes: u32) -> Result<Self, DeviceError> {
        Self::open_as(path, file_sector_bytes, Use::Alone)
    }

    pub(super) fn open_as(path: &Path, file_sector_bytes: u32, usage: Use) -> Result<Self, DeviceError> {
        let name = path.display().to_string();
        let fail = |source: io::Error| {
            let source = match source.raw_os_error().map(sys::Errno::from_raw_os_error) {
                Some(sys::Errno::BUSY) => {
                    io::Error::other("in use: mounted, or part of a RAID, a volume group or a mapping")
                }
                _ => source,
            };
            DeviceError { operation: "open", device: name.clone(), offset: 0, length: 0, source }
        };
        let is_block_device = std::fs::metadata(path).map_err(fail)?.file_type().is_block_device();
        // For a block device: exclusively. A file is locked, against another of us.
        let flags = if is_block_device && usage == Use::Alone { OFlags::EXCL } else { OFlags::empty() };
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        let file = OpenOptions::new().read(true).write(usage != Use::Read).custom_flags(flags).open(path);
        let file = file.map_err(fail)?;
        let locked = match usage {
            Use::Alone if !is_block_device => file.try_lock(),
            Use::Read if !is_block_device => file.try_lock_shared(),
            _ => Ok(()),
        };
        locked.map_err(|error| {
            fail(match error {
                TryLockError::WouldBlock if usage == Use::Read => {
                    io::Error::other("another program is changing it: try again when that has ended")
                }
                TryLockError::WouldBlock => io::Error::other(
                    "another program is changing or reading it: try again when that has ended",
                ),
                TryLockError::Error(error) => error,
            })
        })?;
        let (bytes, sector_bytes) = if is_block_device {
            let size =
                sys::block::size_bytes(&file).and_then(|bytes| Ok((bytes, sys::block::sector_bytes(&file)?)));
            size.map_err(|errno| fail(errno.into()))?
        } else {
            (file.metadata().map_err(fail)?.len(), file_sector_bytes)
        };
        Ok(Self { file, path: name, bytes, sector_bytes, is_block_device, zeroes_at_once: true })
    }

    /// Major and minor number; `None` for a file.
    #[must_use]
    pub fn device_number(&self) -> Option<(u32, u32)> {
        let number = rustix::fs::fstat(&self.file).ok().filter(|_| self.is_block_device)?.st_rdev;
        Some((rustix::fs::major(number), rustix::fs::minor(number)))
    }

    /// Whether the disk was pulled out: the kernel says of such a one that it has no bytes, or nothing at all.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_block_device && sys::block::size_bytes(&self.file) != Ok(self.bytes)
    }

    pub(super) fn failed(
        &self,
        operation: &'static str,
        offset: u64,
        length: u64,
        source: io::Error,
    ) -> DeviceError {
        DeviceError { operation, device: self.path.clone(), offset, length, source }
    }

    /// Whether these bytes are on the disk.
    #[cfg(feature = "image")]
    pub(super) fn has(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.bytes)
    }

    /// Has the kernel read the partition table anew. One whose partitions are in use keeps what the kernel knows.
    #[cfg(feature = "image")]
    pub(super) fn announce(&self) {
        if self.is_block_device {
            let _ = sys::block::reread_partitions(&self.file);
        }
    }

    /// Writes zeros where they cannot be had for nothing.
    fn write_zeros(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.is_block_device {
            return sys::block::zero_out(&self.file, offset, length).map_err(io::Error::from);
        }
        let mut done = 0;
        while done < length {
            let count = (length - done).min(ZEROS.len() as u64);
            let zeros = usize::try_from(count).ok().and_then(|count| ZEROS.get(..count));
            self.file.write_all_at(zeros.unwrap_or(&[]), offset + done)?;
            done += count;
        }
        Ok(())
    }

    /// A write behind the end of an image file would make it longer.
    fn check(&self, operation: &'static str, offset: u64, length: u64) -> Result<(), DeviceError> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(self.failed(operation, offset, length, io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

impl ReadAt for Disk {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        let failed =
            |error: io::Error| ReadError { offset, length, errno: error.raw_os_error().unwrap_or(0) };
        self.file.read_exact_at(buffer, offset).map_err(failed)
    }
}

/// A program that is being started has all open files for a moment, and a file stays locked while one has it.
impl Drop for Disk {
    fn drop(&mut self) {
        if !self.is_block_device {
            // A file system without locks has none to end.
            let _ = self.file.unlock();
        }
    }
}

impl BlockDevice for Disk {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let length = bytes.len() as u64;
        self.check("write", offset, length)?;
        let written = if self.is_block_device && bytes.len() >= SOON_BYTES {
            sys::block::write_soon(&self.file, offset, bytes).map_err(io::Error::from)
        } else {
            self.file.write_all_at(bytes, offset)
        };
        written.map_err(|error| self.failed("write", offset, length, error))
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.check("zero", offset, length)?;
        if length == 0 {
            return Ok(());
        }
        // A disk that can forget a range does so at once, whatever its length, as a file system does that knows holes.
        let zeroed = match fallocate(&self.file, HOLE, offset, length) {
            Err(sys::Errno::OPNOTSUPP) => {
                self.zeroes_at_once = false;
                self.write_zeros(offset, length)
            }
            Err(sys::Errno::INVAL) if self.is_block_device => self.write_zeros(offset, length),
            other => other.map_err(io::Error::from),
        };
        zeroed.map_err(|error| self.failed("zero", offset, length, error))
    }

    fn discard(&mut self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.check("discard", offset, length)?;
        if length == 0 {
            return Ok(true);
        }
        let done = match self.is_block_device {
            true => sys::block::discard(&self.file, offset, length),
            false => fallocate(&self.file, HOLE, offset, length),
        };
        match done {
            Ok(()) => Ok(true),
            Err(sys::Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(self.failed("discard", offset, length, errno.into())),
        }
    }

    fn zeroes_at_once(&self) -> bool {
        self.zeroes_at_once
    }

    fn is_file(&self) -> bool {
        !self.is_block_device
    }

    fn is_gone(&self) -> bool {
        // The one above.
        Self::is_gone(self)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.file.sync_all().map_err(|error| self.failed("flush", 0, self.bytes, error))?;
        fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|errno| self.failed("flush", 0, self.bytes, errno.into()))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_free_again_while_a_program_that_is_being_started_has_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let disk = Disk::open(file.path()).unwrap();
        let started = disk.file.try_clone().unwrap();
        drop(disk);
        Disk::open(file.path()).unwrap();
        drop(started);
    }
}
