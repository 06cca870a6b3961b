//! Labelled boot media.
//!
//! Owns: finding an ISO 9660 or FAT volume by its label and mounting it below /run, where it stays: the layers on it
//! are in use as long as the system runs.
//! Order: a volume with the label is mounted; if it does not hold the layers of the manifest, as a stick of another version
//! does not, it is unmounted, said, and the search goes on.
//! Fails by: listing what had the label and why it is not the root.
//! Source: ECMA-119 §8.4 (primary volume descriptor), Microsoft FAT specification (boot sector).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use ondisk::manifest::LAYER_DIR;
use sys::Errno;
use sys::errno::Described;

use crate::boot::Boot;
use crate::events;
use crate::failure::Failure;
use crate::kernel::{Kernel, Level, Options};
use crate::line::say;
use crate::source::Source;

/// Where the medium is mounted, here and in the new root.
const MOUNT_POINT: &str = "/run/billet/medium";

const OPTIONS: Options = Options { read_only: true, no_suid: true, no_dev: true, no_exec: true };

/// Devices that carry no media.
const NOT_MEDIA: &[&str] = &["dm-", "loop", "ram", "zram"];

/// A volume with the label.
struct Device {
    path: String,
    kind: &'static str,
}

/// A search over all volumes, repeated as they appear.
pub(super) struct Search<'a> {
    label: &'a str,
    /// What had the label at the last look, and why it is not the root.
    refused: Vec<String>,
    /// What of that was ever said.
    said: Vec<String>,
}

/// Waits for the medium that holds the layers, and mounts it.
pub(super) fn find(boot: &mut Boot<'_>, label: &str) -> Result<Source, Failure> {
    let what = format!("a medium labelled {label}");
    let mut search = Search::new(label);
    events::wait_for(boot, &what, |boot| search.look(boot))
        .map_err(|failure| failure.explained(search.refused()))
}

impl<'a> Search<'a> {
    pub(super) fn new(label: &'a str) -> Self {
        Self { label, refused: Vec::new(), said: Vec::new() }
    }

    /// One look at all volumes; the first that holds the layers stays mounted. The others are tried again at the next look:
    /// a drive may have another CD by then, and what could not be read may be read.
    pub(super) fn look(&mut self, boot: &mut Boot<'_>) -> Result<Option<Source>, Failure> {
        self.refused.clear();
        for device in self.labelled(boot)? {
            match self.mount(boot, &device)? {
                Ok(source) => return Ok(Some(source)),
                Err(reason) => self.refuse(boot, format!("{}: {reason}", device.path)),
            }
        }
        Ok(None)
    }

    fn refuse(&mut self, boot: &mut Boot<'_>, reason: String) {
        if !self.said.contains(&reason) {
            say!(boot.kernel, Level::Warning, "not the root: {reason}; looking for another medium");
            self.said.push(reason.clone());
        }
        self.refused.push(reason);
    }

    /// Why each volume with the label is not the root.
    pub(super) fn refused(&self) -> &[String] {
        &self.refused
    }

    fn labelled(&self, boot: &mut Boot<'_>) -> Result<Vec<Device>, Failure> {
        let directory = "/sys/class/block";
        let mut found = Vec::new();
        for name in boot.kernel.list(directory).map_err(Failure::at("list", directory))? {
            if NOT_MEDIA.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            let path = format!("/dev/{name}");
            if let Some((kind, label)) = probe(boot.kernel, &path)
                && label.eq_ignore_ascii_case(self.label)
            {
                found.push(Device { path, kind });
            }
        }
        Ok(found)
    }

    /// Mounts a volume read-only; if it is not the root, the reason.
    fn mount(&self, boot: &mut Boot<'_>, device: &Device) -> Result<Result<Source, String>, Failure> {
        load_file_system(boot, device.kind);
        for directory in ["/run/billet", MOUNT_POINT] {
            boot.kernel.make_directory(directory, 0o755).map_err(Failure::at("make directory", directory))?;
        }
        if let Err(errno) = boot.kernel.mount(&device.path, MOUNT_POINT, device.kind, OPTIONS, "") {
            return Ok(Err(format!("it cannot be mounted: {}", Described(errno))));
        }
        let directory = format!("{MOUNT_POINT}{LAYER_DIR}");
        let Some(reason) = mismatch(boot, &directory) else {
            let described = format!("{} (label {})", device.path, self.label);
            return Ok(Ok(Source::Files { directory, described }));
        };
        boot.kernel.unmount(MOUNT_POINT, true).map_err(Failure::at("unmount", MOUNT_POINT))?;
        Ok(Err(reason))
    }
}

/// The file system driver, and for vfat the tables of its names; built in or absent is both fine here, mounting tells.
fn load_file_system(boot: &mut Boot<'_>, kind: &str) {
    let needed: &[&str] = if kind == "iso9660" { &["isofs"] } else { &["vfat", "nls_cp437", "nls_ascii"] };
    for module in needed {
        if boot.modules.knows(module)
            && let Err(failure) = boot.modules.load(boot.kernel, module)
        {
            boot.warn(&failure.to_string());
        }
    }
}

/// Why a directory does not hold the layers of the manifest. That their bytes are right, verity sees to.
fn mismatch(boot: &mut Boot<'_>, directory: &str) -> Option<String> {
    for layer in boot.manifest.layers.clone() {
        let needed = layer.total_bytes();
        match boot.kernel.status(&format!("{directory}/{}", layer.file_name())) {
            Ok(status) if status.size_bytes >= needed => {}
            Ok(status) => {
                let actual = status.size_bytes;
                return Some(format!("layer {} is truncated: {actual} of {needed} bytes", layer.name));
            }
            Err(Errno::NOENT) => {
                return Some(format!("layer {} is not there, or of another version", layer.name));
            }
            Err(errno) => return Some(format!("layer {}: {}", layer.name, Described(errno))),
        }
    }
    None
}

/// File system type and label of a device.
fn probe(kernel: &mut dyn Kernel, path: &str) -> Option<(&'static str, String)> {
    let mut descriptor = [0; 72];
    if kernel.read_at(path, 32_768, &mut descriptor).is_ok()
        && let Some(label) = iso_label(&descriptor)
    {
        return Some(("iso9660", label));
    }
    let mut sector = [0; 512];
    kernel.read_at(path, 0, &mut sector).ok()?;
    Some(("vfat", fat_label(&sector)?))
}

/// Type 1 at 0, `CD001` at 1, label at 40 (32 bytes, padded with spaces).
fn iso_label(descriptor: &[u8]) -> Option<String> {
    (descriptor.get(..6)? == b"\x01CD001").then(|| text(&descriptor[40..72]))
}

/// FAT32: type text at 82, label at 71; FAT12 and FAT16: at 54 and 43. Eleven bytes, padded with spaces.
fn fat_label(sector: &[u8]) -> Option<String> {
    if sector.get(510..512)? != [0x55, 0xaa] {
        return None;
    }
    if &sector[82..87] == b"FAT32" {
        return Some(text(&sector[71..82]));
    }
    (&sector[54..57] == b"FAT").then(|| text(&sector[43..54]))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).trim_end_matches([' ', '\0']).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_where_the_standards_put_them() {
        let mut descriptor = [b' '; 72];
        descriptor[..6].copy_from_slice(b"\x01CD001");
        descriptor[40..46].copy_from_slice(b"BILLET");
        assert_eq!(iso_label(&descriptor).as_deref(), Some("BILLET"));
        assert_eq!(iso_label(&[0; 72]), None);

        let mut sector = [0; 512];
        assert_eq!(fat_label(&sector), None);
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(fat_label(&sector), None);
        sector[43..62].copy_from_slice(b"OLD        FAT16   ");
        assert_eq!(fat_label(&sector).as_deref(), Some("OLD"));
        sector[71..90].copy_from_slice(b"BILLET     FAT32   ");
        assert_eq!(fat_label(&sector).as_deref(), Some("BILLET"));
    }
}
