//! Images of every kind onto disks in memory, with an interruption at every single operation.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use ondisk::gpt::{Geometry, Guid, Request as Partition, Size, Table, lay_out, types};
use ondisk::{ReadAt, ReadError};

use super::*;
use crate::device::{BlockDevice, DeviceError, Memory, Recorder};
use crate::error::in_full;

pub(super) const MIB: u64 = 1 << 20;

/// A disk that counts, and fails from a certain operation on.
pub(super) struct Counted {
    pub(super) disk: Memory,
    pub(super) operations: usize,
    pub(super) fails_at: usize,
    pub(super) failure: Failure,
    /// What it was told to make zeros.
    pub(super) zeroed_bytes: u64,
    pub(super) zeroes_at_once: bool,
    /// A byte that no zeros get to.
    pub(super) stuck: Option<u64>,
}

/// In which way a disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    errno: i32,
    is_file: bool,
    is_gone: bool,
    /// What is said.
    said: &'static str,
}

const BROKEN: Failure = Failure {
    errno: 5, // EIO
    is_file: false,
    is_gone: false,
    said: "the disk stopped taking the image: run the same command again once it is there",
};

/// What Linux answers when a disk without a length is written to.
const GONE: Failure =
    Failure { errno: 28, is_gone: true, said: "the disk is gone: put it back and run", ..BROKEN };

/// A disk that is made of what does not suffice.
const THIN: Failure = Failure { errno: 28, ..BROKEN };

const FULL: Failure = Failure {
    errno: 28, // ENOSPC
    is_file: true,
    said: "the file system of the disk is full: make room there and run",
    ..BROKEN
};

impl Counted {
    pub(super) fn new(disk: Memory) -> Self {
        let (operations, fails_at, failure) = (0, usize::MAX, BROKEN);
        let (zeroed_bytes, zeroes_at_once, stuck) = (0, true, None);
        Self { disk, operations, fails_at, failure, zeroed_bytes, zeroes_at_once, stuck }
    }

    /// One that can make no zeros without writing them.
    pub(super) fn slow(disk: Memory) -> Self {
        Self { zeroes_at_once: false, ..Self::new(disk) }
    }

    fn has_failed(&self) -> bool {
        self.operations > self.fails_at
    }

    fn step(&mut self) -> Result<(), DeviceError> {
        self.operations += 1;
        if !self.has_failed() {
            return Ok(());
        }
        let source = std::io::Error::from_raw_os_error(self.failure.errno);
        Err(DeviceError { operation: "write", device: "test".into(), offset: 0, length: 1, source })
    }
}

impl ReadAt for Counted {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.disk.read_at(offset, buffer)
    }
}

impl BlockDevice for Counted {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.step()?;
        self.disk.write_at(offset, bytes)
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.step()?;
        self.zeroed_bytes += length;
        self.disk.zero(offset, length)?;
        match self.stuck.filter(|stuck| (offset..offset + length).contains(stuck)) {
            Some(stuck) => self.disk.write_at(stuck, &[1]),
            None => Ok(()),
        }
    }

    fn zeroes_at_once(&self) -> bool {
        self.zeroes_at_once
    }

    fn is_file(&self) -> bool {
        self.failure.is_file
    }

    fn is_gone(&self) -> bool {
        self.has_failed() && self.failure.is_gone
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
pub(super) fn pattern(offset: u64, length: usize) -> Vec<u8> {
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
pub(super) fn disk_image(directory: &Path, sector_bytes: u32) -> PathBuf {
    let path = directory.join("image.raw");
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
pub(super) fn used(bytes: u64) -> Memory {
    let mut disk = Memory::new(bytes, 512);
    for at in 0..bytes / MIB {
        disk.write_at(at * MIB, &vec![0xEE; 1 << 20]).unwrap();
    }
    disk
}

pub(super) fn request<'a>(image: &'a Image, note: Option<&'a Path>) -> Request<'a> {
    Request { image, name: "the disk", identity: "disk 1", note, seed: Some([7; 32]), is_blank: false }
}

/// What the disk must be afterwards: the image, its table at the disk's end with other GUIDs.
pub(super) fn judge(disk: &Memory, image: &Path, sector_bytes: u32) {
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
        let directory = tempfile::tempdir().unwrap();
        let path = disk_image(directory.path(), sector_bytes);
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
    let directory = tempfile::tempdir().unwrap();
    let path = disk_image(directory.path(), 512);
    let raw = std::fs::read(&path).unwrap();
    let with_size = zstd::bulk::compress(&raw, 3).unwrap();
    let without = zstd::encode_all(&raw[..], 3).unwrap();
    for (name, content) in [("with.zst", with_size), ("without.zst", without)] {
        let packed = directory.path().join(name);
        std::fs::write(&packed, content).unwrap();
        let image = Image::open(&packed).unwrap();
        assert_eq!(image.bytes(), 9 * MIB);
        let mut disk = used(12 * MIB);
        write(&request(&image, None), &mut disk, &mut crate::silent).unwrap();
        judge(&disk, &path, 512);
    }
}

/// Of a raw image, and of one that is unpacked on the way and has no place to begin in the middle; whatever the disk fails
/// by, and whether it makes zeros by itself.
#[test]
fn an_interruption_anywhere_is_gone_on_from() {
    let directory = tempfile::tempdir().unwrap();
    let raw = disk_image(directory.path(), 512);
    let packed = directory.path().join("image.raw.zst");
    std::fs::write(&packed, zstd::encode_all(&std::fs::read(&raw).unwrap()[..], 3).unwrap()).unwrap();
    for path in [&raw, &packed] {
        let image = Image::open(path).unwrap();
        assert_eq!(image.is_packed(), path == &packed);
        let all = [(BROKEN, true), (BROKEN, false), (GONE, true), (GONE, false), (THIN, true), (FULL, true)];
        // How a disk fails has to do with no form of the image.
        for (failure, zeroes_at_once) in all.into_iter().take(if image.is_packed() { 2 } else { all.len() }) {
            let failing = |fails_at| {
                let disk = Counted::new(used(12 * MIB));
                Counted { fails_at, failure, zeroes_at_once, ..disk }
            };
            let kept = sweep(&image, &raw, &failing);
            assert!(kept > 0, "nothing was gone on from: {failure:?}");
        }
    }
}

/// Interrupts before every single operation and goes on. Returns the bytes that did not have to be written again.
fn sweep(image: &Image, raw: &Path, failing: &dyn Fn(usize) -> Counted) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let note = directory.path().join("state/note.json");
    let mut whole = failing(usize::MAX);
    write(&request(image, None), &mut whole, &mut crate::silent).unwrap();
    let (operations, mut kept) = (whole.operations, 0);
    for fails_at in 0..operations {
        let mut device = failing(fails_at);
        let error = write(&request(image, Some(&note)), &mut device, &mut crate::silent).unwrap_err();
        let said = in_full(&error);
        let why = std::io::Error::from_raw_os_error(device.failure.errno).to_string();
        assert!(
            said.starts_with(device.failure.said)
                && said.contains("it goes on where it was")
                && said.contains(&format!("of test: {why}")),
            "{said}"
        );
        assert!(!error.is_of_image(), "{said}");
        // From the erasure on, the disk starts nothing until the first MiB is written, before the last flush.
        let mut start = vec![0; 1 << 20];
        device.disk.read_at(0, &mut start).unwrap();
        if (3..operations - 1).contains(&fails_at) {
            assert!(start.iter().all(|byte| *byte == 0), "operation {fails_at} of {operations}");
        }
        device.fails_at = usize::MAX;
        let done = write(&request(image, Some(&note)), &mut device, &mut crate::silent).unwrap();
        kept += done.kept_bytes;
        judge(&device.disk, raw, 512);
        assert!(!note.exists());
    }
    kept
}

/// Nobody loses a disk for a note: who can keep none is told before, and whatever happens to it later is no reason to stop.
#[test]
fn a_note_that_cannot_be_kept_stops_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = disk_image(directory.path(), 512);
    let image = Image::open(&path).unwrap();
    let good = directory.path().join("state/note.json");
    check_note(&good).unwrap();
    assert_eq!(
        std::fs::read_dir(directory.path().join("state")).unwrap().count(),
        0,
        "it leaves nothing behind"
    );
    let in_the_way = directory.path().join("file");
    std::fs::write(&in_the_way, "a file where a directory is wanted").unwrap();
    let note = in_the_way.join("note.json");
    let said = in_full(&check_note(&note).unwrap_err());
    assert!(said.contains("keep the note") && said.contains("note.json"), "{said}");
    let mut disk = used(12 * MIB);
    write(&request(&image, Some(&note)), &mut disk, &mut crate::silent).unwrap();
    judge(&disk, &path, 512);
}

#[test]
fn a_note_that_lies_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let path = disk_image(directory.path(), 512);
    let note = directory.path().join("note.json");
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
    let directory = tempfile::tempdir().unwrap();
    let path = disk_image(directory.path(), 512);
    let note = directory.path().join("note.json");
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
fn what_is_no_disk_image_is_written_as_it_is_if_that_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plain");
    for length in [100_usize, 700_000, 3_000_000] {
        let packed = zstd::encode_all(&pattern(0, length)[..], 3).unwrap();
        for content in [pattern(0, length), packed] {
            std::fs::write(&path, content).unwrap();
            let error = Image::open(&path).unwrap_err().to_string();
            assert!(error.contains("neither a partition table") && error.contains("--as-is"), "{error}");
            let image = Image::open_as_is(&path).unwrap();
            assert!(image.table().is_none() && !image.is_ours());
            let mut disk = used(4 * MIB);
            write(&request(&image, None), &mut disk, &mut crate::silent).unwrap();
            let mut found = vec![0; length];
            disk.read_at(0, &mut found).unwrap();
            assert!(found == pattern(0, length), "{length}");
        }
    }
}

#[test]
fn an_image_that_was_cut_off_is_refused_raw_and_packed() {
    let directory = tempfile::tempdir().unwrap();
    for sector_bytes in [512, 4096] {
        let path = disk_image(directory.path(), sector_bytes);
        // The last partition ends with the seventh MiB.
        File::options().write(true).open(&path).unwrap().set_len(6 * MIB).unwrap();
        let raw = std::fs::read(&path).unwrap();
        let packed = directory.path().join("cut.raw.zst");
        std::fs::write(&packed, zstd::encode_all(&raw[..], 3).unwrap()).unwrap();
        for path in [&path, &packed] {
            let error = Image::open(path).unwrap_err();
            let text = error.to_string();
            let wanted = "is cut off: its partition table reaches to byte 7340032, and it has 6291456 bytes; fetch or build";
            assert!(text.contains(wanted) && error.is_of_image(), "{text}");
        }
        assert_eq!(Image::open_as_is(&path).unwrap().bytes(), 6 * MIB);
    }
    let path = disk_image(directory.path(), 512);
    let packed = zstd::encode_all(&std::fs::read(&path).unwrap()[..], 3).unwrap();
    let short = directory.path().join("short.zst");
    std::fs::write(&short, &packed[..packed.len() - 100]).unwrap();
    for open in [Image::open, Image::open_as_is] {
        let text = open(&short).unwrap_err().to_string();
        assert!(text.contains("is cut off: it ends in the middle") && text.contains("fetch"), "{text}");
    }
    let mut damaged = packed.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    std::fs::write(&short, &damaged).unwrap();
    let error = match Image::open(&short) {
        Err(error) => error,
        Ok(image) => write(&request(&image, None), &mut used(12 * MIB), &mut crate::silent).unwrap_err(),
    };
    assert!(error.is_of_image() && error.to_string().contains("fetch or build it again"), "{error}");
}

#[test]
fn an_iso_that_was_cut_off_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image.iso");
    let mut iso = vec![0; 3 << 20];
    let at = ondisk::iso9660::DESCRIPTOR_OFFSET;
    iso[at..at + 6].copy_from_slice(b"\x01CD001");
    iso[at + 80..at + 84].copy_from_slice(&1536_u32.to_le_bytes());
    iso[at + 128..at + 130].copy_from_slice(&2048_u16.to_le_bytes());
    std::fs::write(&path, &iso).unwrap();
    assert_eq!(Image::open(&path).unwrap().bytes(), 3 * MIB);
    std::fs::write(&path, &iso[..iso.len() - 2048]).unwrap();
    let error = Image::open(&path).unwrap_err().to_string();
    assert!(error.contains("its ISO 9660 volume reaches to byte 3145728, and it has 3143680"), "{error}");
}

/// Its partitions are all there: the table's copy is made anew on every disk.
#[test]
fn an_image_without_the_copy_of_its_table_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = disk_image(directory.path(), 512);
    let before = Image::open(&path).unwrap().table().unwrap().clone();
    // Right behind the last partition, where the copy of a table would be if the file were a disk.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&pattern(0, 4096), 7 * MIB - 4096).unwrap();
    file.set_len(7 * MIB).unwrap();
    let image = Image::open(&path).unwrap();
    assert_eq!(image.table().unwrap().partitions, before.partitions);
    let mut disk = used(12 * MIB);
    write(&request(&image, None), &mut disk, &mut crate::silent).unwrap();
    let found = ondisk::gpt::read(&mut disk, Geometry::new(512, 12 * MIB).unwrap()).unwrap();
    assert_eq!((found.primary_fault, found.table.partitions.len()), (None, 3));
    let mut end = vec![0; 4096];
    disk.read_at(7 * MIB - 4096, &mut end).unwrap();
    assert!(end == pattern(0, 4096), "the end of the last partition");
}

#[test]
fn what_cannot_be_written_is_refused_before_the_first_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = disk_image(directory.path(), 512);
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
        let other = directory.path().join("other");
        for packed in [false, true] {
            let content = if packed { zstd::encode_all(start, 3).unwrap() } else { start.to_vec() };
            std::fs::write(&other, content).unwrap();
            let error = Image::open(&other).unwrap_err().to_string();
            assert!(error.contains(text) || (packed && start.is_empty()), "{error}");
        }
    }
    assert!(Image::open(directory.path()).is_err());
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
    let directory = tempfile::tempdir().unwrap();
    let image = disk_image(directory.path(), 512);
    let image = Image::open(&image).unwrap();
    let mut disk = Liar(used(12 * MIB));
    let error = write(&request(&image, None), &mut disk, &mut crate::silent).unwrap_err().to_string();
    assert!(error.contains("reads back differently") && error.contains("faulty"), "{error}");
}
