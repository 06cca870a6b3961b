//! What the disk says of this node's member.

use std::path::{Path, PathBuf};

use kubernetes::paths;
use runtime::beneath;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The service's id.
pub const ID: &str = "etcd";
/// Beside the data: a bootstrap was asked for.
pub(super) const MARK: &str = "/var/lib/etcd.bootstrap";

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
    match std::fs::read(below(root, MARK)) {
        Ok(mark) if mark.is_empty() => return Ok(Data::Asked),
        Ok(mark) => {
            let recovery = serde_json::from_slice(&mark);
            return recovery.map(Data::Recover).map_err(|error| failed("read", MARK)(error.into()));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("read", MARK)(error)),
    }
    match std::fs::read_dir(below(root, paths::ETCD_DATA)) {
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
