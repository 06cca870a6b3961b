//! Finding the machine config.
//!
//! Order: an earlier machined's copy, else the source that the command line names. A config that is missing, cannot
//! be read or is not valid is said on the console and tried again: when a block device appears, and at growing
//! intervals.
//! Source: spec/machine-facts.md §4.5 (`metal-iso`).

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::event::Payload;
use api::proto::machine::{ConfigLoadErrorEvent, ConfigValidationErrorEvent};
use config::cmdline::ConfigSource;
use ondisk::fat;
use ondisk::{ReadAt, ReadError};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use zeroize::Zeroizing;

use crate::checkpoint::Keep;
use crate::node::Node;
use crate::sequencer::TaskFuture;
use crate::store::{MACHINE_CONFIG, MachineDocument, Spec};
use crate::udevd;

const LABEL: &str = "metal-iso";
const FILE: &str = "config.yaml";
const MOUNT_POINT: &str = "/run/billet/config";
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// No config is larger than this: gRPC would not carry it.
const MAX_BYTES: u64 = 4 << 20;

/// Why there is no config yet.
enum Trouble {
    /// It was not found or not readable.
    Load(String),
    /// It was read and is wrong.
    Invalid(String),
}

/// Waits for a config.
pub fn load_config(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        if node.config().is_some() {
            return Ok(());
        }
        let mut devices = node.devices.subscribe();
        let mut wait = FIRST_WAIT;
        loop {
            devices.mark_unchanged();
            let trouble = match fetch(&node).and_then(|text| use_config(&node, text)) {
                Ok(()) => return Ok(()),
                Err(trouble) => trouble,
            };
            report(&node, &trouble, wait);
            node.config_misses.send_modify(|count| *count += 1);
            let _ = tokio::time::timeout(wait, devices.changed()).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    })
}

fn report(node: &Node, trouble: &Trouble, wait: Duration) {
    let (text, event) = match trouble {
        Trouble::Load(text) => (text, Payload::ConfigLoadError(ConfigLoadErrorEvent { error: text.clone() })),
        Trouble::Invalid(text) => {
            (text, Payload::ConfigValidationError(ConfigValidationErrorEvent { error: text.clone() }))
        }
    };
    node.events.publish("", &event);
    let seconds = wait.as_secs();
    // One line of the kernel log each: a person reads this on a console.
    for line in text.lines() {
        node.journal.warn(&format!("machine config: {line}"));
    }
    node.journal.warn(&format!("machine config: looking again in {seconds} s, and when a disk appears"));
}

/// Takes a config into force and keeps a copy for the next machined.
fn take(node: &Node, text: Zeroizing<String>, parsed: config::Config) {
    if let Err(error) = Keep::save(Keep::CONFIG, &text, &node.init) {
        node.journal.warn(&format!("keep the machine config for a restart: {error}"));
    }
    let shared = Arc::new(parsed.clone());
    let document = MachineDocument { text, config: parsed };
    let spec = Spec::MachineConfig(Arc::new(document));
    if let Err(error) = node.store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, "v1alpha1", spec) {
        node.journal.warn(&error.to_string());
    }
    node.config.send_replace(Some(shared));
}

/// Reads, checks and takes a config.
fn use_config(node: &Node, text: Zeroizing<String>) -> Result<(), Trouble> {
    let parsed = config::parse(&text).map_err(|e| Trouble::Invalid(e.to_string()))?;
    config::validate(&parsed).map_err(|e| Trouble::Invalid(e.to_string()))?;
    take(node, text, parsed);
    Ok(())
}

/// Takes the copy of an earlier machined; says whether it could.
pub fn restore_config(node: &Node, text: Zeroizing<String>) -> bool {
    use_config(node, text).is_ok()
}

fn fetch(node: &Node) -> Result<Zeroizing<String>, Trouble> {
    match &node.parameters.config {
        Some(ConfigSource::MetalIso) => from_volume(node).map_err(Trouble::Load),
        Some(ConfigSource::Url(url)) => {
            Err(Trouble::Load(format!("fetching {url} is not built yet; use billet.config=metal-iso")))
        }
        Some(ConfigSource::None) | None => {
            let text = "the command line names no source; add billet.config=metal-iso and attach a volume of that label";
            Err(Trouble::Load(text.to_owned()))
        }
    }
}

fn from_volume(node: &Node) -> Result<Zeroizing<String>, String> {
    let mut seen = Vec::new();
    for device in block_devices(Path::new("/sys/class/block")) {
        match probe(&device) {
            Ok(Some((label, kind))) if label == LABEL => return read_volume(node, &device, kind),
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
    Err(format!("no volume labelled {LABEL}: {seen}"))
}

/// Disks and partitions, sorted; loop and device-mapper devices carry the system itself.
fn block_devices(class: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(class) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let ours = |name: &String| ["loop", "dm-", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix));
    let mut devices: Vec<_> =
        names.filter(|name| !ours(name)).map(|name| Path::new("/dev").join(name)).collect();
    devices.sort();
    devices
}

fn probe(device: &Path) -> std::io::Result<Option<(String, ondisk::probe::Kind)>> {
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
    if let Err(error) = udevd::load_modules(modules(kind)) {
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
struct Volume(fs::File);

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
    let volume = Volume(fs::File::open(device).map_err(|e| other(e.to_string()))?);
    let limit = u32::try_from(MAX_BYTES).unwrap_or(u32::MAX);
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
        ondisk::probe::Kind::Vfat => &["nls_cp437", "nls_ascii", "nls_iso8859-1", "vfat"],
        ondisk::probe::Kind::Iso9660 => &["isofs"],
        _ => &[],
    }
}

fn read_file(path: &Path) -> std::io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    fs::File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
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
