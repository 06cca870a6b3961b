//! What goes wrong with etcd itself, where people find the cause, and what mends it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use config::rewrite::Form;
use oci::server::Behaviour;
use qemu_tests::deadline;

use crate::members::{
    FIRST, SECOND, THIRD, THREE, members_are, members_listed, three_are_ready, write_and_read,
};
use crate::recovery::wipe_member;
use crate::rig::{Endpoint, Running, STEP_LIMIT};
use crate::{inside, nothing_is_left, teller};

/// The database of each member may have so many bytes: much more than a small cluster needs.
const QUOTA: usize = 32 << 20;
/// Nearly what one object may have.
const OBJECT_BYTES: usize = 900_000;

/// Writes objects until etcd has no space; their names.
fn fill(cluster: &Running) -> Vec<String> {
    let file = cluster.files.path().join("object");
    std::fs::write(&file, "x".repeat(OBJECT_BYTES)).unwrap();
    let from = format!("--from-file={}", file.display());
    let mut names = Vec::new();
    while names.len() * OBJECT_BYTES < 2 * QUOTA {
        let name = format!("full-{}", names.len());
        match cluster.kubectl(&["create", "configmap", &name, &from, "--output=name"]) {
            Ok(_) => names.push(name),
            Err(error) => {
                assert!(error.contains("database space exceeded"), "{error}");
                return names;
            }
        }
    }
    panic!("etcd takes more than {QUOTA} bytes\n{}", cluster.state());
}

/// Waits until a command says this, whether it fails or not.
fn says(cluster: &Running, words: &[&str], needle: &str) {
    let begin = Instant::now();
    loop {
        let output = cluster.admin.run(words).unwrap();
        let said = output.stdout + &output.stderr;
        if said.contains(needle) {
            return;
        }
        assert!(begin.elapsed() < deadline(STEP_LIMIT), "{words:?} does not say {needle:?}:\n{said}");
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// etcd is full: it is told, and ends when there is room.
fn full(cluster: &Running, tell: &dyn Fn(&str)) {
    let names = fill(cluster);
    cluster.until(&["etcd", "alarm", "list"], &["NOSPACE"], STEP_LIMIT);
    cluster.until(&["etcd", "status"], &["NOSPACE"], STEP_LIMIT);
    let health = ["health", "--wait-timeout", "5s"];
    says(cluster, &health, "is full (alarm NOSPACE), and etcd refuses writes");
    tell(&format!("etcd is full with {} objects, and health says so", names.len()));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let last = names.last().unwrap();
    cluster.kubectl_until(
        &[&["delete", "configmap", "--ignore-not-found"], &names[..]].concat(),
        last,
        STEP_LIMIT,
    );
    for node in [FIRST, SECOND, THIRD] {
        cluster.until(&["-n", node, "etcd", "defrag"], &[], STEP_LIMIT);
    }
    cluster.until(&["etcd", "alarm", "disarm"], &["NOSPACE"], STEP_LIMIT);
    write_and_read(cluster, "after-the-alarm");
    let file = cluster.files.path().join("object");
    let from = format!("--from-file={}", file.display());
    cluster.kubectl_until(&["create", "configmap", "large", &from, "--output=name"], "large", STEP_LIMIT);
    assert!(!cluster.until(&["etcd", "status"], &["MEMBER"], STEP_LIMIT).contains("NOSPACE"));
    tell("with room and without the alarm it takes writes again");
}

/// Two of three are gone: the one that is left says so, and answers nothing.
fn without_quorum(cluster: &Running, tell: &dyn Fn(&str)) {
    let running = cluster.cluster.as_ref().unwrap();
    for node in ["cp-2", "cp-3"] {
        running.stop(node).unwrap();
    }
    says(cluster, &["service", "etcd"], "etcd has no leader: of 3 voting members 2 have to answer");
    let server = format!("--server=https://{FIRST}:6443");
    for words in [&["get", "configmap", "large"][..], &["create", "configmap", "lost"]] {
        let words = [&[server.as_str(), "--request-timeout=20s"], words].concat();
        assert!(cluster.kubectl(&words).is_err(), "{words:?}");
    }
    says(
        cluster,
        &["health", "--wait-timeout", "5s"],
        "is not up: etcd has no leader: of 3 voting members 2 have to answer",
    );
    for node in ["cp-2", "cp-3"] {
        running.start(node).unwrap();
    }
    members_are(cluster, FIRST, &THREE.map(|(name, _)| name));
    write_and_read(cluster, "after-the-quorum");
    tell("without a quorum nothing is read or written, and health says so; with it etcd goes on");
}

/// Two nodes join at once, and one of them stands still as a learner: the other waits, says so, and both are members in the end.
fn two_join_at_once(cluster: &Running, tell: &dyn Fn(&str)) {
    let running = cluster.cluster.as_ref().unwrap();
    for (name, left) in [("cp-3", &["cp-1", "cp-2"][..]), ("cp-2", &["cp-1"])] {
        // While it runs: the last but one has to agree.
        let rows = members_listed(cluster, FIRST);
        let id = &rows.iter().find(|row| row.name == name).unwrap().id;
        cluster.until(&["etcd", "remove-member", id], &[], STEP_LIMIT);
        members_are(cluster, FIRST, left);
        running.stop(name).unwrap();
        wipe_member(cluster, name);
    }
    running.start("cp-3").unwrap();
    let begin = Instant::now();
    let learner = loop {
        if let Some(process) = cluster.processes("cp-3", "etcd").pop_first() {
            break process.to_string();
        }
        assert!(begin.elapsed() < deadline(STEP_LIMIT), "cp-3 does not join\n{}", cluster.state());
        std::thread::sleep(Duration::from_millis(5));
    };
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &learner]).status().unwrap().success());
    signal("-STOP");
    running.start("cp-2").unwrap();
    cluster.log_says("cp-2", "one joins at a time");
    write_and_read(cluster, "beside-a-learner");
    tell("a learner stands still: the other node waits and says so");
    signal("-CONT");
    members_are(cluster, FIRST, &THREE.map(|(name, _)| name));
    tell("both are members");
}

/// A member is removed while its node starts: the node says so, and joins anew when its data is gone.
fn removed_while_it_starts(cluster: &Running, tell: &dyn Fn(&str)) {
    let running = cluster.cluster.as_ref().unwrap();
    let row = members_listed(cluster, FIRST).into_iter().find(|row| row.name == "cp-3").unwrap();
    running.stop("cp-3").unwrap();
    running.start("cp-3").unwrap();
    cluster.until(&["etcd", "remove-member", &row.id], &[], STEP_LIMIT);
    cluster.until(&["-n", THIRD, "service", "etcd"], &["removed this node's member", &row.id], STEP_LIMIT);
    tell("a member that was removed while it started says so");
}

/// A node that has nothing joins while the registry is away.
fn joins_without_a_registry(cluster: &Running, tell: &dyn Fn(&str)) {
    let running = cluster.cluster.as_ref().unwrap();
    running.stop("cp-3").unwrap();
    empty(&running.node_directory("cp-3").join("var"));
    cluster.registry.behave(Behaviour { unavailable: usize::MAX, ..Behaviour::default() });
    running.start("cp-3").unwrap();
    cluster.until(&["-n", THIRD, "service", "etcd"], &["Failed to run pre stage: pull ", "503"], STEP_LIMIT);
    write_and_read(cluster, "without-a-registry");
    cluster.registry.behave(Behaviour::default());
    members_are(cluster, FIRST, &THREE.map(|(name, _)| name));
    cluster.kubectl_until(&["get", "node", "cp-3"], " Ready ", 2 * STEP_LIMIT);
    tell("a node joins when the registry is back");
}

fn empty(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

#[test]
#[ignore = "long run"]
fn faults_of_etcd_are_told_and_mended() {
    if !inside("etcd_faults::faults_of_etcd_are_told_and_mended") {
        return;
    }
    let tell = teller();
    let cluster = Running::start_as(&THREE, "v1.13", Form::V1alpha1, Endpoint::Shared);
    let quota = format!("cluster: {{etcd: {{extraArgs: {{quota-backend-bytes: '{QUOTA}'}}}}}}");
    for node in [FIRST, SECOND, THIRD] {
        cluster.patch(node, &quota);
    }
    three_are_ready(&cluster);
    tell("three nodes are ready");
    full(&cluster, &tell);
    without_quorum(&cluster, &tell);
    two_join_at_once(&cluster, &tell);
    removed_while_it_starts(&cluster, &tell);
    joins_without_a_registry(&cluster, &tell);
    drop(cluster);
    nothing_is_left();
}
