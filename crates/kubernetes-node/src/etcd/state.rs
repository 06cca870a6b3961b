//! What the disk says of this node's member.

use std::path::{Path, PathBuf};

use kubernetes::paths;

use crate::Error;

/// The service's id.
pub const ID: &str = "etcd";
/// Beside the data: a bootstrap was asked for.
pub(super) const MARK: &str = "/var/lib/etcd.bootstrap";

/// What the disk says of this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Data {
    /// Nothing.
    None,
    /// A bootstrap was asked for, and the member has not answered since.
    Asked,
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
    if below(root, MARK).try_exists().map_err(failed("look for", MARK))? {
        return Ok(Data::Asked);
    }
    match std::fs::read_dir(below(root, paths::ETCD_DATA)) {
        Ok(mut entries) => Ok(if entries.next().is_some() { Data::Member } else { Data::None }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Data::None),
        Err(error) => Err(failed("read", paths::ETCD_DATA)(error)),
    }
}

/// Whether the node with this root is a member of a cluster, or was asked to begin one. What cannot be read may be one.
pub fn is_member(root: &Path) -> bool {
    !matches!(data(root), Ok(Data::None))
}
