//! The disks of this machine as candidates for an installation.
//!
//! Owns: what each of them holds.
//! Does not: write. A disk is opened as the installer opens it, so one in use is known as such.
//! Fails by: a disk that cannot be read is a candidate that says why.

use std::path::Path;

use installer::device::{BlockDevice, Disk};
use installer::install::{Contents, inspect};
use ondisk::gpt::Table;
use ondisk::probe::PROBE_BYTES;
use runtime::Runtime;
use runtime::errors::chain;

use super::candidate::{Candidate, Holds};
use crate::block::{self, Listed};
use crate::boot_medium;

/// Every disk. Reads the ends of each: not for the runtime's own threads.
pub(super) fn candidates(runtime: &Runtime) -> Vec<Candidate> {
    block::listed(runtime).into_iter().map(|listed| candidate(runtime, listed)).collect()
}

fn candidate(runtime: &Runtime, listed: Listed) -> Candidate {
    let holds = match boot_medium::use_of(runtime, &listed) {
        Some(how) => Holds::Medium(how),
        // Both are refused for what they are, and opening them for writing would fail.
        None if listed.disk.cdrom || listed.disk.readonly => Holds::Nothing,
        None => holds(Path::new(&listed.disk.dev_path)).unwrap_or_else(Holds::Unusable),
    };
    Candidate { disk: listed.disk, name: listed.name, holds }
}

/// Refuses an open disk that is not the one that was chosen any more, or holds something else than it did. What is
/// compared is what is written to: this descriptor.
pub(super) fn check_same(runtime: &Runtime, chosen: &Candidate, disk: &mut Disk) -> Result<(), String> {
    let path = &chosen.disk.dev_path;
    let changed =
        |what: String| format!("{path} changed while it was looked at: {what}; nothing was written");
    let listed = block::listed(runtime).into_iter().find(|listed| listed.disk.dev_path == *path);
    let now = listed.ok_or_else(|| changed("it is gone".to_owned()))?;
    if let Some(number) = disk.device_number()
        && block::device_number(runtime, path) != Some(number)
    {
        return Err(changed("another disk has its name".to_owned()));
    }
    if let Some(what) = difference(&chosen.disk, &now.disk, disk.bytes()) {
        return Err(changed(what));
    }
    let held = held(disk).map_err(changed)?;
    if held != chosen.holds {
        return Err(changed(format!("it held {}, and now {}", chosen.holds, held)));
    }
    Ok(())
}

/// What tells a disk from the one that was chosen.
fn difference(chosen: &runtime::store::Disk, now: &runtime::store::Disk, bytes: u64) -> Option<String> {
    let words = [
        ("model", &chosen.model, &now.model),
        ("serial number", &chosen.serial, &now.serial),
        ("WWID", &chosen.wwid, &now.wwid),
    ];
    if let Some((what, before, after)) = words.into_iter().find(|(_, before, after)| before != after) {
        return Some(format!("its {what} was {before:?} and is {after:?}"));
    }
    let size = [now.size, bytes].into_iter().find(|size| *size != chosen.size)?;
    Some(format!("it had {} bytes and has {size}", chosen.size))
}

fn holds(path: &Path) -> Result<Holds, String> {
    held(&mut Disk::open(path).map_err(|error| chain(&error))?)
}

fn held(disk: &mut Disk) -> Result<Holds, String> {
    match inspect(disk).map_err(|error| chain(&error))?.contents {
        Contents::Nothing => Ok(Holds::Nothing),
        Contents::Foreign(text) => Ok(Holds::Foreign(text)),
        Contents::Billet(table) => {
            let reset = is_reset(disk, &table).map_err(|error| chain(&error))?;
            Ok(if reset { Holds::Reset } else { Holds::Billet })
        }
    }
}

/// Whether there is no STATE, or nothing in it.
fn is_reset(disk: &mut dyn BlockDevice, table: &Table) -> Result<bool, ondisk::ReadError> {
    let Some(state) = table.partitions.iter().find(|partition| partition.name == "STATE") else {
        return Ok(true);
    };
    let mut start = vec![0; PROBE_BYTES];
    disk.read_at(table.offset_bytes(state), &mut start)?;
    Ok(start.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use ondisk::gpt::{Geometry, Guid, Request, Size, lay_out, types};

    use super::*;

    /// A disk with the partitions of an installed one.
    fn installed(path: &Path, names: &[&str]) -> Table {
        let bytes = 64 << 20;
        let file = File::create(path).unwrap();
        file.set_len(bytes).unwrap();
        let requests: Vec<Request> = names
            .iter()
            .map(|name| Request {
                name: (*name).to_owned(),
                type_guid: types::LINUX,
                guid: Guid::from_seed(name.as_bytes()),
                attributes: 0,
                size: Size::Bytes(4 << 20),
            })
            .collect();
        let table = lay_out(Geometry::new(512, bytes).unwrap(), Guid::from_seed(b"disk"), &requests).unwrap();
        for extent in table.extents().unwrap() {
            file.write_all_at(&extent.bytes, extent.offset).unwrap();
        }
        table
    }

    #[test]
    fn an_installation_without_state_is_a_reset_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        installed(&path, &["EFI", "ROOT-A", "META"]);
        assert_eq!(holds(&path), Ok(Holds::Reset));
        let table = installed(&path, &["EFI", "ROOT-A", "META", "STATE"]);
        assert_eq!(holds(&path), Ok(Holds::Reset));
        let state = table.offset_bytes(table.by_name("STATE").unwrap());
        File::options().write(true).open(&path).unwrap().write_all_at(b"XFSB", state).unwrap();
        assert_eq!(holds(&path), Ok(Holds::Billet));
    }

    #[test]
    fn what_was_chosen_is_compared_on_the_open_disk() {
        let (dir, node) = crate::block::tests::with_a_disk();
        let runtime = node.runtime.clone();
        let path = dir.path().canonicalize().unwrap().join("dev/vda");
        let listed = block::listed(&runtime).remove(0);
        let mut disk = Disk::open(&path).unwrap();
        let chosen = Candidate { holds: held(&mut disk).unwrap(), disk: listed.disk, name: String::new() };
        assert_eq!(check_same(&runtime, &chosen, &mut disk), Ok(()));
        let serial = runtime.path("/sys/class/block/vda/serial");
        std::fs::write(&serial, "other\n").unwrap();
        let refused = |chosen: &Candidate, disk: &mut Disk| check_same(&runtime, chosen, disk).unwrap_err();
        let error = refused(&chosen, &mut disk);
        assert!(
            error.contains("its serial number was \"abc\" and is \"other\"; nothing was written"),
            "{error}"
        );
        std::fs::write(&serial, "abc\n").unwrap();
        let size = runtime.path("/sys/class/block/vda/size");
        std::fs::write(&size, "163848\n").unwrap();
        let error = refused(&chosen, &mut disk);
        assert!(error.contains("it had 83886080 bytes and has 83890176"), "{error}");
        std::fs::write(&size, "163840\n").unwrap();
        // Somebody makes a file system on it meanwhile.
        disk.zero(0, 1 << 20).unwrap();
        disk.zero((80 << 20) - (1 << 20), 1 << 20).unwrap();
        disk.write_at(0, b"XFSB").unwrap();
        let error = refused(&chosen, &mut disk);
        assert!(error.contains("and now xfs, without a partition table, at byte 0"), "{error}");
    }

    /// A reset disk that got a STATE since is not installed to.
    #[test]
    fn a_state_that_was_made_meanwhile_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let table = installed(&path, &["EFI", "ROOT-A", "META", "STATE"]);
        let mut disk = Disk::open(&path).unwrap();
        assert_eq!(held(&mut disk), Ok(Holds::Reset));
        disk.write_at(table.offset_bytes(table.by_name("STATE").unwrap()), b"XFSB").unwrap();
        assert_eq!(held(&mut disk), Ok(Holds::Billet));
    }

    #[test]
    fn empty_foreign_and_unreadable_disks_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        File::create(&path).unwrap().set_len(8 << 20).unwrap();
        assert_eq!(holds(&path), Ok(Holds::Nothing));
        File::options().write(true).open(&path).unwrap().write_all_at(b"data", 5000).unwrap();
        let Ok(Holds::Foreign(text)) = holds(&path) else { panic!("not foreign") };
        assert!(text.contains("byte 5000"), "{text}");
        installed(&path, &["DATA"]);
        assert!(matches!(holds(&path), Ok(Holds::Foreign(text)) if text.contains("DATA")));
        let error = holds(&dir.path().join("nothing")).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }
}
