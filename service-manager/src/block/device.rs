//! A block device as sysfs has it, and the files there.
//!
//! Source: Documentation/ABI/stable/sysfs-block.

use std::fs;
use std::path::{Path, PathBuf};

use runtime::Runtime;

pub(crate) const CLASS: &str = "/sys/class/block";
/// Unit of the `size` file, whatever the disk's own sectors.
pub(super) const SECTOR_BYTES: u64 = 512;

/// A block device with what everything else is read from.
pub(super) struct Device {
    pub(super) name: String,
    /// Its real directory below /sys/devices.
    pub(super) directory: PathBuf,
    /// The disk that it is a part of.
    pub(super) parent: Option<String>,
    pub(super) bytes: u64,
}

/// Every block device, by name.
pub(super) fn devices(runtime: &Runtime) -> Vec<Device> {
    let entries = fs::read_dir(runtime.path(CLASS)).into_iter().flatten().flatten();
    let mut found: Vec<Device> =
        entries.filter_map(|entry| Device::read(&entry.path(), entry.file_name().to_str()?)).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

impl Device {
    pub(super) fn read(link: &Path, name: &str) -> Option<Self> {
        let directory = fs::canonicalize(link).ok()?;
        let sectors: u64 = text(&directory.join("size")).parse().ok()?;
        let parent = directory.join("partition").exists().then(|| {
            let parent = directory.parent().and_then(Path::file_name);
            parent.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        });
        Some(Self { name: name.to_owned(), directory, parent, bytes: sectors.saturating_mul(SECTOR_BYTES) })
    }

    /// A memory card. Its boot areas are devices beside it, with the same card behind them.
    pub(super) fn is_card(&self) -> bool {
        self.name.starts_with("mmcblk") && !["boot", "rpmb"].iter().any(|area| self.name.contains(area))
    }

    /// Mappings are made of disks, and are none.
    pub(super) fn is_disk(&self) -> bool {
        self.parent.is_none()
            && self.bytes > 0
            && !["dm-", "ram", "zram", "md"].iter().any(|prefix| self.name.starts_with(prefix))
    }

    pub(super) fn kind(&self) -> &'static str {
        if self.parent.is_some() { "partition" } else { "disk" }
    }

    pub(super) fn node_path(&self) -> String {
        node_path(&self.name)
    }

    /// The first of these files that says something.
    pub(super) fn first(&self, files: &[&str]) -> String {
        files
            .iter()
            .map(|file| text(&self.directory.join(file)))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }

    pub(super) fn number(&self, file: &str) -> u64 {
        // A partition has no queue of its own.
        let own = text(&self.directory.join(file)).parse().ok();
        own.or_else(|| text(&self.directory.parent()?.join(file)).parse().ok()).unwrap_or(0)
    }

    pub(super) fn slaves(&self) -> Vec<String> {
        names(&self.directory.join("slaves"))
    }

    /// A line of its uevent file.
    pub(super) fn property(&self, name: &str) -> String {
        let uevent = text(&self.directory.join("uevent"));
        let value = uevent.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().to_owned()
    }
}

/// `/dev/…`; a slash in a name stands as `!` in sysfs.
pub(super) fn node_path(name: &str) -> String {
    format!("/dev/{}", name.replace('!', "/"))
}

pub(super) fn text(path: &Path) -> String {
    fs::read_to_string(path).map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Bytes for people, as the clients' own tables write them: `512 B`, `1.0 GB`, `75 MB`.
pub(crate) fn pretty_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut unit = 0;
    let mut step = 1;
    while bytes / step >= 1000 {
        step *= 1000;
        unit += 1;
    }
    if unit == 0 {
        return format!("{bytes} B");
    }
    // Tenths first, then whole numbers, halves to even: two roundings, as in the original.
    let tenths = (bytes as f64 / step as f64 * 10.0 + 0.5).floor() / 10.0;
    if tenths < 10.0 {
        format!("{tenths:.1} {}", UNITS[unit])
    } else {
        format!("{tenths:.0} {}", UNITS[unit])
    }
}
