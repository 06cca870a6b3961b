//! Labelled boot media.
//!
//! Owns: finding an ISO 9660 or FAT volume by its label and mounting it below /run, where it stays: the layers on it
//! are in use as long as the system runs.
//! Source: ECMA-119 §8.4 (primary volume descriptor), Microsoft FAT specification (boot sector).

use alloc::format;
use alloc::string::{String, ToString};

use ondisk::manifest::LAYER_DIR;

use crate::boot::Boot;
use crate::events;
use crate::failure::Failure;
use crate::kernel::{Kernel, Options};
use crate::source::Source;

/// Where the medium is mounted, here and in the new root.
const MOUNT_POINT: &str = "/run/billet/medium";

const OPTIONS: Options = Options { read_only: true, no_suid: true, no_dev: true, no_exec: true };

/// Devices that carry no media.
const NOT_MEDIA: &[&str] = &["dm-", "loop", "ram", "zram"];

/// A volume with the label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    path: String,
    kind: &'static str,
}

/// Waits for a medium and mounts it.
pub(super) fn find(boot: &mut Boot<'_>, label: &str) -> Result<Source, Failure> {
    let what = format!("a medium labelled {label}");
    let device = events::wait_for(boot, &what, |boot| look(boot, label))?;
    mount(boot, &device, label)
}

/// One look at all block devices.
pub(super) fn look(boot: &mut Boot<'_>, label: &str) -> Result<Option<Device>, Failure> {
    let folder = "/sys/class/block";
    for name in boot.kernel.list(folder).map_err(Failure::at("list", folder))? {
        if NOT_MEDIA.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let path = format!("/dev/{name}");
        if let Some((kind, found)) = probe(boot.kernel, &path)
            && found.eq_ignore_ascii_case(label)
        {
            return Ok(Some(Device { path, kind }));
        }
    }
    Ok(None)
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

/// Mounts the volume read-only.
pub(super) fn mount(boot: &mut Boot<'_>, device: &Device, label: &str) -> Result<Source, Failure> {
    // The file system driver, and for vfat the tables of its names; built in or absent is both fine here, the mount
    // below tells.
    let needed: &[&str] =
        if device.kind == "iso9660" { &["isofs"] } else { &["vfat", "nls_cp437", "nls_ascii"] };
    for module in needed {
        if boot.modules.knows(module)
            && let Err(failure) = boot.modules.load(boot.kernel, module)
        {
            boot.warn(&failure.to_string());
        }
    }
    for folder in ["/run/billet", MOUNT_POINT] {
        boot.kernel.make_folder(folder, 0o755).map_err(Failure::at("make folder", folder))?;
    }
    boot.kernel
        .mount(&device.path, MOUNT_POINT, device.kind, OPTIONS, "")
        .map_err(Failure::at("mount medium", &device.path))?;
    let described = format!("{} (label {label})", device.path);
    Ok(Source::Files { folder: format!("{MOUNT_POINT}{LAYER_DIR}"), described })
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
