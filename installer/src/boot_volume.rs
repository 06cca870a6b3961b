//! The volume that firmware starts a disk or medium from, for reading: where it lies, and what lies where in it.
//!
//! Owns: the way from a disk to a file on its EFI system partition, which images for CD drives and sticks have too; which
//! system starts from there.
//! Does not: write; [`crate::esp`] does, on disks of nodes.
//! Source: UEFI specification 2.10 §3.5.1.1 (where firmware looks); docs/formats/disk.md.

use ondisk::gpt::{self, Geometry};
#[cfg(feature = "image")]
use ondisk::pe::Image;
use ondisk::{Architecture, ReadAt, ReadError, fat};

#[cfg(feature = "image")]
use crate::entries;

#[cfg(test)]
pub(crate) mod tests;

/// Longest UKI that is read: kernel and initramfs together are about 20 MB.
pub(crate) const MAX_UKI_BYTES: u32 = 256 << 20;

/// Sectors that partition tables count in.
const SECTOR_BYTES: [u32; 2] = [512, 4096];

/// Its partition.
const PARTITION: &str = "EFI";

/// Where firmware looks for a boot loader when no variable names one.
#[must_use]
pub const fn loader_path(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "EFI/BOOT/BOOTX64.EFI",
        Architecture::Arm64 => "EFI/BOOT/BOOTAA64.EFI",
    }
}

/// Why nothing of it could be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A disk without the partition.
    #[error(
        "there is no GUID partition table with a partition EFI: it is no raw disk or ISO image of Billet"
    )]
    NoVolume,
    /// The disk could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The table could not be read.
    #[error(transparent)]
    Table(#[from] gpt::Error),
    /// The volume is damaged.
    #[error("the volume of partition EFI")]
    Volume(#[from] fat::Error),
}

/// Start and length of the volume that firmware starts a disk or medium from. CD drives have sectors of 2048 bytes, and
/// their table counts in 512 all the same.
pub fn place(disk: &mut impl ReadAt, disk_bytes: u64) -> Result<(u64, u64), Error> {
    for sector_bytes in SECTOR_BYTES {
        let Ok(geometry) = Geometry::new(sector_bytes, disk_bytes) else { continue };
        let table = match gpt::read(disk, geometry) {
            Ok(found) => found.table,
            Err(gpt::Error::Read(error)) => return Err(error.into()),
            Err(_) => continue,
        };
        let partition = table.by_name(PARTITION).ok_or(Error::NoVolume)?;
        return Ok((table.offset_bytes(partition), table.size_bytes(partition)));
    }
    Err(Error::NoVolume)
}

/// The volume that firmware starts a disk or medium from. `None`: there is none.
pub(crate) fn open<R: ReadAt>(disk: &mut R, disk_bytes: u64) -> Result<Option<Window<'_, R>>, Error> {
    match place(disk, disk_bytes) {
        Err(Error::NoVolume) => Ok(None),
        found => {
            let (start, length) = found?;
            Ok(Some(Window { disk, start, length }))
        }
    }
}

/// A file on that volume. `None`: there is none, or no such volume.
pub fn file(
    disk: &mut impl ReadAt,
    disk_bytes: u64,
    path: &str,
    limit_bytes: u32,
) -> Result<Option<Vec<u8>>, Error> {
    let Some(volume) = open(disk, disk_bytes)? else { return Ok(None) };
    match fat::Reader::open(volume).and_then(|mut reader| reader.read(path, limit_bytes)) {
        Err(fat::Error::NotFound(_) | fat::Error::NotFat32) => Ok(None),
        file => Ok(Some(file?)),
    }
}

/// The command line of the system that a disk or medium of ours starts. `None`: it starts none.
#[cfg(feature = "image")]
pub fn command_line(disk: &mut impl ReadAt, disk_bytes: u64) -> Result<Option<String>, Error> {
    // Behind a boot loader it has a name of its own; without one it lies where the firmware looks.
    let newest = newest_uki(disk, disk_bytes)?.map(|name| format!("{}/{name}", entries::DIRECTORY));
    for path in newest.into_iter().chain(Architecture::ALL.map(loader_path).map(str::to_owned)) {
        let Some(program) = file(disk, disk_bytes, &path, MAX_UKI_BYTES)? else { continue };
        let line = Image::parse(&program).ok().and_then(|program| program.section(".cmdline"));
        if let Some(line) = line {
            return Ok(Some(String::from_utf8_lossy(line).trim_end_matches('\0').to_owned()));
        }
    }
    Ok(None)
}

/// The name of the UKI of the highest generation. `None`: there is none.
#[cfg(feature = "image")]
fn newest_uki(disk: &mut impl ReadAt, disk_bytes: u64) -> Result<Option<String>, Error> {
    let Some(volume) = open(disk, disk_bytes)? else { return Ok(None) };
    let files = match fat::Reader::open(volume).and_then(|mut reader| reader.list(entries::DIRECTORY)) {
        Err(fat::Error::NotFound(_) | fat::Error::NotFat32) => return Ok(None),
        files => files?,
    };
    let names = files.into_iter().filter(|file| !file.is_dir).map(|file| file.name);
    let ours = names.filter_map(|name| entries::Entry::parse(&name).map(|entry| (entry.generation, name)));
    Ok(ours.max().map(|(_, name)| name))
}

/// A part of a disk, for reading.
pub(crate) struct Window<'d, R> {
    disk: &'d mut R,
    start: u64,
    length: u64,
}

impl<R: ReadAt> ReadAt for Window<'_, R> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let outside = ReadError { offset, length: buffer.len(), errno: 0 };
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.length);
        let place = end.and(self.start.checked_add(offset)).ok_or(outside)?;
        self.disk.read_at(place, buffer)
    }
}
