//! One block device, read by our own code: what is on it may be made to do harm, and drivers of the kernel are not
//! made for that.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use ondisk::probe::Kind;
use ondisk::{ReadAt, ReadError};

/// A device as the readers of `ondisk` want it.
pub(crate) struct Opened(pub(super) File);

impl Opened {
    /// Opens it for reading.
    pub(crate) fn open(device: &Path) -> std::io::Result<Self> {
        File::open(device).map(Self)
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> std::io::Result<u64> {
        (&self.0).seek(SeekFrom::End(0))
    }
}

impl ReadAt for Opened {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        self.0.read_exact_at(buffer, offset).map_err(|error| ReadError {
            offset,
            length,
            errno: error.raw_os_error().unwrap_or(0),
        })
    }
}

/// Label and kind of what lies on a device.
pub(crate) fn probe(device: &Path) -> std::io::Result<Option<(String, Kind)>> {
    let mut start = Vec::new();
    let limit = u64::try_from(ondisk::probe::PROBE_BYTES).unwrap_or(u64::MAX);
    File::open(device)?.take(limit).read_to_end(&mut start)?;
    Ok(ondisk::probe::probe(&start).map(|found| (found.label, found.kind)))
}

/// Disks and partitions, sorted; loop and device-mapper devices carry the system itself.
pub(crate) fn disks_and_partitions(class: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(class) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let ours = |name: &String| ["loop", "dm-", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix));
    let mut devices: Vec<_> =
        names.filter(|name| !ours(name)).map(|name| Path::new("/dev").join(name)).collect();
    devices.sort();
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_own_devices_are_not_searched() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["vdb", "loop0", "dm-1", "vda1", "vda"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let names: Vec<_> =
            disks_and_partitions(dir.path()).iter().map(|path| path.display().to_string()).collect();
        assert_eq!(names, ["/dev/vda", "/dev/vda1", "/dev/vdb"]);
    }
}
