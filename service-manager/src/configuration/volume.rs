//! The volume labelled `metal-iso`: a file system whose config.yaml is the machine config.
//!
//! Owns: finding volumes by label, reading one file of one: a regular file of a FAT or an ISO 9660, by our own code.
//! Does not: mount anything. Whoever has a hand at the machine can put such a volume into it, and drivers of the kernel are not
//! made for what somebody else wrote.
//! Source: docs/users/config-lifecycle.md (`metal-iso`).

use std::path::Path;

use ondisk::probe::Kind;
use ondisk::{fat, iso9660};
use zeroize::Zeroizing;

use super::found::{Origin, Search, found};
use crate::block::{CLASS, Opened, disks_and_partitions, probe};
use crate::boot_medium::CONFIG_VOLUME;

const FILE: &str = "config.yaml";
/// Reads the config of the volume. Without one this is no failure: a blank machine waits for it.
pub(super) fn read() -> Search {
    let mut seen = Vec::new();
    for device in disks_and_partitions(Path::new(CLASS)) {
        match probe(&device) {
            Ok(Some((label, kind))) if label == CONFIG_VOLUME => {
                return found(Origin::Volume, read_volume(&device, kind));
            }
            Ok(Some((label, kind))) => seen.push(format!("{} ({kind}, label {label:?})", device.display())),
            // Unformatted, empty or gone: nothing to say.
            Ok(None) | Err(_) => {}
        }
    }
    let seen = if seen.is_empty() {
        "none has a file system".to_owned()
    } else {
        format!("there are {}", seen.join(", "))
    };
    Search::Absent(format!("no volume labelled {CONFIG_VOLUME}: {seen}"))
}

fn read_volume(device: &Path, kind: Kind) -> Result<Zeroizing<String>, String> {
    let name = device.display();
    let failed = |reason: &dyn std::fmt::Display| format!("read {FILE} of {name} ({kind}): {reason}");
    let limit = u32::try_from(super::MAX_BYTES).unwrap_or(u32::MAX);
    let opened = || Opened::open(device).map_err(|error| failed(&error));
    let bytes = match kind {
        Kind::Vfat => fat::read_in_root(opened()?, FILE, limit).map_err(|error| failed(&error)),
        Kind::Iso9660 => iso9660::read_in_root(opened()?, FILE, limit).map_err(|error| failed(&error)),
        _ => Err(failed(&"only FAT and ISO 9660 are read: make the volume anew as one of these")),
    };
    let bytes = Zeroizing::new(bytes?);
    let text = std::str::from_utf8(&bytes).map_err(|_| failed(&"the file is not UTF-8 text"))?;
    if text.trim().is_empty() {
        return Err(failed(&"the file is empty"));
    }
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A volume of 64 MiB with this file.
    fn fat_volume(path: &Path, content: &str) {
        let volume = fat::Volume { label: CONFIG_VOLUME, volume_id: 7, sector_bytes: 512, bytes: 64 << 20 };
        let files = [fat::File { path: "CONFIG.YAML", content: content.as_bytes() }];
        let file = fs::File::create(path).unwrap();
        file.set_len(64 << 20).unwrap();
        for extent in fat::format(&volume, &files).unwrap() {
            std::os::unix::fs::FileExt::write_all_at(&file, &extent.bytes, extent.offset).unwrap();
        }
    }

    /// What `read` does with a volume that it found.
    fn read_of(path: &Path) -> Result<String, String> {
        let (label, kind) = probe(path).unwrap().unwrap();
        assert_eq!(label, CONFIG_VOLUME);
        read_volume(path, kind).map(|text| text.to_string())
    }

    #[test]
    fn a_fat_volume_is_read_by_our_own_code() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume");
        fat_volume(&path, "version: v1alpha1\n");
        assert_eq!(read_of(&path).as_deref(), Ok("version: v1alpha1\n"));
        fat_volume(&path, " \n");
        assert!(read_of(&path).unwrap_err().ends_with("(vfat): the file is empty"));
        fat_volume(&path, &"x".repeat(config::MAX_BYTES + 1));
        assert!(read_of(&path).unwrap_err().contains("longer than allowed"));
    }

    fn tool(name: &str, args: &[&str]) {
        let path = "/usr/sbin:/usr/bin:/sbin:/bin";
        let output = std::process::Command::new(name).env("PATH", path).args(args).output();
        let output = output.unwrap_or_else(|e| panic!("this test needs the host tool {name}: {e}"));
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Nothing but a regular file of a FAT or an ISO is read, and nothing is mounted: this runs without any right to.
    #[test]
    fn an_iso_is_read_and_links_and_other_file_systems_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let iso = |directory: &Path| {
            tool(
                "xorriso",
                &[
                    "-as",
                    "mkisofs",
                    "-quiet",
                    "-r",
                    "-V",
                    CONFIG_VOLUME,
                    "-o",
                    &text(&path("iso")),
                    &text(directory),
                ],
            );
            read_of(&path("iso"))
        };
        let (good, linked) = (path("good"), path("linked"));
        fs::create_dir(&good).unwrap();
        fs::write(good.join(FILE), "version: v1alpha1\n").unwrap();
        assert_eq!(iso(&good).as_deref(), Ok("version: v1alpha1\n"));
        fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink("/system/state/config.yaml", linked.join(FILE)).unwrap();
        assert!(iso(&linked).unwrap_err().contains("is a symbolic link"));
        let ext4 = path("ext4");
        fs::File::create(&ext4).unwrap().set_len(16 << 20).unwrap();
        tool("mkfs.ext4", &["-q", "-L", CONFIG_VOLUME, "-d", &text(&good), &text(&ext4)]);
        let error = read_of(&ext4).unwrap_err();
        assert!(error.contains("(ext4): only FAT and ISO 9660 are read"), "{error}");
    }
}
