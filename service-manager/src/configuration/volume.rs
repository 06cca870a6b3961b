//! The volume labelled `metal-iso`: a file system whose config.yaml is the machine config.
//!
//! Owns: finding volumes by label, reading one file of one: a regular file of a FAT or an ISO 9660, by our own code.
//! Does not: mount anything. Whoever has a hand at the machine can put such a volume into it, and drivers of the kernel are not
//! made for what somebody else wrote.
//! Source: docs/users/config-lifecycle.md (`metal-iso`).

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use ondisk::probe::Kind;
use ondisk::{ReadAt, ReadError, fat, iso9660};
use zeroize::Zeroizing;

use super::source::{Origin, Search, found};

pub(super) const LABEL: &str = "metal-iso";
const FILE: &str = "config.yaml";
/// What the kernel needs to mount a FAT.
pub(super) const FAT_MODULES: &[&str] = &["nls_cp437", "nls_ascii", "nls_iso8859-1", "vfat"];
/// Every disk and partition.
pub(super) const CLASS: &str = "/sys/class/block";

/// Reads the config of the volume. Without one this is no failure: a blank machine waits for it.
pub(super) fn read() -> Search {
    let mut seen = Vec::new();
    for device in block_devices(Path::new(CLASS)) {
        match probe(&device) {
            Ok(Some((label, kind))) if label == LABEL => {
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
    Search::Absent(format!("no volume labelled {LABEL}: {seen}"))
}

/// Disks and partitions, sorted; loop and device-mapper devices carry the system itself.
pub(super) fn block_devices(class: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(class) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let ours = |name: &String| ["loop", "dm-", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix));
    let mut devices: Vec<_> =
        names.filter(|name| !ours(name)).map(|name| Path::new("/dev").join(name)).collect();
    devices.sort();
    devices
}

/// Label and kind of what lies on a device.
pub(super) fn probe(device: &Path) -> std::io::Result<Option<(String, Kind)>> {
    let mut start = Vec::new();
    let limit = u64::try_from(ondisk::probe::PROBE_BYTES).unwrap_or(u64::MAX);
    fs::File::open(device)?.take(limit).read_to_end(&mut start)?;
    Ok(ondisk::probe::probe(&start).map(|found| (found.label, found.kind)))
}

fn read_volume(device: &Path, kind: Kind) -> Result<Zeroizing<String>, String> {
    let name = device.display();
    let failed = |reason: &dyn std::fmt::Display| format!("read {FILE} of {name} ({kind}): {reason}");
    let limit = u32::try_from(super::MAX_BYTES).unwrap_or(u32::MAX);
    let volume = || Volume::open(device).map_err(|error| failed(&error));
    let bytes = match kind {
        Kind::Vfat => fat::read_in_root(volume()?, FILE, limit).map_err(|error| failed(&error)),
        Kind::Iso9660 => iso9660::read_in_root(volume()?, FILE, limit).map_err(|error| failed(&error)),
        _ => Err(failed(&"only FAT and ISO 9660 are read: make the volume anew as one of these")),
    };
    let bytes = Zeroizing::new(bytes?);
    let text = std::str::from_utf8(&bytes).map_err(|_| failed(&"the file is not UTF-8 text"))?;
    if text.trim().is_empty() {
        return Err(failed(&"the file is empty"));
    }
    Ok(Zeroizing::new(text.to_owned()))
}

/// A device as the reader of `ondisk` wants it.
pub(super) struct Volume(fs::File);

impl Volume {
    /// Opens it for reading.
    pub(super) fn open(device: &Path) -> std::io::Result<Self> {
        fs::File::open(device).map(Self)
    }

    /// Its length.
    pub(super) fn bytes(&self) -> std::io::Result<u64> {
        (&self.0).seek(SeekFrom::End(0))
    }
}

impl ReadAt for Volume {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        std::os::unix::fs::FileExt::read_exact_at(&self.0, buffer, offset).map_err(|error| ReadError {
            offset,
            length,
            errno: error.raw_os_error().unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_own_devices_are_not_searched() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["vdb", "loop0", "dm-1", "vda1", "vda"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let names: Vec<_> = block_devices(dir.path()).iter().map(|path| path.display().to_string()).collect();
        assert_eq!(names, ["/dev/vda", "/dev/vda1", "/dev/vdb"]);
    }

    /// A volume of 64 MiB with this file.
    fn fat_volume(path: &Path, content: &str) {
        let volume = fat::Volume { label: LABEL, volume_id: 7, sector_bytes: 512, bytes: 64 << 20 };
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
        assert_eq!(label, LABEL);
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
        let iso = |folder: &Path| {
            tool(
                "xorriso",
                &["-as", "mkisofs", "-quiet", "-r", "-V", LABEL, "-o", &text(&path("iso")), &text(folder)],
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
        tool("mkfs.ext4", &["-q", "-L", LABEL, "-d", &text(&good), &text(&ext4)]);
        let error = read_of(&ext4).unwrap_err();
        assert!(error.contains("(ext4): only FAT and ISO 9660 are read"), "{error}");
    }
}
