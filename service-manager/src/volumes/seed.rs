//! What the GUIDs of a further disk are made from: the same at every try on it, another for every other disk.
//!
//! Source: `installer::volumes::{provision_extra, provision_named}`, which know a table that was cut off by them.

use std::fs;
use std::path::Path;

use ondisk::Digest;

const CLASS: &str = "/sys/class/block";
const MACHINE: &str = "/sys/class/dmi/id/product_uuid";

/// For the partitions of `machine.disks`.
pub(super) fn of_layout(disk: &Path, sizes: &[Option<u64>]) -> [u8; 32] {
    from(b"billet user disk\0", disk, &format!("{} {sizes:?}", disk.display()))
}

/// For a disk of named volumes. One that has a number keeps its GUIDs under another name.
pub(super) fn of_disk(disk: &Path) -> [u8; 32] {
    let name = if number(disk).is_empty() { disk.display().to_string() } else { String::new() };
    from(b"billet volumes\0", disk, &name)
}

fn text(disk: &Path, file: &str) -> Vec<u8> {
    fs::read(Path::new(CLASS).join(disk.file_name().unwrap_or_default()).join(file)).unwrap_or_default()
}

fn number(disk: &Path) -> Vec<u8> {
    ["serial", "device/serial", "wwid", "device/wwid"].map(|file| text(disk, file)).concat()
}

fn from(purpose: &[u8], disk: &Path, rest: &str) -> [u8; 32] {
    let machine = fs::read(MACHINE).unwrap_or_default();
    let identity = [number(disk), text(disk, "size"), machine].concat();
    *Digest::sha256(&[purpose, &identity, rest.as_bytes()]).as_bytes()
}
