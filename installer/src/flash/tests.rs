//! Images of every kind onto disks in memory, with an interruption at every single operation.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use ondisk::gpt::{Geometry, Guid, Request as Partition, Size, Table, lay_out, types};
use ondisk::{ReadAt, ReadError};

use super::*;
use crate::device::{BlockDevice, DeviceError, Memory, Recorder};

const MIB: u64 = 1 << 20;

/// A disk that fails from a certain operation on.
struct Failing {
    disk: Memory,
    operations: usize,
    fails_at: usize,
}

impl Failing {
    fn step(&mut self) -> Result<(), DeviceError> {
        self.operations += 1;
        if self.operations <= self.fails_at {
            return Ok(());
        }
        let source = std::io::Error::from_raw_os_error(5);
        Err(DeviceError { operation: "write", device: "test".into(), offset: 0, length: 1, source })
    }
}

impl ReadAt for Failing {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.disk.read_at(offset, buffer)
    }
}

impl BlockDevice for Failing {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.step()?;
        self.disk.write_at(offset, bytes)
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.step()?;
        self.disk.zero(offset, length)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.step()
    }

    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.disk.sector_bytes()
    }
}

/// A byte for each place, so that a piece in a wrong place is seen.
fn pattern(offset: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| u8::try_from((offset + at) % 251).unwrap() | 1).collect()
}

fn table(bytes: u64, sector_bytes: u32) -> Table {
    let request = |name: &str, bytes| Partition {
        name: name.into(),
        type_guid: types::LINUX,
        guid: Guid::from_seed(name.as_bytes()),
        attributes: 0,
        size: Size::Bytes(bytes),
    };
    let requests = [request("EFI", 3 * MIB), request("ROOT-A", 2 * MIB), request("META", MIB)];
    lay_out(Geometry::new(sector_bytes, bytes).unwrap(), Guid::from_seed(b"image"), &requests).unwrap()
}

/// A sparse image with a table, data in odd places and boot code.
fn disk_image(folder: &Path, sector_bytes: u32) -> PathBuf {
    let path = folder.join("image.raw");
    let file = File::create(&path).unwrap();
    file.set_len(9 * MIB).unwrap();
    for extent in table(9 * MIB, sector_bytes).extents().unwrap() {
        file.write_all_at(&extent.bytes, extent.offset).unwrap();
    }
    file.write_all_at(b"boot code", 0).unwrap();
    for (offset, length) in [(MIB - 4096, 8192), (2 * MIB + 4096, 700_000), (5 * MIB - 100, 300_000)] {
        file.write_all_at(&pattern(offset, length), offset).unwrap();
    }
    path
}

/// A disk full of somebody's data.
fn used(bytes: u64) -> Memory {
    let mut disk = Memory::new(bytes, 512);
    for at in 0..bytes / MIB {
        disk.write_at(at * MIB, &vec![0xEE; 1 << 20]).unwrap();
    }
    disk
}

fn request<'a>(image: &'a Image, note: Option<&'a Path>) -> Request<'a> {
    Request { image, name: "the disk", identity: "disk 1", note, seed: Some([7; 32]), is_blank: false }
}

/// What the disk must be afterwards: the image, its table at the disk's end with other GUIDs.
fn judge(disk: &Memory, image: &Path, sector_bytes: u32) {
    let mut disk = disk.clone();
    let bytes = disk.bytes();
    let found = ondisk::gpt::read(&mut disk, Geometry::new(sector_bytes, bytes).unwrap()).unwrap();
    assert_eq!(found.primary_fault, None);
    let before = table(9 * MIB, sector_bytes);
    assert_ne!(found.table.disk_guid, before.disk_guid);
    for (new, old) in found.table.partitions.iter().zip(&before.partitions) {
        assert_eq!((&new.name, new.first_lba, new.last_lba), (&old.name, old.first_lba, old.last_lba));
        assert_ne!(new.guid, old.guid);
    }
    // The copy at the end is whole too.
    let mut headless = disk.clone();
    headless.zero(u64::from(sector_bytes), MIB / 2).unwrap();
    let copy = ondisk::gpt::read(&mut headless, Geometry::new(sector_bytes, bytes).unwrap()).unwrap();
    assert_eq!(copy.table, found.table);
    let wanted = std::fs::read(image).unwrap();
    let tables = 40 * usize::try_from(sector_bytes).unwrap();
    let body = tables..wanted.len() - tables;
    let mut written = vec![0; wanted.len()];
    disk.read_at(0, &mut written).unwrap();
    assert!(written.starts_with(b"boot code"));
    let differs = written[body.clone()].iter().zip(&wanted[body]).position(|(a, b)| a != b);
    assert_eq!(differs, None, "bytes behind the table");
}

#[test]
fn an_image_is_written_to_a_larger_disk() {
    for sector_bytes in [512, 4096] {
        let folder = tempfile::tempdir().unwrap();
        let path = disk_image(folder.path(), sector_bytes);
        let image = Image::open(&path).unwrap();
        assert!(image.is_ours() && image.mapped_bytes() < 3 * MIB, "{}", image.mapped_bytes());
        let mut disk = Memory::new(20 * MIB, sector_bytes);
        disk.write_at(3 * MIB, &[1; 4096]).unwrap();
        let mut steps = Vec::new();
        let mut tell = |progress: crate::Progress| {
            assert!(progress.done_bytes <= progress.total_bytes);
            steps.push(progress.step);
        };
        let done = write(&request(&image, None), &mut disk, &mut tell).unwrap();
        judge(&disk, &path, sector_bytes);
        steps.dedup();
        assert_eq!(steps, ["write", "verify"]);
        assert!(done.written_bytes < 4 * MIB && done.kept_bytes == 0, "{done:?}");
    }
}

#[test]
fn a_packed_image_is_the_same_as_a_raw_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk_image(folder.path(), 512);
    let raw = std::fs::read(&path).unwrap();
    let with_size = zstd::bulk::compress(&raw, 3).unwrap();
    let without = zstd::encode_all(&raw[..], 3).unwrap();
    for (name, content) in [("with.zst", with_size), ("without.zst", without)] {
        let packed = folder.path().join(name);
        std::fs::write(&packed, content).unwrap();
        let image = Image::open(&packed).unwrap();
        assert_eq!(image.bytes(), 9 * MIB);
        let mut disk = used(12 * MIB);
        write(&request(&image, None), &mut disk, &mut crate::silent).unwrap();
        judge(&disk, &path, 512);
    }
}

#[test]
fn an_interruption_anywhere_is_gone_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk_image(folder.path(), 512);
    let note = folder.path().join("state/note.json");
    let image = Image::open(&path).unwrap();
    let mut whole = Failing { disk: used(12 * MIB), operations: 0, fails_at: usize::MAX };
    write(&request(&image, None), &mut whole, &mut crate::silent).unwrap();
    let (operations, mut kept) = (whole.operations, 0);
    for fails_at in 0..operations {
        let mut device = Failing { disk: used(12 * MIB), operations: 0, fails_at };
        write(&request(&image, Some(&note)), &mut device, &mut crate::silent).unwrap_err();
        // From the erasure on, the disk starts nothing until the first MiB is written, before the last flush.
        let mut start = vec![0; 1 << 20];
        device.disk.read_at(0, &mut start).unwrap();
        if (3..operations - 1).contains(&fails_at) {
            assert!(start.iter().all(|byte| *byte == 0), "operation {fails_at} of {operations}");
        }
        device.fails_at = usize::MAX;
        let done = write(&request(&image, Some(&note)), &mut device, &mut crate::silent).unwrap();
        kept += done.kept_bytes;
        judge(&device.disk, &path, 512);
        assert!(!note.exists());
    }
    assert!(kept > 0, "nothing was gone on from");
}

#[test]
fn a_note_that_lies_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk_image(folder.path(), 512);
    let note = folder.path().join("note.json");
    let image = Image::open(&path).unwrap();
    // Everything is noted, and somebody else has written to the disk since.
    super::journal::write(&note, image.identity(), "disk 1", 9 * MIB).unwrap();
    let mut disk = used(12 * MIB);
    let done = write(&request(&image, Some(&note)), &mut disk, &mut crate::silent).unwrap();
    assert_eq!(done.kept_bytes, 0);
    judge(&disk, &path, 512);
    // Another disk's note is nobody's.
    super::journal::write(&note, image.identity(), "disk 2", 9 * MIB).unwrap();
    assert_eq!(super::journal::read(&note, image.identity(), "disk 1"), 0);
}

/// Whatever a power cut leaves, the next attempt makes whole, with a note from any time before.
#[test]
fn a_power_cut_anywhere_is_gone_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk_image(folder.path(), 512);
    let note = folder.path().join("note.json");
    let image = Image::open(&path).unwrap();
    let mut recorder = Recorder::new(used(10 * MIB));
    write(&request(&image, None), &mut recorder, &mut crate::silent).unwrap();
    let (recording, _) = recorder.finish();
    let states = recording.each_state(&|_| false, |state| {
        let mut disk = state.disk;
        super::journal::write(&note, image.identity(), "disk 1", 6 * MIB).unwrap();
        write(&request(&image, Some(&note)), &mut disk, &mut crate::silent).unwrap();
        judge(&disk, &path, 512);
    });
    assert!(states > 20, "{states}");
}

#[test]
fn what_is_no_disk_image_is_written_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain");
    for length in [100_usize, 700_000, 3_000_000] {
        std::fs::write(&path, pattern(0, length)).unwrap();
        let image = Image::open(&path).unwrap();
        assert!(image.table().is_none() && !image.is_ours());
        let mut disk = used(4 * MIB);
        write(&request(&image, None), &mut disk, &mut crate::silent).unwrap();
        let mut found = vec![0; length];
        disk.read_at(0, &mut found).unwrap();
        assert!(found == pattern(0, length), "{length}");
    }
}

#[test]
fn what_cannot_be_written_is_refused_before_the_first_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk_image(folder.path(), 512);
    let image = Image::open(&path).unwrap();
    let refused = |mut disk: Memory| {
        let before = disk.clone();
        let error = write(&request(&image, None), &mut disk, &mut crate::silent).unwrap_err().to_string();
        assert_eq!(disk.blocks_unlike(&before).count(), 0);
        error
    };
    assert!(refused(used(8 * MIB)).contains("needs 9437184 bytes, and the disk has 8388608"));
    let error = refused(Memory::new(20 * MIB, 4096));
    assert!(error.contains("sectors of 512 bytes, and those of the disk have 4096"), "{error}");
    assert!(error.contains("--sector-size 4096"), "{error}");
    for (start, text) in
        [(&b"QFI\xfb...."[..], "qemu-img convert -O raw"), (b"\xfd7zXZ\0", "xz --decompress"), (b"", "empty")]
    {
        let other = folder.path().join("other");
        std::fs::write(&other, start).unwrap();
        let error = Image::open(&other).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    assert!(Image::open(folder.path()).is_err());
}

#[test]
fn a_disk_that_does_not_keep_what_is_written_is_found_out() {
    struct Liar(Memory);
    impl ReadAt for Liar {
        fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
            self.0.read_at(offset, buffer)
        }
    }
    impl BlockDevice for Liar {
        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
            // Sticks that claim more than they have write to the wrong place.
            let kept = if offset >= 4 * MIB { offset - 4 * MIB } else { offset };
            self.0.write_at(kept, bytes)
        }
        fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
            self.0.zero(offset, length)
        }
        fn flush(&mut self) -> Result<(), DeviceError> {
            Ok(())
        }
        fn bytes(&self) -> u64 {
            self.0.bytes()
        }
        fn sector_bytes(&self) -> u32 {
            512
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let image = disk_image(folder.path(), 512);
    let image = Image::open(&image).unwrap();
    let mut disk = Liar(used(12 * MIB));
    let error = write(&request(&image, None), &mut disk, &mut crate::silent).unwrap_err().to_string();
    assert!(error.contains("reads back differently") && error.contains("faulty"), "{error}");
}
