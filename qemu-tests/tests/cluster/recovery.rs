//! A cluster that lost all members of etcd begins again with the content of a snapshot.

use std::path::Path;

use config::rewrite::Form;

use crate::members::{
    FIRST, SECOND, THIRD, THREE, members_are, refused, routed_address_moves, share_by_vrrp, three_are_ready,
    write_and_read,
};
use crate::rig::{Endpoint, Running, STEP_LIMIT};
use crate::{backup, inside, nothing_is_left, teller};

/// Objects that no controller makes anew, with what tells them from others of the same name.
fn objects(cluster: &Running) -> Vec<String> {
    let kinds =
        "configmaps,secrets,serviceaccounts,clusterroles,clusterrolebindings,daemonsets,deployments,services";
    let column = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid}{\"\\n\"}{end}";
    let text =
        cluster.kubectl_until(&["get", kinds, "--all-namespaces", "-o", column], "ConfigMap", STEP_LIMIT);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Removes what a stopped node knows of etcd.
pub(crate) fn wipe_member(cluster: &Running, node: &str) {
    let running = cluster.cluster.as_ref().unwrap();
    let directory = running.node_directory(node).join("var/lib");
    for name in ["etcd", "etcd.member"] {
        let path = directory.join(name);
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// Loses all that etcd has on these nodes, and begins on the first of them with a snapshot of the cluster as it is now.
pub(crate) fn is_lost_and_recovered(cluster: &Running, nodes: &[&str], file: &Path, tell: &dyn Fn(&str)) {
    let running = cluster.cluster.as_ref().unwrap();
    let path = file.to_str().unwrap();
    let before = objects(cluster);
    write_and_read(cluster, "after-the-snapshot");
    refused(cluster, &["bootstrap", "--recover-from", path], "etcd data directory is not empty");
    for node in nodes {
        running.stop(node).unwrap();
        wipe_member(cluster, node);
    }
    running.start(nodes[0]).unwrap();
    cluster.until(&["service", "etcd"], &["Preparing"], STEP_LIMIT);
    altered_snapshots_are_refused(cluster, file);
    cluster.until(&["bootstrap", "--recover-from", path], &[], STEP_LIMIT);
    tell("the snapshot was sent");
    cluster.until(&["service", "etcd"], &["Running", "Health check successful"], STEP_LIMIT);
    refused(cluster, &["bootstrap", "--recover-from", path], "etcd data directory is not empty");
    cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", STEP_LIMIT);
    assert_eq!(objects(cluster), before);
    let gone = cluster.kubectl(&["get", "configmap", "after-the-snapshot"]);
    assert!(gone.as_ref().is_err_and(|error| error.contains("NotFound")), "{gone:?}");
    write_and_read(cluster, "after-the-recovery");
    let left = running.node_directory(nodes[0]).join("var/lib");
    for name in ["etcd.snapshot", "etcd.snapshot.part", "etcd.restore", "etcd.bootstrap"] {
        assert!(!left.join(name).exists(), "{name} is left");
    }
    tell("the cluster has what it had");
}

fn altered_snapshots_are_refused(cluster: &Running, file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[4096] ^= 1;
    let altered = file.with_extension("altered");
    std::fs::write(&altered, &bytes).unwrap();
    refused(cluster, &["bootstrap", "--recover-from", altered.to_str().unwrap()], "altered");
    refused(cluster, &["bootstrap", "--recover-from", "/nowhere"], "/nowhere");
}

#[test]
#[ignore = "long run"]
fn a_lost_cluster_comes_back_from_a_snapshot() {
    if !inside("recovery::a_lost_cluster_comes_back_from_a_snapshot") {
        return;
    }
    let tell = teller();
    let cluster = Running::start_as(&THREE, "v1.13", Form::V1alpha1, Endpoint::Shared);
    three_are_ready(&cluster);
    let names = THREE.map(|(name, _)| name);
    tell("three nodes are ready");
    share_by_vrrp(&cluster);
    routed_address_moves(&cluster, &tell);
    members_are(&cluster, FIRST, &names);
    for name in names {
        cluster.kubectl_until(&["get", "node", name], " Ready ", 2 * STEP_LIMIT);
    }
    let reader = backup::Reader::new(&cluster);
    backup::ask_for_snapshots(&cluster, SECOND, &reader);
    let running = cluster.cluster.as_ref().unwrap();
    // It is away, and has the old data when it comes back.
    running.stop("cp-3").unwrap();
    let file = cluster.files.path().join("scheduled");
    std::fs::write(&file, backup::next_snapshot(&cluster, "cp-2", &cluster.target, &reader)).unwrap();
    tell("a node has put a snapshot to a server by itself");
    is_lost_and_recovered(&cluster, &["cp-1", "cp-2"], &file, &tell);
    running.start("cp-2").unwrap();
    members_are(&cluster, FIRST, &names[..2]);
    cluster.until(&["-n", SECOND, "service", "etcd"], &["Running", "Health check successful"], STEP_LIMIT);
    tell("a second member has joined");
    running.start("cp-3").unwrap();
    cluster.until(&["-n", THIRD, "service", "etcd"], &["has data of another cluster"], STEP_LIMIT);
    running.stop("cp-3").unwrap();
    wipe_member(&cluster, "cp-3");
    running.start("cp-3").unwrap();
    members_are(&cluster, FIRST, &names);
    for name in names {
        cluster.kubectl_until(&["get", "node", name], " Ready ", 2 * STEP_LIMIT);
    }
    drop(cluster);
    nothing_is_left();
}
