//! Services that a machine which is up may be without.

use std::path::Path;

use kubernetes_node::{etcd, kubelet};

use crate::time;

/// Whether this one may still be on its way, on a node with this root: it waits for the time, for its cluster's bootstrap, or
/// for the first image of a kubelet that is in no cluster yet.
pub(crate) fn may_wait(root: &Path, id: &str) -> bool {
    match id {
        time::ID => true,
        etcd::ID => !etcd::is_member(root),
        kubelet::ID => !kubelet::has_joined(root),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_is_missed_once_it_is_in_a_cluster() {
        let root = tempfile::tempdir().unwrap();
        assert!(may_wait(root.path(), "kubelet"));
        let pki = root.path().join("var/lib/kubelet/pki");
        std::fs::create_dir_all(&pki).unwrap();
        std::fs::write(pki.join("kubelet-client-current.pem"), "").unwrap();
        assert!(!may_wait(root.path(), "kubelet"));
    }

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
