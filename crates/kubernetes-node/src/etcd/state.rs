//! What the disk says of this node's member. Workloads write below /var too: a link there is an error, and is not followed.

use std::path::{Path, PathBuf};

use kubernetes::paths;
use runtime::beneath;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The service's id.
pub const ID: &str = "etcd";
/// Beside the data: a bootstrap was asked for.
pub(super) const MARK: &str = "/var/lib/etcd.bootstrap";

/// Beside the data: it was made of a snapshot, and of which. Programs that had read from the data before start again with it.
pub(super) const RESTORED: &str = "/var/lib/etcd.restored";

/// What the mark holds where the cluster begins with the content of a snapshot; otherwise it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recovery {
    /// The snapshot has no digest.
    pub(super) skip_hash_check: bool,
}

/// What the disk says of this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Data {
    /// Nothing.
    None,
    /// A bootstrap was asked for, and the member has not answered since.
    Asked,
    /// The same from a snapshot, of which the data has not been made yet.
    Recover(Recovery),
    /// A member.
    Member,
}

pub(super) fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

pub(super) fn failed(what: &'static str, path: &str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::File { what, path: path.into(), source }
}

/// Reads what the disk says.
pub(super) fn data(root: &Path) -> Result<Data, Error> {
    match beneath::read(root, Path::new(MARK)) {
        Ok(mark) if mark.is_empty() => return Ok(Data::Asked),
        Ok(mark) => {
            let recovery = serde_json::from_slice(&mark);
            return recovery.map(Data::Recover).map_err(|error| failed("read", MARK)(error.into()));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("read", MARK)(error)),
    }
    // The last name of a path in it is not looked at.
    let data = beneath::parent(root, &Path::new(paths::ETCD_DATA).join("any"));
    match data.and_then(|(directory, _)| std::fs::read_dir(directory.place())) {
        Ok(mut entries) => Ok(if entries.next().is_some() { Data::Member } else { Data::None }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Data::None),
        Err(error) => Err(failed("read", paths::ETCD_DATA)(error)),
    }
}

/// Puts the mark on the disk.
pub(super) fn mark(root: &Path, recovery: Option<Recovery>) -> Result<(), Error> {
    let content = recovery.map(|recovery| serde_json::to_vec(&recovery)).transpose();
    let content = content.map_err(|error| failed("write", MARK)(error.into()))?.unwrap_or_default();
    let (directory, name) = beneath::make_parent(root, Path::new(MARK)).map_err(failed("write", MARK))?;
    directory.replace(&name, &content, 0o600).map_err(failed("write", MARK))?;
    directory.sync().map_err(failed("write", MARK))
}

/// Removes a file or a directory beside the data, if it is there.
pub(super) fn remove(root: &Path, path: &'static str) -> Result<(), Error> {
    match beneath::parent(root, Path::new(path)) {
        Ok((directory, name)) => directory.remove_all(&name).map_err(failed("remove", path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// Whether the node with this root is a member of a cluster, or was asked to begin one. What cannot be read may be one.
pub fn is_member(root: &Path) -> bool {
    !matches!(data(root), Ok(Data::None))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_planted_link_is_neither_a_mark_nor_data() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| below(root.path(), path);
        for directory in ["/var/lib", "/other/member"] {
            std::fs::create_dir_all(at(directory)).unwrap();
        }
        std::fs::write(at("/other/mark"), "").unwrap();
        for (path, target) in [(MARK, "/other/mark"), (paths::ETCD_DATA, "/other")] {
            assert_eq!(data(root.path()).unwrap(), Data::None);
            symlink(at(target), at(path)).unwrap();
            let error = data(root.path()).unwrap_err().to_string();
            assert!(error.contains("is a symbolic link, which is not followed"), "{error}");
            std::fs::remove_file(at(path)).unwrap();
        }
    }
}
