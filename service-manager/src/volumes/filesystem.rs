//! Mounting what a device holds.
//!
//! Owns: which file systems are mounted, and the kernel modules that each needs.
//! Fails by: a sentence that names the device.

use std::ffi::CString;
use std::path::Path;

use ondisk::probe::Kind;
use rustix::mount::{MountFlags, mount};

use crate::block;
use crate::modules::load_modules;

/// What the kernel needs to mount a FAT.
const FAT_MODULES: &[&str] = &["nls_cp437", "nls_ascii", "nls_iso8859-1", "vfat"];

/// Mounts a partition of the system disk with whatever file system it holds.
pub(super) fn mount_volume(
    device: &Path,
    label: &str,
    target: &str,
    flags: MountFlags,
) -> Result<(), String> {
    let name = device.display();
    let kind = match block::probe(device) {
        Ok(Some((_, kind @ (Kind::Xfs | Kind::Ext4 | Kind::Vfat)))) => kind,
        Ok(Some((_, kind))) => {
            return Err(format!("{name} ({label}) holds {kind}, which cannot be mounted"));
        }
        Ok(None) => return Err(format!("{name} ({label}) holds no file system")),
        Err(error) => return Err(format!("read {name} ({label}): {error}")),
    };
    load_modules(modules(kind)).map_err(|e| format!("mount {name} ({label}): {e}"))?;
    let options = if kind == Kind::Vfat { c"umask=0077" } else { c"" };
    let text = |text: String| CString::new(text).map_err(|_| format!("device name {name}"));
    let (source, kind) = (text(name.to_string())?, text(kind.as_str().to_owned())?);
    mount(source.as_c_str(), target, kind.as_c_str(), flags, Some(options))
        .map_err(|e| format!("mount {name} ({label}, {kind:?}) at {target}: {e}"))
}

fn modules(kind: Kind) -> &'static [&'static str] {
    match kind {
        // Their checksum is asked for by an alias, which nothing of ours answers in the kernel's place.
        Kind::Xfs => &["crc32c_generic", "xfs"],
        Kind::Ext4 => &["crc32c_generic", "ext4"],
        _ => FAT_MODULES,
    }
}
