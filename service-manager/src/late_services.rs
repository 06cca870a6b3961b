//! Services that a machine which is up may be without.

use std::path::Path;

use kubernetes_node::etcd;

use crate::time;

/// Whether this one may still be on its way, on a node with this root: it waits for the time, or for its cluster's bootstrap.
pub(crate) fn may_wait(root: &Path, id: &str) -> bool {
    id == time::ID || (id == etcd::ID && !etcd::is_member(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_is_missed_once_its_cluster_has_begun() {
        let root = tempfile::tempdir().unwrap();
        let wait = |id| may_wait(root.path(), id);
        assert!(wait("timed") && wait("etcd") && !wait("apid"));
        std::fs::create_dir_all(root.path().join("var/lib/etcd")).unwrap();
        assert!(wait("etcd"), "an empty directory is no member");
        std::fs::create_dir(root.path().join("var/lib/etcd/member")).unwrap();
        assert!(wait("timed") && !wait("etcd"));
    }
}
