//! The members of etcd: control plane nodes that join, leave, die and come back.

use std::process::Command;
use std::time::{Duration, Instant};

use config::MachineType;
use config::rewrite::Form;
use qemu_tests::deadline;

use crate::rig::{Endpoint, Running, SHARED, STEP_LIMIT};
use crate::workload::Workload;
use crate::{backup, inside, nothing_is_left, recovery, teller};

pub(crate) const THREE: [(&str, MachineType); 3] = [
    ("cp-1", MachineType::ControlPlane),
    ("cp-2", MachineType::ControlPlane),
    ("cp-3", MachineType::ControlPlane),
];
/// The same and two workers behind them.
const FIVE: [(&str, MachineType); 5] =
    [THREE[0], THREE[1], THREE[2], ("worker-1", MachineType::Worker), ("worker-2", MachineType::Worker)];
pub(crate) const FIRST: &str = "10.5.0.2";
pub(crate) const SECOND: &str = "10.5.0.3";
pub(crate) const THIRD: &str = "10.5.0.4";

/// A row of `etcd members`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) name: String,
    is_learner: bool,
}

/// What the node's etcd lists; empty while it does not answer.
pub(crate) fn members_listed(cluster: &Running, node: &str) -> Vec<Row> {
    let Ok(output) = cluster.admin.run(&["-n", node, "etcd", "members"]) else { return Vec::new() };
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, id, name, .., learner] if id != "ID" => {
                Some(Row { id: id.to_owned(), name: name.to_owned(), is_learner: learner == "true" })
            }
            _ => None,
        }
    };
    output.stdout.lines().filter_map(row).collect()
}

/// Begins a cluster of three that share an address, and waits until they are members and ready.
pub(crate) fn three_are_ready(cluster: &Running) {
    cluster.begin();
    let names = THREE.map(|(name, _)| name);
    members_are(cluster, FIRST, &names);
    for name in names {
        cluster.kubectl_until(&["get", "node", name], " Ready ", 2 * STEP_LIMIT);
    }
}

/// Waits until the node lists these members, each with a vote.
pub(crate) fn members_are(cluster: &Running, node: &str, names: &[&str]) -> Vec<Row> {
    members_within(cluster, node, names, 2 * STEP_LIMIT)
}

/// The same for members that take longer.
pub(crate) fn members_within(cluster: &Running, node: &str, names: &[&str], limit: Duration) -> Vec<Row> {
    let begin = Instant::now();
    loop {
        let rows = members_listed(cluster, node);
        let have: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        if have == names && rows.iter().all(|row| !row.is_learner) {
            return rows;
        }
        assert!(
            begin.elapsed() < deadline(limit),
            "{node} lists {rows:?}, not {names:?}\n{}",
            cluster.state()
        );
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// Runs a command that is to be refused with these words.
pub(crate) fn refused(cluster: &Running, words: &[&str], needle: &str) {
    let output = cluster.admin.run(words).unwrap();
    assert!(!output.success && output.stderr.contains(needle), "{words:?}: {output:?}");
}

/// An object that the API server has kept is there.
pub(crate) fn write_and_read(cluster: &Running, name: &str) {
    let made = format!("configmap/{name}");
    let begin = Instant::now();
    loop {
        let created = cluster.kubectl(&["create", "configmap", name, "--output=name"]);
        // An attempt whose answer was lost may have made it.
        if cluster
            .kubectl(&["get", "configmap", name, "--output=name"])
            .is_ok_and(|text| text.contains(&made))
        {
            return;
        }
        assert!(begin.elapsed() < deadline(STEP_LIMIT), "{name}: {created:?}\n{}", cluster.state());
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// By VRRP.
const ROUTED: &str = "10.5.0.201";

/// Has each node take part in a virtual router.
pub(crate) fn share_by_vrrp(cluster: &Running) {
    for node in [FIRST, SECOND, THIRD] {
        let document = format!(
            "apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: billet-vrrp\nenvironment:\n- ADDRESS={ROUTED}\n- LINK=eth0\n\
             - ROUTER_ID=51\n"
        );
        cluster.patch(node, &document);
    }
}

/// The address that is shared by VRRP goes elsewhere when its holder hangs or stops, and the API answers by it.
pub(crate) fn routed_address_moves(cluster: &Running, tell: &dyn Fn(&str)) {
    let running = cluster.cluster.as_ref().unwrap();
    let (first, _) = moved(cluster, ROUTED, "");
    tell(&format!("{first} has the address by VRRP"));
    let machined = cluster.processes(&first, "machined").pop_first().unwrap().to_string();
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &machined]).status().unwrap().success());
    signal("-STOP");
    let (second, without) = moved(cluster, ROUTED, &first);
    signal("-CONT");
    tell(&format!("{first} hangs: {second} has the address, {without:?} without"));
    let url = format!("https://{ROUTED}:6443");
    cluster.kubectl_until(&["--server", &url, "get", "--raw", "/readyz"], "ok", STEP_LIMIT);
    running.stop(&second).unwrap();
    let (third, without) = moved(cluster, ROUTED, &second);
    tell(&format!("{second} stops: {third} has the address, {without:?} without"));
    running.start(&second).unwrap();
}

/// The nodes whose kernels have this address now.
pub(crate) fn holders(cluster: &Running, address: &str) -> Vec<String> {
    let running = cluster.cluster.as_ref().unwrap();
    let has_it = |name: &&str| {
        let namespace = running.container(name);
        let listed = Command::new("ip")
            .args(["-netns", &namespace, "-4", "-brief", "address", "show", "dev", "eth0"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&listed.stdout).contains(&format!("{address}/32"))
    };
    THREE.map(|(name, _)| name).into_iter().filter(has_it).map(str::to_owned).collect()
}

/// Waits until another node than `from` has an address alone; no two have it meanwhile. How long none had it.
fn moved(cluster: &Running, address: &str, from: &str) -> (String, Duration) {
    let begin = Instant::now();
    let mut without = Duration::ZERO;
    let mut last = begin;
    loop {
        let now = holders(cluster, address);
        assert!(now.len() <= 1, "{now:?} have {address}");
        if now.is_empty() {
            without += last.elapsed();
        }
        last = Instant::now();
        if let Some(holder) = now.first().filter(|holder| *holder != from) {
            return (holder.clone(), without);
        }
        assert!(begin.elapsed() < deadline(STEP_LIMIT), "{address} stays away\n{}", cluster.state());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until the member of a node that has the address does not lead etcd.
fn does_not_lead(cluster: &Running, holder: &str) {
    let address = match holder {
        "cp-1" => FIRST,
        "cp-2" => SECOND,
        _ => THIRD,
    };
    let begin = Instant::now();
    loop {
        let status = cluster.until(&["-n", address, "etcd", "status"], &["LEADER"], STEP_LIMIT);
        let is_id = |word: &&str| word.len() == 16 && word.chars().all(|digit| digit.is_ascii_hexdigit());
        let ids: Vec<&str> = status.split_whitespace().filter(is_id).collect();
        assert!(ids.len() == 2, "no member and its leader: {status}");
        if ids[0] != ids[1] {
            return;
        }
        assert!(begin.elapsed() < deadline(STEP_LIMIT), "{holder} has the address and leads etcd: {status}");
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// The address goes elsewhere when its holder cannot serve, hangs, or stops; and the API answers by it.
fn shared_address_moves(cluster: &Running, tell: &dyn Fn(&str)) {
    let running = cluster.cluster.as_ref().unwrap();
    let (first, _) = moved(cluster, SHARED, "");
    does_not_lead(cluster, &first);
    tell(&format!("{first} has the shared address, and another member leads etcd"));
    // A machined that hangs loses it, and has not got it when it goes on.
    let machined = cluster.processes(&first, "machined").pop_first().unwrap().to_string();
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &machined]).status().unwrap().success());
    signal("-STOP");
    let (second, without) = moved(cluster, SHARED, &first);
    tell(&format!("{first} hangs: {second} has the address, {without:?} without"));
    cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", STEP_LIMIT);
    signal("-CONT");
    for _ in 0..20 {
        // On a machine with much else to do its holder may be late, and is without it for a moment.
        assert!(
            holders(cluster, SHARED).iter().all(|holder| *holder == second),
            "{first} has the address again"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    // A node that stops lets it go before.
    running.stop(&second).unwrap();
    let (third, without) = moved(cluster, SHARED, &second);
    tell(&format!("{second} stops: {third} has the address, {without:?} without"));
    cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", STEP_LIMIT);
    running.start(&second).unwrap();
    let names = THREE.map(|(name, _)| name);
    members_are(cluster, if third == "cp-1" { FIRST } else { SECOND }, &names);
    for (name, _) in THREE {
        cluster.kubectl_until(&["get", "node", name], " Ready ", 2 * STEP_LIMIT);
    }
}

/// Members reach etcd; a worker and this machine do not.
fn etcd_is_closed(cluster: &Running) {
    for port in [2379, 2380] {
        assert!(
            cluster.connects(Some("cp-2"), FIRST, port) && cluster.connects(Some("cp-1"), THIRD, port),
            "{port}"
        );
        assert!(!cluster.connects(Some("worker-1"), FIRST, port), "a worker reaches etcd at {port}");
        assert!(!cluster.connects(None, SECOND, port), "this machine reaches etcd at {port}");
    }
    assert!(cluster.connects(Some("worker-1"), FIRST, 6443) && cluster.connects(None, SECOND, 50000));
}

#[test]
fn a_control_plane_grows_to_three_loses_one_takes_another_and_shrinks() {
    if !inside("members::a_control_plane_grows_to_three_loses_one_takes_another_and_shrinks") {
        return;
    }
    let tell = teller();
    let cluster = Running::start_as(&FIVE, "v1.13", Form::V1alpha1, Endpoint::Shared);
    cluster.begin();
    let names = THREE.map(|(name, _)| name);
    let rows = members_are(&cluster, FIRST, &names);
    tell("etcd has three members with a vote");
    let reader = backup::Reader::new(&cluster);
    backup::ask_for_snapshots(&cluster, FIRST, &reader);
    for (name, _) in FIVE {
        cluster.kubectl_until(&["get", "node", name], " Ready ", 2 * STEP_LIMIT);
    }
    tell("three nodes and two workers are ready");
    etcd_is_closed(&cluster);
    let workload = Workload::start(&cluster);
    tell("pods on the workers answer by the shared address");
    let nodes = [&names[..], &["controlplane", SECOND]].concat();
    cluster.until(&["get", "members"], &nodes, STEP_LIMIT);
    shared_address_moves(&cluster, &tell);
    tell(&workload.answered(&cluster));
    // Each asks its own member.
    assert_eq!(members_are(&cluster, THIRD, &names), rows);
    let status = cluster.until(&["-n", THIRD, "etcd", "status"], &[&rows[2].id], STEP_LIMIT);
    assert!(status.contains("LEADER"), "{status}");
    cluster.until(&["etcd", "alarm", "list"], &[], STEP_LIMIT);
    cluster.until(&["etcd", "defrag"], &[], STEP_LIMIT);
    let leader = cluster.until(&["etcd", "forfeit-leadership"], &[], STEP_LIMIT);
    tell(&format!("leadership: {}", leader.trim()));
    write_and_read(&cluster, "three");

    // One dies: the others go on, and none of them may go now.
    let running = cluster.cluster.as_ref().unwrap();
    running.stop("cp-3").unwrap();
    write_and_read(&cluster, "two");
    let id = |name: &str| rows.iter().find(|row| row.name == name).unwrap().id.clone();
    refused(&cluster, &["etcd", "remove-member", &id("cp-2")], "etcd would lose its quorum without cp-2");
    refused(&cluster, &["-n", SECOND, "etcd", "leave"], "of 3 voting members 2 answer");
    cluster.until(&["etcd", "remove-member", &id("cp-3")], &[], STEP_LIMIT);
    members_are(&cluster, FIRST, &names[..2]);
    tell("a dead member is removed");
    tell(&workload.answered(&cluster));

    // It comes back with its old data, says what is to be done, and joins anew once that was done.
    running.start("cp-3").unwrap();
    let member = id("cp-3");
    cluster.until(&["-n", THIRD, "service", "etcd"], &["removed this node's member", &member], STEP_LIMIT);
    running.stop("cp-3").unwrap();
    recovery::wipe_member(&cluster, "cp-3");
    running.start("cp-3").unwrap();
    let rows = members_are(&cluster, FIRST, &names);
    assert!(rows.iter().all(|row| row.id != member), "{rows:?}");
    cluster.until(&["-n", THIRD, "service", "etcd"], &["Running", "Health check successful"], STEP_LIMIT);
    tell("a wiped node is a member again");

    // One that lost its data alone takes its place anew, without a hand.
    running.stop("cp-2").unwrap();
    std::fs::remove_dir_all(running.node_directory("cp-2").join("var/lib/etcd")).unwrap();
    running.start("cp-2").unwrap();
    let old = rows.iter().find(|row| row.name == "cp-2").unwrap();
    let begin = Instant::now();
    while members_are(&cluster, FIRST, &names).contains(old) {
        assert!(begin.elapsed() < deadline(STEP_LIMIT), "the member without data stays");
    }
    cluster.until(&["-n", SECOND, "service", "etcd"], &["Running", "Health check successful"], STEP_LIMIT);
    tell("a node that lost its data has a new member");
    tell(&workload.answered(&cluster));

    // Down to one, gracefully.
    for (node, address, left) in [("cp-3", THIRD, 2), ("cp-2", SECOND, 1)] {
        cluster.until(&["-n", address, "reset", "--wait=false"], &[], STEP_LIMIT);
        members_are(&cluster, FIRST, &names[..left]);
        cluster.kubectl_until(&["get", "nodes"], "cp-1", STEP_LIMIT);
        let begin = Instant::now();
        while cluster.kubectl(&["get", "nodes"]).is_ok_and(|nodes| nodes.contains(node)) {
            assert!(begin.elapsed() < deadline(STEP_LIMIT), "the object of {node} stays");
            std::thread::sleep(Duration::from_millis(250));
        }
        write_and_read(&cluster, &format!("left-{left}"));
        tell(&format!("{node} has left"));
        tell(&workload.answered(&cluster));
    }
    refused(&cluster, &["reset", "--wait=false"], "cp-1 is the only voting member of etcd");
    refused(&cluster, &["etcd", "leave"], "--graceful=false");
    refused(&cluster, &["etcd", "forfeit-leadership"], "cannot forfeit leadership, only one member");
    for name in ["three", "two", "left-2", "left-1"] {
        cluster.kubectl_until(&["get", "configmap", name, "--output=name"], name, STEP_LIMIT);
    }
    drop(workload);
    backup::status_is_shown(&cluster, "cp-1", FIRST);
    tell("the node takes snapshots by itself");
    let file = cluster.files.path().join("recovery");
    cluster.until(&["etcd", "snapshot", file.to_str().unwrap()], &["snapshot"], STEP_LIMIT);
    recovery::is_lost_and_recovered(&cluster, &["cp-1"], &file, &tell);
    drop(cluster);
    nothing_is_left();
}
