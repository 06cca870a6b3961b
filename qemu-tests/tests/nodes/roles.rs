//! The role matrix against a built image: every call of every service, by each role that may not make it and without a
//! certificate, on a node with a config, on an open one and on a locked one.
//!
//! Each request is empty. Calls that a role may make are made where they read alone; those that act have tests of their own.
//! In process it is service-manager's `role_tests`.
//! Source: crates/api/testdata: roles.txt and maintenance.txt (who may call what), wire.txt (which requests are streams).

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use qemu_tests::credentials::READER;
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::rpc::Rpc;
use qemu_tests::{TestNode, deadline};
use tonic::{Code, Status};

const MATRIX: &str = include_str!("../../../crates/api/testdata/roles.txt");
/// What a node offers in maintenance: open, besides a reader's calls; locked, nothing else.
const MAINTENANCE: &str = include_str!("../../../crates/api/testdata/maintenance.txt");
const WIRE: &str = include_str!("../../../crates/api/testdata/wire.txt");

/// Every role but the administrator's, and one that there is not.
const ROLES: [&str; 7] = [
    "os:operator",
    READER,
    "os:etcd:backup",
    "os:image:verifier",
    "os:meta:writer",
    // Its roles are those it speaks for, and here it names none.
    "os:impersonator",
    "os:unknown",
];

/// Calls that read, of those that a reader may not make.
const READS: [&str; 4] = [
    "/billet.MachineService/RecoveryKeys",
    "/machine.MachineService/EtcdSnapshot",
    "/machine.MachineService/GenerateConfiguration",
    "/machine.MachineService/PacketCapture",
];

/// For one answer. Some wait for a time server or for etcd, which these nodes have not.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// One call.
struct Row {
    path: &'static str,
    roles: Vec<&'static str>,
    /// Its request is a stream.
    takes_stream: bool,
}

impl Row {
    /// An empty request changes nothing on the node.
    fn reads(&self) -> bool {
        self.roles.contains(&READER) || READS.contains(&self.path)
    }
}

fn rows() -> Vec<Row> {
    let row = |line: &'static str| {
        let (path, roles) = line.split_once(' ').unwrap();
        let takes_stream = WIRE.contains(&format!("rpc {path}(stream "));
        Row { path, roles: roles.split(' ').collect(), takes_stream }
    };
    MATRIX.lines().map(row).collect()
}

/// What a node in this mode offers to a client without a certificate.
fn offered(mode: &str) -> Vec<&'static str> {
    let rows = MAINTENANCE.lines().map(|line| line.split_once(' ').unwrap());
    rows.filter(|row| row.0 == mode).map(|row| row.1).collect()
}

/// How often each call was refused and answered.
#[derive(Debug, Default)]
struct Played {
    refused: usize,
    answered: usize,
    faults: Vec<String>,
}

impl Played {
    /// Makes each call that `may` refuses, and of the others those that read.
    fn play(&mut self, rpc: &Rpc, who: &str, may: impl Fn(&Row) -> bool) {
        for row in rows() {
            let may = may(&row);
            if may && !row.reads() {
                continue;
            }
            let answer = rpc.call_empty(row.path, row.takes_stream, deadline(CALL_LIMIT));
            let from_node = answer.as_ref().filter(|answer| !has_broken(answer));
            match from_node.map(|answer| is_denied(answer, row.path)) {
                Some(true) if !may => self.refused += 1,
                Some(false) if may => self.answered += 1,
                Some(_) | None => {
                    self.faults.push(format!("{who} calls {}, may: {may}: {answer:?}", row.path))
                }
            }
        }
    }

    fn check(&self) {
        assert!(self.faults.is_empty(), "{}", self.faults.join("\n"));
    }
}

/// Whether the call was refused to the role. An empty request of a resource has another refusal of the same code, which comes
/// from machined: its type is none that a reader may read.
fn is_denied(answer: &Result<(), Status>, path: &str) -> bool {
    let Err(status) = answer else { return false };
    let prefix = format!("not authorized: {path} ");
    status.code() == Code::PermissionDenied && status.message().starts_with(&prefix)
}

/// Whether there was no answer because the connection has ended: what a node answers has no error behind it.
fn has_broken(answer: &Result<(), Status>) -> bool {
    answer.as_ref().is_err_and(|status| status.source().is_some())
}

/// Calls without a certificate where TLS demands one. The client may have finished its handshake before the node refuses it.
fn refused_by_tls(node: &TestNode, row: &Row) -> Result<(), String> {
    let Ok(rpc) = Rpc::connect(node, None) else { return Ok(()) };
    let answer = rpc.call_empty(row.path, row.takes_stream, deadline(CALL_LIMIT));
    if answer.as_ref().is_some_and(has_broken) {
        return Ok(());
    }
    Err(format!("{} without a certificate: {answer:?}", row.path))
}

/// Pids of the programs that a client's request passes.
fn programs(rpc: &Rpc) -> BTreeMap<String, i32> {
    let answer = rpc.call(|client| async move { client.machine().processes(()).await }).unwrap();
    let processes = answer.into_inner().messages.remove(0).processes;
    let ours = processes.into_iter().filter(|process| ["apid", "machined"].contains(&&*process.command));
    let found: BTreeMap<_, _> = ours.map(|process| (process.command, process.pid)).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    found
}

/// The node answers, and init has not started machined again.
fn assert_well(node: &TestNode, rpc: &Rpc) {
    rpc.call(|client| async move { client.machine().version(()).await }).unwrap();
    assert!(!node.vm().console().text().contains("machined ended"), "machined has restarted");
}

#[test]
#[ignore = "long run"]
fn every_call_is_refused_to_every_role_that_its_row_does_not_name() {
    let node = TestNode::boot("roles-configured").unwrap();
    node.wait_services().unwrap();
    let rpc = |role: &str| {
        let identity = node.credentials().client(Some(role)).unwrap();
        Rpc::connect(&node, Some(&identity)).unwrap()
    };
    let before = programs(&rpc(READER));
    let mut played = Played::default();
    for role in ROLES {
        played.play(&rpc(role), role, |row| row.roles.contains(&role));
    }
    played.faults.extend(rows().iter().filter_map(|row| refused_by_tls(&node, row).err()));
    played.check();
    // Most of the matrix is a refusal; an operator and a reader may each read by some forty calls.
    assert!(played.refused > 500 && played.answered > 80, "{played:?}");
    node.answers(BOOT_LIMIT).unwrap();
    // Another connection: the node has closed one that was not polled meanwhile.
    let reader = rpc(READER);
    assert_eq!(programs(&reader), before, "a program has restarted");
    assert_well(&node, &reader);
}

#[test]
#[ignore = "long run"]
fn an_open_node_refuses_every_call_but_a_readers_and_the_first_config() {
    let node = TestNode::builder("roles-open").source("").no_config().start().unwrap();
    node.wait_maintenance().unwrap();
    let rpc = Rpc::insecure(&node, None).unwrap();
    let before = programs(&rpc);
    let mut played = Played::default();
    let offered = offered("open");
    played.play(&rpc, "a client without a certificate", |row| {
        row.roles.contains(&READER) || offered.contains(&row.path)
    });
    played.check();
    assert!(played.refused > 40 && played.answered > 30, "{played:?}");
    assert_eq!(programs(&rpc), before, "a program has restarted");
    assert_well(&node, &rpc);
}

#[test]
#[ignore = "long run"]
fn a_locked_node_refuses_every_call_but_those_that_explain_and_unlock() {
    let node = TestNode::builder("roles-locked").disk_with_two_states().start().unwrap();
    node.wait_locked().unwrap();
    let rpc = Rpc::insecure(&node, None).unwrap();
    let mut played = Played::default();
    let offered = offered("locked");
    played.play(&rpc, "a client without a certificate", |row| offered.contains(&row.path));
    played.check();
    // Unlock is not called.
    assert_eq!((played.refused, played.answered), (rows().len() - offered.len(), offered.len() - 1));
    assert_well(&node, &rpc);
}
