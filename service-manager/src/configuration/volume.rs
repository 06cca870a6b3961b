//! The volume labelled `metal-iso`: a file system whose config.yaml is the machine config.
//!
//! Owns: finding volumes by label, reading one file of one. Does not: leave anything mounted.
//! Source: spec/machine-facts.md §4.5 (`metal-iso`).

use std::ffi::CString;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ondisk::fat;
use ondisk::{ReadAt, ReadError};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use zeroize::Zeroizing;

use super::source::{Origin, Search, found};
use crate::modules::load_modules;
use crate::node::Node;

pub(super) const LABEL: &str = "metal-iso";
const FILE: &str = "config.yaml";
const MOUNT_POINT: &str = "/run/billet/config";
/// What the kernel needs to mount a FAT.
pub(super) const FAT_MODULES: &[&str] = &["nls_cp437", "nls_ascii", "nls_iso8859-1", "vfat"];
/// Every disk and partition.
pub(super) const CLASS: &str = "/sys/class/block";

/// Reads the config of the volume. Without one this is no failure: a blank machine waits for it.
pub(super) fn read(node: &Node) -> Search {
    let mut seen = Vec::new();
    for device in block_devices(Path::new(CLASS)) {
        match probe(&device) {
            Ok(Some((label, kind))) if label == LABEL => {
                return found(Origin::Volume, read_volume(node, &device, kind));
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
pub(super) fn probe(device: &Path) -> std::io::Result<Option<(String, ondisk::probe::Kind)>> {
    let mut start = Vec::new();
    let limit = u64::try_from(ondisk::probe::PROBE_BYTES).unwrap_or(u64::MAX);
    fs::File::open(device)?.take(limit).read_to_end(&mut start)?;
    Ok(ondisk::probe::probe(&start).map(|found| (found.label, found.kind)))
}

fn read_volume(node: &Node, device: &Path, kind: ondisk::probe::Kind) -> Result<Zeroizing<String>, String> {
    let name = device.display();
    if kind == ondisk::probe::Kind::Vfat {
        // Read by our own code: no modules, no mount, and nothing of the kernel's is shown to a foreign volume.
        match read_fat(device) {
            Ok(text) => return Ok(text),
            Err(FatTrouble::NotFat32) => {}
            Err(FatTrouble::Other(error)) => return Err(format!("read {FILE} of {name}: {error}")),
        }
    }
    if let Err(error) = load_modules(modules(kind)) {
        // The mount says whether it mattered.
        node.journal.controller(&format!("loadConfig: {error}"));
    }
    fs::create_dir_all(MOUNT_POINT).map_err(|e| format!("create {MOUNT_POINT}: {e}"))?;
    let c_string = |text: String| CString::new(text).map_err(|_| format!("device name {name}"));
    let (source, kind_name) = (c_string(name.to_string())?, c_string(kind.as_str().to_owned())?);
    let target = c_string(MOUNT_POINT.to_owned())?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(source.as_c_str(), target.as_c_str(), kind_name.as_c_str(), flags, None)
        .map_err(|e| format!("mount {name} ({kind}): {e}"))?;
    let text =
        read_file(&Path::new(MOUNT_POINT).join(FILE)).map_err(|e| format!("read {FILE} of {name}: {e}"));
    if let Err(errno) = unmount(target.as_c_str(), UnmountFlags::DETACH) {
        node.journal.warn(&format!("unmount {name}: {errno}"));
    }
    text
}

/// Why a FAT volume was not read by our own code.
enum FatTrouble {
    /// It is a FAT of 12 or 16 bits, which the kernel reads.
    NotFat32,
    /// Anything else, in words.
    Other(String),
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

fn read_fat(device: &Path) -> Result<Zeroizing<String>, FatTrouble> {
    let other = |text: String| FatTrouble::Other(text);
    let volume = Volume::open(device).map_err(|e| other(e.to_string()))?;
    let limit = u32::try_from(super::MAX_BYTES).unwrap_or(u32::MAX);
    let mut reader = match fat::Reader::open(volume) {
        Ok(reader) => reader,
        Err(fat::Error::NotFat32) => return Err(FatTrouble::NotFat32),
        Err(error) => return Err(other(error.to_string())),
    };
    let bytes = Zeroizing::new(reader.read(FILE, limit).map_err(|e| other(e.to_string()))?);
    let text = std::str::from_utf8(&bytes).map_err(|_| other("the file is not UTF-8 text".to_owned()))?;
    if text.trim().is_empty() {
        return Err(other("the file is empty".to_owned()));
    }
    Ok(Zeroizing::new(text.to_owned()))
}

fn modules(kind: ondisk::probe::Kind) -> &'static [&'static str] {
    match kind {
        ondisk::probe::Kind::Vfat => FAT_MODULES,
        ondisk::probe::Kind::Iso9660 => &["isofs"],
        _ => &[],
    }
}

fn read_file(path: &Path) -> std::io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    fs::File::open(path)?.take(super::MAX_BYTES).read_to_string(&mut text)?;
    if text.trim().is_empty() {
        return Err(std::io::Error::other("the file is empty"));
    }
    Ok(text)
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

    #[test]
    fn a_fat_volume_is_read_without_a_mount() {
        let dir = tempfile::tempdir().unwrap();
        let image = |content: &str| {
            let volume = fat::Volume { label: LABEL, volume_id: 7, sector_bytes: 512, bytes: 64 << 20 };
            let files = [fat::File { path: "CONFIG.YAML", content: content.as_bytes() }];
            let path = dir.path().join("volume");
            let file = fs::File::create(&path).unwrap();
            file.set_len(64 << 20).unwrap();
            for extent in fat::format(&volume, &files).unwrap() {
                std::os::unix::fs::FileExt::write_all_at(&file, &extent.bytes, extent.offset).unwrap();
            }
            path
        };
        let path = image("version: v1alpha1\n");
        assert_eq!(probe(&path).unwrap(), Some((LABEL.to_owned(), ondisk::probe::Kind::Vfat)));
        assert!(matches!(read_fat(&path), Ok(text) if text.as_str() == "version: v1alpha1\n"));
        assert!(matches!(read_fat(&image(" \n")), Err(FatTrouble::Other(text)) if text.contains("empty")));
        fs::write(&path, [0; 4096]).unwrap();
        assert!(matches!(read_fat(&path), Err(FatTrouble::NotFat32)));
    }

    #[test]
    fn empty_and_missing_files_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        assert!(read_file(&path).is_err());
        fs::write(&path, " \n").unwrap();
        assert!(read_file(&path).unwrap_err().to_string().contains("empty"));
        fs::write(&path, "version: v1alpha1\n").unwrap();
        assert_eq!(read_file(&path).unwrap().as_str(), "version: v1alpha1\n");
    }
}
