//! Mounts of volumes.
//!
//! Owns: where EPHEMERAL goes and with which options; letting its file system fill its partition.
//! Source: docs/formats/disk.md; xfs_growfs(8); the layout of xfs's superblock.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, unmount};

use super::filesystem::mount_volume;
use super::program;
use super::specs::Mount;
use runtime::beneath;

/// Where EPHEMERAL is mounted.
pub(crate) const VAR: &str = "/var";
const GROW: &str = "/usr/sbin/xfs_growfs";
const GROW_DEADLINE: Duration = Duration::from_secs(120);
/// What a file system need not fill: less than this is no use.
const SLACK_BYTES: u64 = 1 << 20;

/// Mounts EPHEMERAL. Devices and set-user-id programs are allowed below it: containers have them.
pub(super) fn ephemeral(device: &Path) -> Result<(), String> {
    mount_volume(device, "EPHEMERAL", VAR, MountFlags::NOATIME)
}

/// Mounts a volume of the user's, unless it is.
pub(super) fn named(device: &Path, name: &str, place: &Mount) -> Result<(), String> {
    let target = &place.target;
    match source(target) {
        Some(source) if Path::new(&source) == device => return Ok(()),
        Some(source) => return Err(format!("mount {name} at {target}: {source} is mounted there")),
        None => {}
    }
    at(target, 0o755, |directory| mount_volume(device, name, directory, place.flags))
}

/// Hands out a path of the directory at `target`, made with this mode if it is not there. It leads to that directory whatever a
/// workload puts in its place meanwhile: a mount goes nowhere else.
pub(super) fn at<T>(
    target: &str,
    mode: u32,
    mount: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    let directory = beneath::make_directory(Path::new("/"), Path::new(target), mode);
    let directory = directory.map_err(|e| format!("create {target}: {e}"))?;
    mount(&directory.place().to_string_lossy()).map_err(|error| format!("{target}: {error}"))
}

/// Unmounts it, if it is mounted.
pub(super) fn leave(target: &str) -> Result<(), String> {
    match unmount(target, UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(format!("unmount {target}: it is in use")),
        Err(errno) => Err(format!("unmount {target}: {errno}")),
    }
}

/// Lets a mounted xfs fill its partition.
pub(super) fn fill(device: &Path) -> Result<(), String> {
    let what = |error: std::io::Error| format!("read {}: {error}", device.display());
    let mut file = File::open(device).map_err(what)?;
    let bytes = sys::block::size_bytes(&file).map_err(|errno| what(errno.into()))?;
    let mut start = [0; 512];
    file.read_exact(&mut start).map_err(what)?;
    match xfs_bytes(&start) {
        Some(used) if used.saturating_add(SLACK_BYTES) <= bytes => {
            program::run(GROW, &["-d", VAR], GROW_DEADLINE)
        }
        _ => Ok(()),
    }
}

/// The length of an xfs from its superblock: block size (u32 at 4) times blocks (u64 at 8), big-endian.
fn xfs_bytes(start: &[u8]) -> Option<u64> {
    let magic = start.get(..4)?;
    let block = u32::from_be_bytes(start.get(4..8)?.try_into().ok()?);
    let blocks = u64::from_be_bytes(start.get(8..16)?.try_into().ok()?);
    (magic == b"XFSB").then(|| blocks.saturating_mul(u64::from(block)))
}

/// Whether something with a device is mounted there.
pub(crate) fn is_mounted(target: &str) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    is_mounted_in(&mounts, target)
}

/// Whether anything is mounted there.
pub(super) fn is_target(target: &str) -> bool {
    source(target).is_some()
}

/// What is mounted there.
pub(super) fn source(target: &str) -> Option<String> {
    source_in(&fs::read_to_string("/proc/self/mounts").ok()?, target)
}

/// Later mounts cover earlier ones.
fn source_in(mounts: &str, target: &str) -> Option<String> {
    let mut pairs = mounts.lines().filter_map(|line| line.split_once(' '));
    let on_top = pairs.rfind(|(_, rest)| rest.split(' ').next() == Some(target));
    on_top.map(|(source, _)| source.to_owned())
}

fn is_mounted_in(mounts: &str, target: &str) -> bool {
    mounts.lines().any(|line| {
        let mut words = line.split(' ');
        words.next().is_some_and(|source| source.starts_with("/dev/")) && words.next() == Some(target)
    })
}

/// A table of mounts, for tests.
#[cfg(test)]
pub(super) const MOUNTS: &str = "/dev/dm-0 / squashfs ro 0 0\ntmpfs /var tmpfs rw 0 0\n/dev/vda5 /system/state xfs rw 0 0\n\
    /dev/vda6 /var xfs rw 0 0\n/dev/sdb1 /var/mnt/a\\040b xfs rw 0 0\ntmpfs /variant tmpfs rw 0 0\n\
    overlay /opt overlay rw,lowerdir=/opt,upperdir=/var/system/overlays/opt-diff,workdir=/w 0 0\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_on_top_counts() {
        assert_eq!(source_in(MOUNTS, "/var").as_deref(), Some("/dev/vda6"));
        assert_eq!(source_in(MOUNTS, "/var/mnt/data"), None);
        assert!(is_mounted_in(MOUNTS, "/var") && !is_mounted_in("tmpfs /var tmpfs rw 0 0\n", "/var"));
    }

    #[test]
    fn the_length_of_an_xfs() {
        let mut start = vec![0; 512];
        start[..16].copy_from_slice(b"XFSB\0\0\x10\0\0\0\0\0\0\x01\0\0");
        assert_eq!(xfs_bytes(&start), Some(4096 * 65536));
        start[0] = 0;
        assert_eq!(xfs_bytes(&start), None);
    }
}
