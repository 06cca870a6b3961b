//! Writing one planned file, and showing it where it is wanted.
//!
//! Order: a new file beside the old one gets its permissions before its content, then takes the old one's name: no
//! reader ever sees half a file, or a secret with loose permissions. A file that is shown elsewhere is bound there
//! anew, since a bind follows the file and not its name.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use super::plan::Target;
use runtime::beneath;

pub(super) fn place(root: &Path, target: &Target) -> Result<(), String> {
    let path = below(root, &target.written);
    let written = write(root, target).map_err(|e| format!("write {}: {e}", path.display()))?;
    match &target.shown {
        Some(shown) => show(&written, &path, &below(root, shown)),
        None => Ok(()),
    }
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the file, open.
fn write(root: &Path, target: &Target) -> std::io::Result<File> {
    let (directory, name) = beneath::make_parent(root, &target.written)?;
    directory.replace(&name, &target.content, target.mode)?;
    directory.file(&name)?.ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// Binds a file that lies at `source` over another, read-only.
fn show(file: &File, source: &Path, target: &Path) -> Result<(), String> {
    let identity = |status: fs::Metadata| (status.dev(), status.ino());
    let written = file.metadata().ok().map(identity);
    if written.is_some() && written == fs::metadata(target).ok().map(identity) {
        return Ok(());
    }
    let failed = |what: &str, errno: rustix::io::Errno| {
        format!("{what} {} over {}: {errno}", source.display(), target.display())
    };
    if is_mount_point(target) {
        unmount(target, UnmountFlags::DETACH).map_err(|errno| failed("replace the bind of", errno))?;
    }
    // This very file, whatever has its name by now.
    mount_bind(beneath::fd_path(file.as_fd()), target).map_err(|errno| failed("bind", errno))?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(target, flags, "").map_err(|errno| failed("make read-only the bind of", errno))
}

fn is_mount_point(path: &Path) -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mounts") else { return false };
    mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|point| Path::new(point) == path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A workload with `/var` as host path, and the registry's password in the config.
    #[test]
    fn a_planted_link_gives_way_and_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("var/etc")).unwrap();
        fs::create_dir(dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("../../elsewhere", dir.path().join("var/etc/cri")).unwrap();
        let target =
            Target { written: "/var/etc/cri/hosts.toml".into(), shown: None, content: vec![1], mode: 0o600 };
        place(dir.path(), &target).unwrap();
        assert_eq!(fs::read(dir.path().join("var/etc/cri/hosts.toml")).unwrap(), [1]);
        assert_eq!(fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
    }

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
    fn a_directory_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("var/x")).unwrap();
        let target = Target { written: "/var/x".into(), shown: None, content: vec![1], mode: 0o644 };
        assert!(place(dir.path(), &target).unwrap_err().contains("var/x"));
    }
}
