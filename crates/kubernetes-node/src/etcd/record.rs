//! What this node keeps of the cluster that its member belongs to, beside the data.
//!
//! Owns: the file /var/lib/etcd.member. It lies on the same partition as the data, and goes with it.

use std::path::Path;

use kubernetes::paths;
use runtime::beneath;
use serde::{Deserialize, Serialize};

use super::state::{RESTORED, failed};
use crate::Error;

/// Beside the data.
pub(super) const RECORD: &str = "/var/lib/etcd.member";

/// Which member this is, of which cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The cluster's number.
    pub(super) cluster: u64,
    /// The member's.
    pub(super) member: u64,
    /// Where clients reach the others.
    pub(super) endpoints: Vec<String>,
    /// How far it is.
    pub(super) stage: Stage,
}

/// How far a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    /// The cluster was asked to take it; without data it has not started yet.
    Joining,
    /// It belongs to the cluster.
    Member,
    /// The cluster is asked to do without it. Cut off here, the cluster says whether it did.
    Leaving,
    /// The cluster does without it: the data goes.
    Left,
}

/// What is kept; one that cannot be read says why.
pub(super) fn read(root: &Path) -> Result<Option<Record>, Error> {
    let text = match beneath::read(root, Path::new(RECORD)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", RECORD)(error)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| failed("read", RECORD)(error.into()))
}

/// Keeps it, if it is another.
pub(super) fn keep(root: &Path, record: &Record) -> Result<(), Error> {
    if read(root).ok().flatten().as_ref() == Some(record) {
        return Ok(());
    }
    let text = serde_json::to_vec(record).map_err(|error| failed("write", RECORD)(error.into()))?;
    let (directory, name) = beneath::make_parent(root, Path::new(RECORD)).map_err(failed("write", RECORD))?;
    directory.replace(&name, &text, 0o600).map_err(failed("write", RECORD))?;
    directory.sync().map_err(failed("write", RECORD))
}

/// Removes the data, then the record: cut off in between, the record says that the rest of the data is to go.
pub(super) fn remove_with_data(root: &Path) -> Result<(), Error> {
    for path in [paths::ETCD_DATA, RESTORED, RECORD] {
        let (directory, name) = match beneath::parent(root, Path::new(path)) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("remove", path)(error)),
        };
        directory.remove_all(Path::new(&name)).map_err(failed("remove", path))?;
        directory.sync().map_err(failed("remove", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::state::below;

    #[test]
    fn a_record_is_kept_and_goes_with_the_data() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path()).unwrap(), None);
        remove_with_data(root.path()).unwrap();
        let record = Record {
            cluster: u64::MAX,
            member: 1,
            endpoints: vec!["https://10.0.0.4:2379".into()],
            stage: Stage::Joining,
        };
        keep(root.path(), &record).unwrap();
        assert_eq!(read(root.path()).unwrap(), Some(record.clone()));
        let data = below(root.path(), paths::ETCD_DATA).join("member/wal");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("0.wal"), "x").unwrap();
        keep(root.path(), &Record { stage: Stage::Left, ..record }).unwrap();
        assert_eq!(read(root.path()).unwrap().unwrap().stage, Stage::Left);
        remove_with_data(root.path()).unwrap();
        assert!(!below(root.path(), paths::ETCD_DATA).exists());
        assert_eq!(read(root.path()).unwrap(), None);
        std::fs::write(below(root.path(), RECORD), "{").unwrap();
        assert!(read(root.path()).unwrap_err().to_string().starts_with("read /var/lib/etcd.member: "));
        // Another file in its place is not read.
        std::fs::rename(below(root.path(), RECORD), root.path().join("other")).unwrap();
        std::os::unix::fs::symlink(root.path().join("other"), below(root.path(), RECORD)).unwrap();
        let error = read(root.path()).unwrap_err().to_string();
        assert!(error.contains("is a symbolic link, which is not followed"), "{error}");
    }
}
