//! Control groups of a cluster: runc makes them, and leaves those above a container's own.
//!
//! Source: cgroups(7), "Removing cgroups".

use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::Error;

/// Where this machine has its control groups: the tree itself in version 2, a directory for each controller in version 1.
const TREE: &str = "/sys/fs/cgroup";
/// The group of all clusters.
const ALL: &str = "billet";

/// The group of a node, as runc takes it.
pub(crate) fn of_node(cluster: &str, node: &str) -> String {
    format!("/{ALL}/{cluster}/{node}")
}

/// Removes the groups of a cluster whose nodes have ended.
pub(crate) fn remove(cluster: &str) -> Result<(), Error> {
    remove_below(Path::new(TREE), cluster)
}

fn remove_below(tree: &Path, cluster: &str) -> Result<(), Error> {
    let controllers = directories(tree)?;
    for top in std::iter::once(tree.to_owned()).chain(controllers) {
        let all = top.join(ALL);
        remove_tree(&all.join(cluster))?;
        match rustix::fs::rmdir(&all) {
            // Other clusters have groups there.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::BUSY) => {}
            Err(source) => return Err(Error::File { what: "remove", path: all, source: source.into() }),
        }
    }
    Ok(())
}

/// The innermost first: a group with groups below it stays. Its files are the kernel's and go with it.
fn remove_tree(group: &Path) -> Result<(), Error> {
    for below in directories(group)? {
        remove_tree(&below)?;
    }
    match rustix::fs::rmdir(group) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(source) => Err(Error::File { what: "remove", path: group.to_owned(), source: source.into() }),
    }
}

/// Directories in this one; links, as version 1 has some, are none.
fn directories(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::File { what: "read", path: path.to_owned(), source };
    let listed = match fs::read_dir(path) {
        Ok(listed) => listed,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in listed {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_one_cluster_go_in_every_hierarchy() {
        let tree = tempfile::tempdir().unwrap();
        let make = |path: &str| fs::create_dir_all(tree.path().join(path)).unwrap();
        for path in ["memory/billet/demo/cp-1/system", "pids/billet/demo", "pids/billet/other", "cpu"] {
            make(path);
        }
        remove_below(tree.path(), "demo").unwrap();
        assert!(!tree.path().join("memory/billet").exists());
        assert!(!tree.path().join("pids/billet/demo").exists());
        assert!(tree.path().join("pids/billet/other").exists());
        assert!(tree.path().join("cpu").exists());
        remove_below(tree.path(), "demo").unwrap();
    }
}
