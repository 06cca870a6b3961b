//! What this machine was started from: a medium, or its disk.
//!
//! Owns: which that is, and files on its EFI system partition.
//! Does not: mount anything: it is read by our own code.
//! Fails by: a sentence with the device.

use std::fs;
use std::path::{Path, PathBuf};

use installer::addon;
use runtime::Runtime;
use runtime::errors::chain;

use crate::block::{Listed, Opened, probe};
use crate::system_disk;

/// Where init mounts a medium whose files the root's layers are.
const MEDIUM: &str = "/run/billet/medium";
/// The label of the volume on which a node looks for its config.
pub(crate) const CONFIG_VOLUME: &str = "metal-iso";

/// Longest file for firmware that is read: a UKI has about 16 MB.
const BOOT_FILE_BYTES: u32 = 256 << 20;

/// A file on the EFI system partition of the disk or medium that this machine was started from; `None`: there is none.
pub(crate) fn file(runtime: &Runtime, path: &str) -> Result<Option<Vec<u8>>, String> {
    let Some(device) = device(runtime) else { return Ok(None) };
    let failed =
        |error: &dyn std::error::Error| format!("read {path} of {}: {}", device.display(), chain(error));
    let mut disk =
        Opened::open(&runtime.path(&device.display().to_string())).map_err(|error| failed(&error))?;
    let bytes = disk.bytes().map_err(|error| failed(&error))?;
    installer::boot_volume::file(&mut disk, bytes, path, BOOT_FILE_BYTES).map_err(|error| failed(&error))
}

/// The addons on the EFI system partition of the medium that this machine was started from, by name.
pub(crate) fn addons(runtime: &Runtime) -> Result<Vec<(String, Vec<u8>)>, String> {
    let Some(device) = medium(runtime) else { return Ok(Vec::new()) };
    let failed = |error: &dyn std::error::Error| {
        format!("read {} of {}: {}", addon::DIRECTORY, device.display(), chain(error))
    };
    let mut disk =
        Opened::open(&runtime.path(&device.display().to_string())).map_err(|error| failed(&error))?;
    let bytes = disk.bytes().map_err(|error| failed(&error))?;
    addon::of_disk(&mut disk, bytes).map_err(|error| failed(&error))
}

/// The disk or medium that this machine was started from; where that is neither, its installed disk.
pub(crate) fn device(runtime: &Runtime) -> Option<PathBuf> {
    // Of several installed disks none is this machine's.
    medium(runtime).or_else(|| Some(system_disk::known(runtime)?.path))
}

fn medium(runtime: &Runtime) -> Option<PathBuf> {
    let mounts = fs::read_to_string(runtime.path("/proc/self/mounts")).unwrap_or_default();
    mounted(&mounts, MEDIUM)
}

fn mounted(mounts: &str, target: &str) -> Option<PathBuf> {
    let mut lines = mounts.lines().map(|line| line.split(' '));
    lines.find_map(|mut words| {
        let source = words.next()?;
        (words.next()? == target).then(|| PathBuf::from(source))
    })
}

/// What this machine has of this disk, if it runs from it.
pub(crate) fn use_of(runtime: &Runtime, listed: &Listed) -> Option<&'static str> {
    let source = runtime.boot.root_source.split_once(" (").map(|(device, _)| Path::new(device));
    if source.is_some_and(|source| listed.nodes.iter().any(|node| node == source)) {
        return Some("was started from");
    }
    let is_config =
        |device: &PathBuf| matches!(probe(device), Ok(Some((label, _))) if label == CONFIG_VOLUME);
    listed.nodes.iter().any(is_config).then_some("reads its configuration from")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use ondisk::fat;
    use ondisk::gpt::{Geometry, Guid, Request, Size, lay_out, types};

    use super::*;

    #[test]
    fn the_medium_is_what_is_mounted_there() {
        let mounts = "proc /proc proc rw 0 0\n/dev/sr0 /run/billet/medium iso9660 ro 0 0\n";
        assert_eq!(mounted(mounts, MEDIUM), Some("/dev/sr0".into()));
        assert_eq!(mounted("", MEDIUM), None);
    }

    /// A medium with these files for firmware, mounted on a node whose root is this directory.
    fn medium_with(root: &Path, files: &[fat::File<'_>]) {
        let (disk_bytes, volume_bytes) = (48 << 20, 40 << 20);
        let request = Request {
            name: "EFI".into(),
            type_guid: types::EFI_SYSTEM,
            guid: Guid::from_seed(b"efi"),
            attributes: 0,
            size: Size::Bytes(volume_bytes),
        };
        let geometry = Geometry::new(512, disk_bytes).unwrap();
        let table = lay_out(geometry, Guid::from_seed(b"medium"), &[request]).unwrap();
        fs::create_dir_all(root.join("dev")).unwrap();
        let disk = fs::File::create(root.join("dev/sr0")).unwrap();
        disk.set_len(disk_bytes).unwrap();
        let volume = fat::Volume { label: "EFI", volume_id: 1, sector_bytes: 512, bytes: volume_bytes };
        let start = table.offset_bytes(&table.partitions[0]);
        for extent in fat::format(&volume, files).unwrap() {
            disk.write_all_at(&extent.bytes, start + extent.offset).unwrap();
        }
        for extent in table.extents().unwrap() {
            disk.write_all_at(&extent.bytes, extent.offset).unwrap();
        }
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::write(root.join("proc/self/mounts"), "/dev/sr0 /run/billet/medium iso9660 ro 0 0\n").unwrap();
    }

    #[tokio::test]
    async fn addons_are_those_of_the_medium() {
        let root = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(root.path().to_owned());
        assert_eq!(addons(&runtime), Ok(Vec::new()), "no medium");
        let file = |path, content| fat::File { path, content };
        medium_with(root.path(), &[file("EFI/BOOT/BOOTX64.EFI", b"loader")]);
        assert_eq!(addons(&runtime), Ok(Vec::new()), "no directory");
        let files = [
            file("loader/addons/site.addon.efi", &b"site"[..]),
            file("loader/addons/README", b"text"),
            file("loader/addons/Other.Addon.EFI", b"other"),
            file("loader/addons/directory.addon.efi/file", b"in a directory"),
            file("loader/loader.conf", b"timeout 0"),
        ];
        medium_with(root.path(), &files);
        let mut found = addons(&runtime).unwrap();
        found.sort();
        let wanted = [("Other.Addon.EFI", &b"other"[..]), ("site.addon.efi", b"site")];
        assert_eq!(found, wanted.map(|(name, content)| (name.to_owned(), content.to_vec())));
        let long = vec![7; (1 << 20) + 1];
        medium_with(root.path(), &[file("loader/addons/long.addon.efi", &long)]);
        let error = addons(&runtime).unwrap_err();
        let wanted = "read loader/addons of /dev/sr0: the addon \"long.addon.efi\": it is longer than 1 MiB";
        assert!(error.starts_with(wanted), "{error}");
    }
}
