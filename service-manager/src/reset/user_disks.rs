//! Other disks that a reset wipes: noted in META before the first is touched, gone on with at the next boot.
//!
//! Owns: which disks may be named; knowing a disk again after a restart, which may name it otherwise.
//! Does not: touch the system disk.
//! Order: noted, then each is wiped and proved, then it leaves the note. A node without META notes nothing.
//! Fails by: a sentence with the disk; it stays in the note. A disk that is not there, or there twice, is left alone.
//! Source: docs/formats/meta.md (tag 0x42490003).

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use installer::device::{BlockDevice, Disk};
use installer::meta::{self, WipeIntent, WipedDisk};
use installer::reset as wiping;
use ondisk::meta::Meta;
use runtime::errors::chain;

use super::requests::Resets;
use crate::system_disk;
use crate::system_disk::SystemDisk;

const CLASS: &str = "sys/class/block";
/// Unit of the file `size`, whatever the disk's own sectors.
const SECTOR_BYTES: u64 = 512;

/// Whether this is another disk than the system's.
pub(super) fn check(path: &Path, system: Option<&SystemDisk>) -> Result<(), String> {
    let shown = path.display();
    let failed = |what: String| format!("reset user disk failed: {what}");
    let real = fs::canonicalize(path).map_err(|e| failed(format!("{shown}: {e}")))?;
    let kind = fs::metadata(&real).map_err(|e| failed(format!("{shown}: {e}")))?.file_type();
    if !kind.is_block_device() {
        return Err(failed(format!("{shown} is no disk")));
    }
    match system {
        // Its partitions are not to be wiped by the back door.
        Some(disk) if real.display().to_string().starts_with(&disk.path.display().to_string()) => {
            Err(failed(format!("device {shown} is the system disk")))
        }
        _ => Ok(()),
    }
}

/// Notes what will be wiped. Blocks.
pub(super) fn note(resets: &Resets, disks: &[PathBuf], then: &str) -> Result<(), String> {
    if disks.is_empty() {
        return Ok(());
    }
    let disks = disks.iter().map(|path| look(resets, path)).collect::<Result<_, _>>()?;
    let intent = WipeIntent { disks, then: then.to_owned() };
    with_meta(resets, |part| meta::begin_wipe(part, &intent)).map(drop)
}

/// What is noted and not through. Blocks.
pub(crate) fn pending(resets: &Resets) -> Option<WipeIntent> {
    let found = with_meta(resets, |part| meta::read(part)).unwrap_or_else(|error| {
        resets.runtime.journal.warn(&format!("reset: which disks are to be wiped cannot be read: {error}"));
        None
    })?;
    intent(&found.meta)
}

fn intent(values: &Meta) -> Option<WipeIntent> {
    meta::wipe_intent(values).filter(|intent| !intent.disks.is_empty())
}

/// Wipes a disk that was named. Blocks.
pub(crate) fn wipe(resets: &Resets, path: &Path) -> Result<(), String> {
    check(path, system_disk::known(&resets.runtime).as_ref())?;
    let disk = look(resets, path)?;
    let name = path.display().to_string();
    let failed = |error: &dyn std::error::Error| format!("reset user disk failed: {name}: {}", chain(error));
    let mut device = Disk::open(path).map_err(|e| failed(&e))?;
    resets.runtime.journal.say(&format!("reset: wiping {name}, {} MiB", device.bytes() >> 20));
    wiping::wipe(&mut device, &name, 0, None, &mut installer::silent).map_err(|e| failed(&e))?;
    resets.runtime.journal.say(&format!("reset: {name} reads as zeros"));
    with_meta(resets, |part| meta::end_wipe(part, &disk)).map(drop)
}

/// Wipes what a reset that was cut off left. Blocks.
pub(crate) fn resume(resets: &Resets, intent: &WipeIntent) {
    let there = list(resets);
    for disk in &intent.disks {
        let done = find(disk, &there).and_then(|found| {
            // In the note it is called what it was then.
            wipe(resets, Path::new(&found.path))?;
            with_meta(resets, |part| meta::end_wipe(part, disk)).map(drop)
        });
        if let Err(error) = done {
            resets.runtime.journal.warn(&format!("reset: {error}: the next boot tries it again"));
        }
    }
}

/// Whether all that is noted is there to be wiped.
pub(crate) fn is_there(resets: &Resets, intent: &WipeIntent) -> bool {
    let there = list(resets);
    intent.disks.iter().all(|disk| find(disk, &there).is_ok())
}

/// The one disk that was meant.
fn find<'d>(wanted: &WipedDisk, there: &'d [WipedDisk]) -> Result<&'d WipedDisk, String> {
    let WipedDisk { path, serial, bytes, .. } = wanted;
    let what = format!("the disk that was {path} (serial {serial:?}, {} MiB) was to be wiped", bytes >> 20);
    let mut same = there.iter().filter(|disk| disk.is(wanted));
    match (same.next(), same.next()) {
        (Some(disk), None) => Ok(disk),
        (None, _) => Err(format!("{what} and is not there")),
        (Some(one), Some(other)) => Err(format!(
            "{what}, but {} and {} cannot be told apart: wipe it with `billetctl wipe disk`",
            one.path, other.path
        )),
    }
}

/// All disks, no partitions.
fn list(resets: &Resets) -> Vec<WipedDisk> {
    let entries = fs::read_dir(resets.runtime.path(CLASS)).into_iter().flatten().flatten();
    let disks = entries.filter(|entry| !entry.path().join("partition").exists());
    disks.filter_map(|entry| described(&entry.path())).collect()
}

fn look(resets: &Resets, path: &Path) -> Result<WipedDisk, String> {
    let real = fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let directory = resets.runtime.path(CLASS).join(real.file_name().unwrap_or_default());
    described(&directory).ok_or_else(|| format!("{}: the kernel does not tell its size", path.display()))
}

fn described(directory: &Path) -> Option<WipedDisk> {
    let text = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default().trim().to_owned();
    let first = |files: [&str; 2]| files.map(text).into_iter().find(|text| !text.is_empty());
    let sectors: u64 = text("size").parse().ok()?;
    Some(WipedDisk {
        path: format!("/dev/{}", directory.file_name()?.to_string_lossy().replace('!', "/")),
        serial: first(["serial", "device/serial"]).unwrap_or_default(),
        wwid: first(["wwid", "device/wwid"]).unwrap_or_default(),
        bytes: sectors.saturating_mul(SECTOR_BYTES),
    })
}

/// Does something with META; `None` on a node without it.
fn with_meta<T>(
    resets: &Resets,
    act: impl FnOnce(&mut dyn BlockDevice) -> Result<T, installer::Error>,
) -> Result<Option<T>, String> {
    let Some(device) = resets.meta.device() else { return Ok(None) };
    let mut part = Disk::open_shared(&device).map_err(|e| chain(&e))?;
    act(&mut part).map(Some).map_err(|e| chain(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(path: &str, serial: &str, bytes: u64) -> WipedDisk {
        WipedDisk { path: path.into(), serial: serial.into(), wwid: String::new(), bytes }
    }

    #[test]
    fn a_disk_is_known_again_by_its_number_and_otherwise_by_its_name() {
        let there = [disk("/dev/sda", "A1", 100), disk("/dev/sdb", "", 100), disk("/dev/sdc", "C3", 100)];
        assert_eq!(find(&disk("/dev/sdb", "A1", 100), &there).unwrap().path, "/dev/sda");
        assert_eq!(find(&disk("/dev/sdb", "", 100), &there).unwrap().path, "/dev/sdb");
        for gone in [disk("/dev/sda", "", 100), disk("/dev/sda", "A1", 99), disk("/dev/sda", "A2", 100)] {
            let error = find(&gone, &there).unwrap_err();
            assert!(error.contains("/dev/sda") && error.ends_with("is not there"), "{error}");
        }
        let twins = [disk("/dev/sda", "X", 1), disk("/dev/sdb", "X", 1)];
        assert!(find(&disk("/dev/sda", "X", 1), &twins).unwrap_err().contains("/dev/sda and /dev/sdb"));
    }

    #[test]
    fn a_note_loses_disk_after_disk() {
        let dir = tempfile::tempdir().unwrap();
        let resets = crate::server::tests_node(dir.path().to_owned()).reset.clone();
        let device = dir.path().join("meta");
        fs::write(&device, vec![0; 1 << 20]).unwrap();
        resets.meta.open(&device).unwrap();
        assert_eq!(pending(&resets), None);
        for (name, size) in [("sda", "8\n"), ("sdb", "16\n")] {
            let directory = resets.runtime.path(CLASS).join(name);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("size"), size).unwrap();
        }
        fs::create_dir_all(resets.runtime.path(CLASS).join("sda1")).unwrap();
        fs::write(resets.runtime.path(CLASS).join("sda1/size"), "4\n").unwrap();
        fs::write(resets.runtime.path(CLASS).join("sda1/partition"), "1\n").unwrap();
        let mut all = list(&resets);
        all.sort();
        assert_eq!(all, [disk("/dev/sda", "", 4096), disk("/dev/sdb", "", 8192)]);

        let noted = WipeIntent { disks: all.clone(), then: "shutdown".into() };
        with_meta(&resets, |part| meta::begin_wipe(part, &noted)).unwrap();
        assert_eq!(pending(&resets), Some(noted.clone()));
        assert!(is_there(&resets, &noted));
        fs::remove_dir_all(resets.runtime.path(CLASS).join("sdb")).unwrap();
        assert!(!is_there(&resets, &noted));
        with_meta(&resets, |part| meta::end_wipe(part, &all[0])).unwrap();
        let left = pending(&resets).unwrap();
        assert_eq!((left.disks.as_slice(), left.then.as_str()), (&all[1..], "shutdown"));
        with_meta(&resets, |part| meta::end_wipe(part, &all[1])).unwrap();
        assert_eq!(pending(&resets), None);
    }
}
