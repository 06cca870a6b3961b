//! Zeros of images on disks that can make none without writing them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use ondisk::gpt::{Geometry, Guid, Request as Partition, Size, lay_out, types};

use super::tests::{Counted, MIB, pattern, request, used};
use super::*;
use crate::device::BlockDevice as _;

/// Of the image.
pub(super) const BYTES: u64 = 20 * MIB;

/// Behind the layers of the first slot, and in the second one.
const LEFT: [std::ops::Range<u64>; 2] = [6 * MIB..10 * MIB, 12 * MIB..16 * MIB];

/// Where the content is: two clusters of the EFI system partition, two layers with zeros between them, none in the second
/// slot.
const CONTENT: [(u64, u64); 4] =
    [(MIB, MIB / 4), (5 * MIB / 2, MIB / 4), (3 * MIB, 3 * MIB / 2), (5 * MIB, MIB)];

/// A sparse image with slots of 8 and 6 MiB of this name.
pub(super) fn slots_image(directory: &Path, slot: &str, sector_bytes: u32) -> PathBuf {
    let path = directory.join(format!("{slot}.raw"));
    let file = File::create(&path).unwrap();
    file.set_len(BYTES).unwrap();
    let (other, parts) = (format!("{slot}-B"), format!("{slot}-A"));
    let requests = [("EFI", 2), (&parts, 8), (&other, 6), ("META", 1)].map(|(name, mebibytes)| Partition {
        name: name.into(),
        type_guid: types::LINUX,
        guid: Guid::from_seed(name.as_bytes()),
        attributes: 0,
        size: Size::Bytes(mebibytes * MIB),
    });
    let geometry = Geometry::new(sector_bytes, BYTES).unwrap();
    let table = lay_out(geometry, Guid::from_seed(b"image"), &requests).unwrap();
    for extent in table.extents().unwrap() {
        file.write_all_at(&extent.bytes, extent.offset).unwrap();
    }
    for (offset, length) in CONTENT {
        file.write_all_at(&pattern(offset, usize::try_from(length).unwrap()), offset).unwrap();
    }
    path
}

/// The image in each of its forms: with holes, without, packed.
fn forms(directory: &Path) -> [PathBuf; 3] {
    let raw = slots_image(directory, "ROOT", 512);
    let (dense, packed) = (directory.join("dense"), directory.join("packed"));
    let content = std::fs::read(&raw).unwrap();
    std::fs::write(&dense, &content).unwrap();
    std::fs::write(&packed, zstd::encode_all(&content[..], 3).unwrap()).unwrap();
    [raw, dense, packed]
}

/// Where a disk full of 0xEE is not as the image wants it, in mebibytes: between its tables.
pub(super) fn untouched(disk: &mut dyn ondisk::ReadAt, raw: &Path) -> Vec<u64> {
    let wanted = std::fs::read(raw).unwrap();
    let mebibyte = usize::try_from(MIB).unwrap();
    let mut found = vec![0; mebibyte];
    (1..19)
        .filter(|at| {
            disk.read_at(at * MIB, &mut found).unwrap();
            let start = usize::try_from(at * MIB).unwrap();
            let differs = found != wanted[start..start + mebibyte];
            assert!(!differs || found.iter().all(|byte| *byte == 0xEE), "MiB {at} holds something else");
            differs
        })
        .collect()
}

/// Mebibytes that are left alone.
pub(super) fn left() -> Vec<u64> {
    LEFT.into_iter().flat_map(|range| range.start / MIB..range.end / MIB).collect()
}

#[test]
fn zeros_behind_the_layers_are_not_written_in_whatever_form_the_image_comes() {
    let directory = tempfile::tempdir().unwrap();
    let forms = forms(directory.path());
    for path in &forms {
        let image = Image::open(path).unwrap();
        let mut disk = Counted::slow(used(24 * MIB));
        let done = write(&request(&image, None), &mut disk, &mut crate::silent).unwrap();
        assert_eq!(untouched(&mut disk.disk, &forms[0]), left(), "{}", path.display());
        assert_eq!((done.left_bytes, done.zeroed_bytes), (8 * MIB, disk.zeroed_bytes));
        assert!(disk.zeroed_bytes < 11 * MIB, "{}", disk.zeroed_bytes);
        // Where zeros cost nothing, every byte is the image's.
        let mut disk = Counted::new(used(24 * MIB));
        let done = write(&request(&image, None), &mut disk, &mut crate::silent).unwrap();
        assert_eq!((untouched(&mut disk.disk, &forms[0]), done.left_bytes), (Vec::new(), 0));
        assert!(disk.zeroed_bytes > 15 * MIB, "{}", disk.zeroed_bytes);
    }
}

/// Of what is not ours nobody knows who reads what, nor of a file that is written as it is.
#[test]
fn all_zeros_of_other_images_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, other) =
        (slots_image(directory.path(), "ROOT", 512), slots_image(directory.path(), "data", 512));
    for (path, image) in [
        (&ours, Image::open_as_is(&ours)),
        (&other, Image::open(&other)),
        (&other, Image::open_as_is(&other)),
    ] {
        let image = image.unwrap();
        assert_eq!(image.zero_bytes(), Some(BYTES - image.mapped_bytes()));
        let mut disk = Counted::slow(used(24 * MIB));
        let done = write(&request(&image, None), &mut disk, &mut crate::silent).unwrap();
        assert_eq!((untouched(&mut disk.disk, path), done.left_bytes), (Vec::new(), 0));
    }
}

/// Of the zeros that are written the time left must know.
#[test]
fn zeros_that_are_written_count_in_the_progress() {
    let directory = tempfile::tempdir().unwrap();
    let [raw, dense, packed] = forms(directory.path());
    let mapped = Image::open(&raw).unwrap().mapped_bytes();
    for (path, slow, total) in [
        (&raw, true, BYTES - 8 * MIB),
        (&raw, false, mapped),
        (&dense, true, BYTES),
        (&packed, true, BYTES),
        (&packed, false, BYTES),
    ] {
        let image = Image::open(path).unwrap();
        let disk = used(24 * MIB);
        let mut disk = if slow { Counted::slow(disk) } else { Counted::new(disk) };
        let mut told: Vec<(&str, u64)> = Vec::new();
        let mut tell = |progress: crate::Progress| {
            assert!(
                told.last()
                    .is_none_or(|(step, done)| { *step != progress.step || *done <= progress.done_bytes })
            );
            assert_eq!(progress.total_bytes, total);
            told.push((progress.step, progress.done_bytes));
        };
        write(&request(&image, None), &mut disk, &mut tell).unwrap();
        for step in ["write", "verify"] {
            assert!(told.iter().filter(|(name, _)| *name == step).count() > 5, "{told:?}");
        }
    }
    let image = Image::open(&raw).unwrap();
    assert_eq!(image.zero_bytes(), Some(BYTES - image.mapped_bytes() - 8 * MIB));
    assert_eq!(Image::open(&packed).unwrap().zero_bytes(), None);
}

/// What an earlier attempt made zeros is looked at, and made zeros again only where it is not.
#[test]
fn zeros_that_are_there_are_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    for path in forms(directory.path()) {
        let image = Image::open(&path).unwrap();
        let note = directory.path().join("note.json");
        let mut disk = Counted::slow(used(24 * MIB));
        let first = write(&request(&image, None), &mut disk, &mut crate::silent).unwrap();
        // Somebody has written to the EFI system partition since.
        disk.disk.write_at(2 * MIB + 5, &[7]).unwrap();
        super::journal::write(&note, image.identity(), "disk 1", 20 * MIB).unwrap();
        let again = write(&request(&image, Some(&note)), &mut disk, &mut crate::silent).unwrap();
        assert_eq!(untouched(&mut disk.disk, &directory.path().join("ROOT.raw")), left());
        let (before, ends) = (first.zeroed_bytes, 2 * MIB);
        assert!(before > 8 * MIB && (ends + 1..ends + 3 * MIB).contains(&again.zeroed_bytes), "{again:?}");
        assert!(again.kept_bytes > 7 * MIB && again.left_bytes == 8 * MIB, "{again:?}");
    }
}

#[test]
fn zeros_that_were_written_are_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let image = slots_image(directory.path(), "ROOT", 512);
    let image = Image::open(&image).unwrap();
    // Between two files, between two layers, at the end of a slot, in META, and at the end of the disk.
    for stuck in [2 * MIB + 9, 5 * MIB - 100, 11 * MIB - 1, 17 * MIB, 23 * MIB + 3] {
        let mut disk = Counted { stuck: Some(stuck), ..Counted::slow(used(24 * MIB)) };
        let error = write(&request(&image, None), &mut disk, &mut crate::silent).unwrap_err().to_string();
        assert!(error.contains(&format!("differently from the image at byte {stuck}: ")), "{error}");
    }
    let mut disk = Counted { stuck: Some(15 * MIB), ..Counted::slow(used(24 * MIB)) };
    write(&request(&image, None), &mut disk, &mut crate::silent).unwrap();
}
