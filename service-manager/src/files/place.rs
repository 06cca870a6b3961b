//! Writing one planned file, and showing it where it is wanted.
//!
//! Order: a new file beside the old one gets its permissions before its content, then takes the old one's name: no
//! reader ever sees half a file, or a secret with loose permissions. A file that is shown elsewhere is bound there
//! anew, since a bind follows the file and not its name.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use super::Target;

const FOLDER_MODE: u32 = 0o755;

pub(super) fn place(root: &Path, target: &Target) -> Result<(), String> {
    let path = below(root, &target.written);
    write(&path, target).map_err(|e| format!("write {}: {e}", path.display()))?;
    match &target.shown {
        Some(shown) => show(&path, &below(root, shown)),
        None => Ok(()),
    }
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn write(path: &Path, target: &Target) -> std::io::Result<()> {
    let mode = fs::Permissions::from_mode(target.mode);
    if fs::read(path).is_ok_and(|present| present == target.content) {
        return fs::set_permissions(path, mode);
    }
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".billet-new");
    let new = PathBuf::from(name);
    let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.set_permissions(mode)?;
    file.write_all(&target.content)?;
    file.sync_all()?;
    fs::rename(new, path)
}

/// Binds a file over another, read-only.
fn show(source: &Path, target: &Path) -> Result<(), String> {
    let identity = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    if identity(source).is_some() && identity(source) == identity(target) {
        return Ok(());
    }
    let failed = |what: &str, errno: rustix::io::Errno| {
        format!("{what} {} over {}: {errno}", source.display(), target.display())
    };
    if is_mount_point(target) {
        unmount(target, UnmountFlags::DETACH).map_err(|errno| failed("replace the bind of", errno))?;
    }
    mount_bind(source, target).map_err(|errno| failed("bind", errno))?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(target, flags, "").map_err(|errno| failed("make read-only the bind of", errno))
}

fn is_mount_point(path: &Path) -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mounts") else { return false };
    mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|point| Path::new(point) == path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_get_their_permissions_and_replace_older_ones() {
        let dir = tempfile::tempdir().unwrap();
        let target = |content: &str, mode| Target {
            written: "/var/deep/er/file".into(),
            shown: None,
            content: content.into(),
            mode,
        };
        let path = dir.path().join("var/deep/er/file");
        for (content, mode) in [("first", 0o600), ("second", 0o644), ("second", 0o400), ("third", 0o640)] {
            place(dir.path(), &target(content, mode)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("var/x")).unwrap();
        let target = Target { written: "/var/x".into(), shown: None, content: vec![1], mode: 0o644 };
        assert!(place(dir.path(), &target).unwrap_err().contains("var/x"));
    }
}
