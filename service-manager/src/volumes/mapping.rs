//! Mappings of encrypted volumes on this node: the modules that they need, whether there is one, taking it away.
//!
//! Does not: make one; the process of `opening` does, which has the key.
//! Fails by: a sentence with the mapping's name.
//! Source: Documentation/ABI/testing/sysfs-block-dm.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use installer::device::Disk;
use sys::Errno;
use sys::errno::Described;
use unlock::mapping_name;

use crate::modules::load_modules;

const CLASS: &str = "/sys/class/block";
/// How long the last user of a mapping may take to leave it.
const BUSY_DEADLINE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// The mapped device of a volume: `/dev/mapper/luks2-STATE`.
pub(super) fn path(volume: &str) -> PathBuf {
    Path::new("/dev/mapper").join(mapping_name(volume))
}

/// Loads what a mapping with this cipher needs. A cipher's fast form that this processor does not have is no error.
pub(super) fn load_kernel_modules(cipher: &str) -> Result<(), String> {
    let Some((target, rest)) = unlock::modules(cipher).split_last() else { return Ok(()) };
    for module in rest {
        let _ = load_modules(&[module]);
    }
    load_modules(&[target])
}

/// The same for the volume that a partition holds.
pub(super) fn load_kernel_modules_of(partition: &Path) -> Result<(), String> {
    let header = Disk::open_shared(partition).ok().and_then(|mut part| ondisk::luks2::read(&mut part).ok());
    // What is wrong with it the process says that opens it.
    let mapping = header.and_then(|found| found.header.mapping().ok());
    load_kernel_modules(&mapping.map(|mapping| mapping.cipher).unwrap_or_default())
}

/// Whether the volume that a partition holds now is mapped: by init, or by an earlier machined.
pub(super) fn is_there(volume: &str, partition: &Path) -> bool {
    let Ok(mut part) = Disk::open_shared(partition) else { return false };
    let Ok(found) = ondisk::luks2::read(&mut part) else { return false };
    let uuid = found.header.uuid.replace('-', "");
    uuid_of(Path::new(CLASS), &mapping_name(volume))
        .is_some_and(|mapped| mapped.starts_with(&format!("CRYPT-LUKS2-{uuid}-")))
}

/// The encrypted volumes that are mapped, by their names.
pub(super) fn names() -> Vec<String> {
    names_in(Path::new(CLASS))
}

fn names_in(class: &Path) -> Vec<String> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let mappings = entries.filter_map(|device| fs::read_to_string(device.path().join("dm/name")).ok());
    mappings.filter_map(|name| name.trim().strip_prefix(&mapping_name("")).map(str::to_owned)).collect()
}

/// The UUID of the mapping of this name.
fn uuid_of(class: &Path, name: &str) -> Option<String> {
    fs::read_dir(class).ok()?.flatten().find_map(|device| {
        let text = |file: &str| fs::read_to_string(device.path().join("dm").join(file)).ok();
        let is_it = text("name")?.trim() == name;
        is_it.then(|| text("uuid").map(|uuid| uuid.trim().to_owned()))?
    })
}

/// Takes a volume's mapping away, if there is one, and its key out of the kernel. Blocks while it is in use.
pub(super) fn close(volume: &str) -> Result<(), String> {
    let name = mapping_name(volume);
    let end = Instant::now() + BUSY_DEADLINE;
    loop {
        match unlock::remove(&name) {
            Ok(()) | Err(Errno::NXIO | Errno::NOENT | Errno::NODEV) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < end => std::thread::sleep(LOOK),
            Err(Errno::BUSY) => {
                let seconds = BUSY_DEADLINE.as_secs();
                return Err(format!(
                    "close {volume}: {name} was still in use after {seconds} s (deadline closeVolume)"
                ));
            }
            Err(errno) => return Err(format!("remove the mapping {name}: {}", Described(errno))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_found_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        for (device, name, uuid) in
            [("dm-0", "base", "VERITY-1\n"), ("dm-3", "luks2-STATE", "CRYPT-LUKS2-ab-luks2-STATE\n")]
        {
            let directory = dir.path().join(device).join("dm");
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("name"), format!("{name}\n")).unwrap();
            fs::write(directory.join("uuid"), uuid).unwrap();
        }
        fs::create_dir(dir.path().join("vda")).unwrap();
        assert_eq!(uuid_of(dir.path(), "luks2-STATE").as_deref(), Some("CRYPT-LUKS2-ab-luks2-STATE"));
        assert_eq!(uuid_of(dir.path(), "luks2-EPHEMERAL"), None);
        assert_eq!(names_in(dir.path()), ["STATE"]);
        assert!(!is_there("STATE", &dir.path().join("vda")));
    }
}
