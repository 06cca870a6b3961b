//! Flashing to block devices of the kernel: loop devices over files, as root.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tests::{MIB, disk_image, judge};
use super::zeros_tests::{left, slots_image, untouched};
use super::*;
use crate::device::{BlockDevice as _, Memory};
use crate::error::in_full;

const BYTES: u64 = 24 * MIB;

/// What a program of the host prints.
fn host(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(words).output();
    let output = output.unwrap_or_else(|e| panic!("this test needs the host tool {program}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {words:?}, as root: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A loop device over a file full of somebody's data.
struct Loop {
    device: PathBuf,
    file: PathBuf,
}

impl Loop {
    fn over(file: PathBuf, sector_bytes: u32) -> Self {
        fs::write(&file, vec![0xEE; usize::try_from(BYTES).unwrap()]).unwrap();
        Self::with(file, sector_bytes)
    }

    /// With what is in the file.
    fn with(file: PathBuf, sector_bytes: u32) -> Self {
        let sectors = sector_bytes.to_string();
        let words = ["--find", "--show", "--sector-size", &sectors, file.to_str().unwrap()];
        Self { device: host("losetup", &words).into(), file }
    }

    /// Takes its file away, as of a stick that is pulled out: the kernel then says that it has no bytes. What was on it is
    /// returned, to be put back.
    fn pull_out(&self) -> Vec<u8> {
        let content = fs::read(&self.file).unwrap();
        File::options().write(true).open(&self.file).unwrap().set_len(0).unwrap();
        host("losetup", &["--set-capacity", self.device.to_str().unwrap()]);
        content
    }

    /// The same stick again, under the name that it had: a loop device tells no serial number.
    fn put_back(&self, content: &[u8]) {
        fs::write(&self.file, content).unwrap();
        host("losetup", &["--set-capacity", self.device.to_str().unwrap()]);
    }

    /// What is in the file.
    fn content(&self) -> Memory {
        let mut disk = Memory::new(BYTES, 512);
        disk.write_at(0, &fs::read(&self.file).unwrap()).unwrap();
        disk
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        host("losetup", &["--detach", self.device.to_str().unwrap()]);
    }
}

/// A directory in memory whose file system knows no holes, so that nothing on it can be zeroed without writing.
struct Holeless(tempfile::TempDir);

impl Holeless {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        host("mount", &["-t", "ramfs", "ramfs", directory.path().to_str().unwrap()]);
        Self(directory)
    }
}

impl Drop for Holeless {
    fn drop(&mut self) {
        host("umount", &[self.0.path().to_str().unwrap()]);
    }
}

/// As `billetctl flash --force` does it.
fn flash(
    image: &Path,
    target: &Path,
    note: Option<&Path>,
    progress: &mut dyn FnMut(crate::Progress),
) -> Result<Done, Error> {
    flash_image(&Image::open(image)?, target, note, progress)
}

fn flash_image(
    image: &Image,
    target: &Path,
    note: Option<&Path>,
    progress: &mut dyn FnMut(crate::Progress),
) -> Result<Done, Error> {
    let target = Target::find(Path::new("/"), target)?;
    target.check(image, true)?;
    let mut device = target.open(image, true)?;
    let (name, identity) = (target.path().display().to_string(), target.identity());
    let (seed, is_blank) = (Some([7; 32]), target.is_blank());
    let request = Request { image, name: &name, identity: &identity, note, seed, is_blank };
    let done = write(&request, &mut device, progress);
    device.announce();
    done
}

#[test]
#[ignore = "makes loop devices: `cargo xtask test` runs it as root"]
fn an_image_is_written_on_a_loop_device() {
    for sector_bytes in [512, 4096] {
        let directory = tempfile::tempdir().unwrap();
        let image = disk_image(directory.path(), sector_bytes);
        let disk = Loop::over(directory.path().join("disk"), sector_bytes);
        let done = flash(&image, &disk.device, None, &mut crate::silent).unwrap();
        judge(&disk.content(), &image, sector_bytes);
        assert_eq!((done.kept_bytes, done.left_bytes), (0, 0), "a loop device makes holes of its file");
    }
}

#[test]
#[ignore = "makes loop devices: `cargo xtask test` runs it as root"]
fn zeros_are_written_where_they_count_on_a_loop_device() {
    let directory = tempfile::tempdir().unwrap();
    let holeless = Holeless::new();
    for sector_bytes in [512, 4096] {
        let image = slots_image(directory.path(), "ROOT", sector_bytes);
        let disk = Loop::over(holeless.0.path().join("disk"), sector_bytes);
        let path = disk.device.clone();
        let Target::Disk(seen) = Target::find(Path::new("/"), &path).unwrap() else { panic!("no disk") };
        assert!(!seen.zeroes_at_once, "the plan would not tell of the zeros");
        let done = flash(&image, &path, None, &mut crate::silent).unwrap();
        assert_eq!((untouched(&mut disk.content(), &image), done.left_bytes), (left(), 8 * MIB));
    }
    // A file there has the same fault.
    let (image, file) = (slots_image(directory.path(), "ROOT", 512), holeless.0.path().join("file"));
    fs::write(&file, vec![0xEE; usize::try_from(BYTES).unwrap()]).unwrap();
    let done = flash(&image, &file, None, &mut crate::silent).unwrap();
    let mut disk = Memory::new(BYTES, 512);
    disk.write_at(0, &fs::read(&file).unwrap()).unwrap();
    assert_eq!((untouched(&mut disk, &image), done.left_bytes), (left(), 8 * MIB));
}

/// Whatever number the kernel gives for that: to zeros another one than to bytes.
#[test]
#[ignore = "makes loop devices: `cargo xtask test` runs it as root"]
fn a_disk_that_is_pulled_out_is_gone_on_a_loop_device() {
    let directory = tempfile::tempdir().unwrap();
    let raw = disk_image(directory.path(), 512);
    // Several pieces: what is read ahead is written when it is gone.
    let file = File::options().write(true).open(&raw).unwrap();
    for at in 1..7 {
        file.write_all_at(&vec![5; 1 << 20], at * MIB).unwrap();
    }
    let note = directory.path().join("note.json");
    let disk = Loop::over(directory.path().join("disk"), 512);
    let mut content = None;
    let error = flash(&raw, &disk.device, Some(&note), &mut |_| {
        content.get_or_insert_with(|| disk.pull_out());
    });
    says_that_it_is_gone(&disk, &error.unwrap_err());
    disk.put_back(&content.unwrap());
    flash(&raw, &disk.device, Some(&note), &mut crate::silent).unwrap();
    judge(&disk.content(), &raw, 512);
}

fn says_that_it_is_gone(disk: &Loop, error: &Error) {
    let said = in_full(error);
    let wanted = format!("{} is gone: put it back and run the same command again", disk.device.display());
    assert!(said.starts_with(&wanted), "{said}");
}

/// Behind the first note, which comes after 64 MiB.
#[test]
#[ignore = "makes loop devices: `cargo xtask test` runs it as root"]
fn a_disk_that_is_put_back_is_gone_on_with_on_a_loop_device() {
    let directory = tempfile::tempdir().unwrap();
    let (raw, file) = (directory.path().join("raw"), directory.path().join("disk"));
    let image: Vec<u8> = (0..80 * MIB / 8).flat_map(|word| (word | 1 << 63).to_le_bytes()).collect();
    fs::write(&raw, &image).unwrap();
    let image_file = Image::open_as_is(&raw).unwrap();
    File::create(&file).unwrap().set_len(96 * MIB).unwrap();
    let (note, disk) = (directory.path().join("note.json"), Loop::with(file, 512));
    let mut content = None;
    let error = flash_image(&image_file, &disk.device, Some(&note), &mut |progress| {
        if (progress.step, progress.done_bytes >= 70 * MIB) == ("write", true) {
            content.get_or_insert_with(|| disk.pull_out());
        }
    });
    says_that_it_is_gone(&disk, &error.unwrap_err());
    disk.put_back(&content.unwrap());
    let done = flash_image(&image_file, &disk.device, Some(&note), &mut crate::silent).unwrap();
    let kept = done.kept_bytes;
    assert!((60 * MIB..80 * MIB).contains(&kept), "{kept} bytes were there: not all, and not none");
    assert!(fs::read(&disk.file).unwrap().starts_with(&image));
}
