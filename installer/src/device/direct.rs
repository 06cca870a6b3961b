//! A disk that is written past the kernel's cache: what was written is on its way to the medium, and the memory of the
//! machine is not filled with an image.
//!
//! Owns: aligned buffers, and the choice for each access: past the cache where place, length and memory are aligned and the
//! target can do it, through the cache otherwise.
//! Source: open(2) on `O_DIRECT`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use ondisk::{ReadAt, ReadError};
use rustix::fs::OFlags;

use super::disk::Use;
use super::{BlockDevice, DeviceError, Disk};

/// What every disk and file system takes: the largest sector and the page.
const ALIGNMENT: usize = 4096;

/// Bytes at an address that is a multiple of 4096.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// `length` zeros.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        // Moving the vector does not move its bytes.
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start, length }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..self.start + self.length).unwrap_or(&[])
    }

    /// The bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..self.start + self.length).unwrap_or(&mut [])
    }
}

/// A disk or an image file that is written past the cache.
#[derive(Debug)]
pub struct Direct {
    cached: Disk,
    /// The same, past the cache; none where that is not possible.
    direct: Option<File>,
}

impl Direct {
    /// Opens a disk or an image file; `shared`: although somebody uses it.
    pub fn open(path: &Path, file_sector_bytes: u32, shared: bool) -> Result<Self, DeviceError> {
        let usage = if shared { Use::Shared } else { Use::Alone };
        let cached = Disk::open_as(path, file_sector_bytes, usage)?;
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        // A file system in memory has no way past the cache.
        let direct = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok();
        Ok(Self { cached, direct })
    }

    /// Whether accesses go past the cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Has the kernel read the partition table anew, if it is a disk that has partitions.
    pub fn announce(&self) {
        self.cached.announce();
    }

    fn aligned(&self, offset: u64, bytes: &[u8]) -> Option<&File> {
        let alignment = ALIGNMENT as u64;
        let fits = bytes.as_ptr().align_offset(ALIGNMENT) == 0
            && bytes.len().is_multiple_of(ALIGNMENT)
            && offset.is_multiple_of(alignment);
        self.direct.as_ref().filter(|_| fits)
    }
}

impl ReadAt for Direct {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        match self.aligned(offset, buffer) {
            Some(file) => match file.read_exact_at(buffer, offset) {
                Ok(()) => Ok(()),
                // The cached way tells the error, if there is one.
                Err(_) => self.cached.read_at(offset, buffer),
            },
            None => self.cached.read_at(offset, buffer),
        }
    }
}

impl BlockDevice for Direct {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let Some(file) = self.aligned(offset, bytes).filter(|_| self.cached.has(offset, bytes.len() as u64))
        else {
            return self.cached.write_at(offset, bytes);
        };
        match file.write_all_at(bytes, offset) {
            Ok(()) => Ok(()),
            // Some file systems take the flag and refuse the write.
            Err(error) if error.raw_os_error() == Some(sys::Errno::INVAL.raw_os_error()) => {
                self.direct = None;
                self.cached.write_at(offset, bytes)
            }
            Err(error) => Err(self.cached.failed("write", offset, bytes.len() as u64, error)),
        }
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.cached.zero(offset, length)
    }

    fn zeroes_at_once(&self) -> bool {
        self.cached.zeroes_at_once()
    }

    fn is_file(&self) -> bool {
        self.cached.is_file()
    }

    fn is_gone(&self) -> bool {
        self.cached.is_gone()
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.cached.flush()
    }

    fn bytes(&self) -> u64 {
        self.cached.bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.cached.sector_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Falling back to the cache must not go unnoticed where nothing forces it.
    #[test]
    fn a_file_is_opened_past_the_cache_where_its_file_system_can_do_that() {
        // The directory of this program lies on a disk more often than the one for temporary files.
        let here = std::env::current_exe().unwrap();
        let directories = [std::env::temp_dir(), here.parent().unwrap().to_owned()];
        for directory in directories.map(|directory| tempfile::tempdir_in(directory).unwrap()) {
            let path = directory.path().join("disk");
            File::create(&path).unwrap().set_len(1 << 20).unwrap();
            let flags = OFlags::RDWR | OFlags::DIRECT;
            let can = match rustix::fs::open(&path, flags, rustix::fs::Mode::empty()) {
                Ok(_) => true,
                Err(rustix::io::Errno::INVAL) => false,
                Err(error) => panic!("open {} past the cache: {error}", path.display()),
            };
            let mut device = Direct::open(&path, 512, false).unwrap();
            assert_eq!(device.is_direct(), can, "{}", path.display());
            let mut buffer = Buffer::new(ALIGNMENT);
            buffer.bytes_mut().fill(7);
            assert_eq!(device.aligned(4096, buffer.bytes()).is_some(), can);
            device.write_at(4096, buffer.bytes()).unwrap();
            device.write_at(9000, b"odd").unwrap();
            assert_eq!(device.is_direct(), can, "writing gave it up");
        }
    }

    #[test]
    fn aligned_and_other_accesses_see_the_same_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let mut device = Direct::open(&path, 512, false).unwrap();
        let mut buffer = Buffer::new(65536);
        buffer.bytes_mut().fill(7);
        device.write_at(8192, buffer.bytes()).unwrap();
        device.write_at(9000, b"odd").unwrap();
        device.flush().unwrap();
        let mut read = Buffer::new(65536);
        device.read_at(8192, read.bytes_mut()).unwrap();
        assert_eq!(read.bytes().get(808..811), Some(&b"odd"[..]));
        assert!(read.bytes().iter().filter(|byte| **byte == 7).count() == 65533);
        assert!(device.write_at((1 << 20) - 4096, buffer.bytes()).is_err(), "a file must not grow");
        assert!(Direct::open(&path, 512, false).is_err(), "one of us at a time");
    }
}
