//! A cluster that begins with a snapshot of etcd: what is sent, and what is refused before anything is.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod fake;
mod rig;

use rig::Rig;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};

/// The bytes of a database: two messages and a half, each word by its place.
fn database() -> Vec<u8> {
    (0..2560_u32).flat_map(u32::to_le_bytes).collect()
}

/// As etcd writes it: the digest stands behind the database.
fn snapshot() -> Vec<u8> {
    [database(), Sha256::digest(database()).to_vec()].concat()
}

/// Writes a file of the test; its path as text.
fn written(rig: &Rig, name: &str, bytes: &[u8]) -> String {
    fs::write(rig.path(name), bytes).unwrap();
    rig.path(name).display().to_string()
}

/// The node has heard of nothing.
async fn nothing_sent(rig: &Rig) {
    assert_eq!(rig.prints("read /asked").await, "");
    assert!(rig.output("read /snapshot").await.stdout.is_empty());
}

#[tokio::test]
async fn a_snapshot_arrives_whole_and_the_cluster_begins_with_it() {
    let rig = Rig::start().await;
    let file = written(&rig, "db.snapshot", &snapshot());
    let output = rig.run(&format!("bootstrap --recover-from {file}")).await;
    assert!(output.success && output.stdout.is_empty(), "{}", output.stderr);
    let lines: Vec<&str> = output.stderr.lines().collect();
    let [verified, told, sent] = lines[..] else { panic!("{lines:?}") };
    assert!(verified.starts_with("verify 100 %, 10 kB of 10 kB"), "{verified}");
    let told_of = format!("127.0.0.1: recovering from snapshot \"{file}\": size 10 kB, its digest is right");
    assert_eq!(told, told_of);
    assert!(sent.starts_with("send 100 %, 10 kB of 10 kB"), "{sent}");
    assert_eq!(rig.output("read /snapshot").await.stdout, snapshot());
    assert_eq!(
        rig.prints("read /asked").await,
        "EtcdRecover [4096, 4096, 2080]\nBootstrapRequest { recover_etcd: true, recover_skip_hash_check: false }\n"
    );
}

#[tokio::test]
async fn what_is_no_snapshot_is_refused_before_a_byte_is_sent() {
    let rig = Rig::start().await;
    let mut altered = snapshot();
    altered[5000] ^= 1;
    let refused = async |name: &str, bytes: &[u8], flags: &str, why: &str| {
        let file = written(&rig, name, bytes);
        let error = rig.fails(&format!("bootstrap --recover-from {file} {flags}")).await;
        assert!(error.contains(&format!("error: {file}: ")) && error.contains(why), "{error}");
        assert!(error.ends_with("Nothing was sent to the node\n"), "{error}");
    };
    let advice = "; copy it again, or recover from another snapshot";
    refused("altered", &altered, "", &format!("its digest is not that of its 10272 bytes{advice}")).await;
    refused("cut", &snapshot()[..9000], "", &format!("its length is that of no snapshot{advice}")).await;
    refused("copy", &database(), "", "a copy is taken with --recover-skip-hash-check").await;
    refused("empty", &[], "", &format!("the snapshot is empty{advice}")).await;
    refused("empty", &[], "--recover-skip-hash-check", &format!("the snapshot is empty{advice}")).await;
    nothing_sent(&rig).await;
}

#[tokio::test]
async fn what_cannot_be_read_is_named() {
    let rig = Rig::start().await;
    let missing = rig.path("missing").display().to_string();
    let error = rig.fails(&format!("bootstrap --recover-from {missing}")).await;
    assert!(error.starts_with(&format!("error: open the snapshot {missing}: No such file")), "{error}");
    let directory = rig.path("").display().to_string();
    let error = rig.fails(&format!("bootstrap --recover-from {directory} --recover-skip-hash-check")).await;
    assert!(error.contains(&format!("{directory} is no regular file; name one that")), "{error}");
    let error = rig.fails("bootstrap --recover-skip-hash-check").await;
    assert!(error.contains("--recover-from <FILE>") && error.contains("Usage:"), "{error}");
    let error = rig.fails(&format!("-n n1,n2 bootstrap --recover-from {missing}")).await;
    assert!(error.contains("bootstrap is for one node, but 2 are given"), "{error}");
    nothing_sent(&rig).await;
}

#[tokio::test]
async fn a_copy_of_the_database_is_sent_unverified_where_that_is_asked_for() {
    let rig = Rig::start().await;
    let file = written(&rig, "db", &database());
    let output = rig.run(&format!("-n n1 bootstrap --recover-from {file} --recover-skip-hash-check")).await;
    assert!(output.success, "{}", output.stderr);
    let told = format!("n1: recovering from snapshot \"{file}\": size 10 kB, its digest is not checked\n");
    assert!(output.stderr.starts_with(&told), "{}", output.stderr);
    assert_eq!(rig.output("read /snapshot").await.stdout, database());
    rig.asked("BootstrapRequest { recover_etcd: true, recover_skip_hash_check: true }").await;
}

#[tokio::test]
async fn a_refusal_before_the_end_of_the_file_is_the_error() {
    let rig = Rig::start().await;
    let file = rig.path("large");
    // More than waits on the way to a node that does not read.
    File::create(&file).unwrap().set_len(64 << 20).unwrap();
    let file = file.display().to_string();
    for (node, why) in [
        ("taken", "FailedPrecondition: /var/lib/etcd has data already"),
        ("full", "ResourceExhausted: /var has no room for the snapshot"),
    ] {
        let line = format!("-n {node} bootstrap --recover-from {file} --recover-skip-hash-check");
        let error = rig.fails(&line).await;
        assert!(error.ends_with(&format!("error: {node}: send {file}: {why}\n")), "{error}");
        assert!(!error.contains("send 100 %"), "{error}");
    }
    assert_eq!(rig.prints("read /asked").await, "");
}
