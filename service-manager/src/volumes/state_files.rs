//! STATE: the partition that keeps what a node knows of itself, and how files get onto it.
//!
//! Owns: finding it by its GPT name, mounting it at [`MOUNT_POINT`], writing so that a power cut leaves a file old or
//! new: temporary file, fsync, rename, fsync of the directory.
//! Does not: make the partition or its file system (the installer does), open an encrypted one, or know its files.
//! Fails by: a sentence that names device and operation; a node without STATE runs, and keeps its config in memory.
//! Source: docs/users/config-lifecycle.md.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;
use zeroize::Zeroizing;

use super::filesystem::mount_volume;
use crate::block;

/// Where it is mounted.
pub(crate) const MOUNT_POINT: &str = "/system/state";
/// The GPT name.
const LABEL: &str = "STATE";
/// No file here is larger than the longest config.
const MAX_BYTES: u64 = config::MAX_BYTES as u64;

/// A mounted STATE.
#[derive(Debug, Clone)]
pub(crate) struct State {
    directory: PathBuf,
}

/// What the search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// No partition of that name.
    Nothing,
    /// One.
    One(PathBuf),
    /// Several, which is nobody's intention.
    Several(Vec<PathBuf>),
}

/// Looks for the partition.
pub(crate) fn find(class: &Path) -> Found {
    let named = |device: &PathBuf| {
        let name = device.file_name().unwrap_or_default();
        let uevent = fs::read_to_string(class.join(name).join("uevent")).unwrap_or_default();
        uevent.lines().any(|line| line.strip_prefix("PARTNAME=") == Some(LABEL))
    };
    let mut found: Vec<PathBuf> = block::disks_and_partitions(class).into_iter().filter(named).collect();
    match (found.len(), found.pop()) {
        (_, None) => Found::Nothing,
        (1, Some(device)) => Found::One(device),
        (_, Some(last)) => {
            found.push(last);
            Found::Several(found)
        }
    }
}

impl crate::network::Disk for State {
    fn text(&self, name: &str) -> Result<Option<String>, String> {
        Ok(self.read(name)?.map(|text| text.to_string()))
    }

    fn replace(&self, name: &str, text: &str) -> Result<(), String> {
        self.write(name, text)
    }
}

impl State {
    /// Mounts what [`find`] found; a partition that is mounted already is taken as it is.
    pub(crate) fn mount(device: &Path) -> Result<Self, String> {
        let state = Self::at(Path::new(MOUNT_POINT));
        if Self::is_mounted() {
            return Ok(state);
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
        mount_volume(device, LABEL, MOUNT_POINT, flags)?;
        // vfat has no modes: its option says the same.
        let _ = fs::set_permissions(MOUNT_POINT, fs::Permissions::from_mode(0o700));
        Ok(state)
    }

    /// Takes the partition out of use.
    pub(super) fn unmount() -> Result<(), String> {
        rustix::mount::unmount(MOUNT_POINT, rustix::mount::UnmountFlags::empty())
            .map_err(|errno| format!("unmount {MOUNT_POINT}: {errno}"))
    }

    /// Takes over what an earlier machined mounted.
    pub(crate) fn mounted() -> Option<Self> {
        Self::is_mounted().then(|| Self::at(Path::new(MOUNT_POINT)))
    }

    fn is_mounted() -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').nth(1) == Some(MOUNT_POINT))
    }

    /// A directory that stands for it.
    pub(crate) fn at(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf() }
    }

    /// A file's text; `None` without such a file.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Zeroizing<String>>, String> {
        let path = self.directory.join(name);
        let mut text = Zeroizing::new(String::new());
        let read = File::open(&path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        match read {
            Ok(length) if u64::try_from(length).is_ok_and(|length| length > MAX_BYTES) => {
                Err(format!("read {}: it is larger than {MAX_BYTES} bytes", path.display()))
            }
            Ok(_) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("read {}: {error}", path.display())),
        }
    }

    /// Replaces a file; when this returns, the new content is on the disk.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let (path, new) = (self.directory.join(name), self.directory.join(format!(".{name}.new")));
        let failed = |what: &str, error: std::io::Error| format!("{what} {}: {error}", path.display());
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .map_err(|e| failed("create the new", e))?;
        file.write_all(text.as_bytes()).map_err(|e| failed("write the new", e))?;
        file.sync_all().map_err(|e| failed("flush the new", e))?;
        fs::rename(&new, &path).map_err(|e| failed("replace", e))?;
        self.sync()
    }

    /// Removes a file; when this returns, it is gone from the disk.
    pub(crate) fn remove(&self, name: &str) -> Result<(), String> {
        match fs::remove_file(self.directory.join(name)) {
            Ok(()) => self.sync(),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("remove {}: {error}", self.directory.join(name).display())),
        }
    }

    fn sync(&self) -> Result<(), String> {
        let directory = File::open(&self.directory).and_then(|directory| directory.sync_all());
        directory.map_err(|e| format!("flush {}: {e}", self.directory.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "config.yaml";

    #[test]
    fn the_partition_is_found_by_its_gpt_name() {
        let dir = tempfile::tempdir().unwrap();
        let add = |name: &str, label: &str| {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("uevent"), format!("MAJOR=254\nPARTNAME={label}\n"))
                .unwrap();
        };
        add("vda1", "EFI");
        add("dm-0", "STATE");
        assert_eq!(find(dir.path()), Found::Nothing);
        add("vda5", "STATE");
        assert_eq!(find(dir.path()), Found::One("/dev/vda5".into()));
        add("sda1", "STATE");
        assert_eq!(find(dir.path()), Found::Several(vec!["/dev/sda1".into(), "/dev/vda5".into()]));
    }

    #[test]
    fn files_are_replaced_whole_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::at(dir.path());
        assert_eq!(state.read(CONFIG), Ok(None));
        state.write(CONFIG, "one\n").unwrap();
        state.write(CONFIG, "two\n").unwrap();
        assert_eq!(state.read(CONFIG).unwrap().unwrap().as_str(), "two\n");
        let mode = fs::metadata(dir.path().join(CONFIG)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
        let longest = "x".repeat(config::MAX_BYTES);
        state.write(CONFIG, &longest).unwrap();
        assert!(state.read(CONFIG).unwrap().unwrap().as_str() == longest, "the longest config is read whole");
        state.write(CONFIG, &format!("{longest}x")).unwrap();
        assert!(state.read(CONFIG).unwrap_err().contains("it is larger than"));
        state.remove(CONFIG).unwrap();
        state.remove(CONFIG).unwrap();
        assert_eq!(state.read(CONFIG), Ok(None));
    }

    #[test]
    fn a_directory_that_is_gone_is_said() {
        let state = State::at(Path::new("/nonexistent/state"));
        assert!(state.write(CONFIG, "x").unwrap_err().contains("/nonexistent/state/config.yaml"));
    }
}
