//! Three control plane nodes under load, while their programs die at random and one of them is cut off.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use config::rewrite::Form;
use qemu_tests::deadline;

use crate::load::Load;
use crate::members::{FIRST, SECOND, THIRD, THREE, holders, members_are};
use crate::rig::{Endpoint, Running, SHARED, STEP_LIMIT};
use crate::{inside, nothing_is_left, teller};

/// How long programs die.
const KILLS_TIME: Duration = Duration::from_secs(10 * 60);
/// Between two deaths, at least and at most.
const PAUSES_MS: (u64, u64) = (1_000, 6_000);
const PROGRAMS: [&str; 5] = ["machined", "kubelet", "containerd", "etcd", "kube-apiserver"];
/// What runs in containers of each node.
const CONTAINED: [&str; 5] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"];
/// How long a node is cut off.
const PARTITION_TIME: Duration = Duration::from_secs(5 * 60);
const SAMPLE: Duration = Duration::from_millis(100);

/// Numbers that a seed decides (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[usize::try_from(self.below(list.len() as u64)).unwrap()]
    }
}

fn three() -> Running {
    let cluster = Running::start_as(&THREE, "v1.13", Form::V1alpha1, Endpoint::Shared);
    cluster.begin();
    are_well(&cluster);
    cluster
}

/// All three are members and ready.
fn are_well(cluster: &Running) {
    let names = THREE.map(|(name, _)| name);
    for address in [FIRST, SECOND, THIRD] {
        cluster.until(
            &["-n", address, "service", "etcd"],
            &["Running", "Health check successful"],
            2 * STEP_LIMIT,
        );
    }
    members_are(cluster, FIRST, &names);
    for name in names {
        cluster.kubectl_until(&["get", "node", name], " Ready ", 2 * STEP_LIMIT);
    }
}

/// Kills the processes of a program that run now, if there are some. It is awaited nowhere: the next death may come first.
fn kill(cluster: &Running, node: &str, program: &str) -> bool {
    let pids = cluster.processes(node, program);
    if pids.is_empty() {
        return false;
    }
    // One may have ended meanwhile.
    let _ = Command::new("kill").arg("-9").args(pids.iter().map(u32::to_string)).output();
    true
}

/// The processes of each node's containers, as soon as each has one: a node is ready before its controller manager is.
fn contained(cluster: &Running) -> Vec<(String, BTreeSet<u32>)> {
    let begin = Instant::now();
    loop {
        let of = |name: &str| {
            CONTAINED.map(|program| (format!("{program} of {name}"), cluster.processes(name, program)))
        };
        let all: Vec<_> = THREE.iter().flat_map(|(name, _)| of(name)).collect();
        if all.iter().all(|(_, processes)| !processes.is_empty()) {
            return all;
        }
        assert!(begin.elapsed() < deadline(STEP_LIMIT), "{all:?}\n{}", cluster.state());
        std::thread::sleep(SAMPLE);
    }
}

#[test]
#[ignore = "long run"]
fn programs_that_die_at_random_lose_no_acknowledged_write() {
    if !inside("kills::programs_that_die_at_random_lose_no_acknowledged_write") {
        return;
    }
    let tell = teller();
    let cluster = three();
    tell("three nodes are ready");
    let names = THREE.map(|(name, _)| name);

    // Containers outlive the programs that started them.
    let before = contained(&cluster);
    for name in names {
        for program in ["machined", "containerd", "kubelet"] {
            cluster.kill(name, program);
        }
    }
    are_well(&cluster);
    assert_eq!(contained(&cluster), before, "a container started again");
    tell("machined, containerd and kubelet died on each node, and no container started again");

    let seed = u64::from(std::process::id()) | 1;
    eprintln!("seed {seed}");
    let mut random = Random(seed);
    let load = Load::start(&cluster, &[FIRST, SECOND, THIRD]);
    let (begin, mut deaths) = (Instant::now(), 0);
    while begin.elapsed() < KILLS_TIME {
        let (node, program) = (random.of(&names), random.of(&PROGRAMS));
        deaths += usize::from(kill(&cluster, node, program));
        std::thread::sleep(Duration::from_millis(PAUSES_MS.0 + random.below(PAUSES_MS.1 - PAUSES_MS.0)));
    }
    are_well(&cluster);
    let acknowledged = load.acknowledged();
    let operations = load.end();
    tell(&format!("{deaths} deaths, {operations} operations, {acknowledged} acknowledged, none lost"));
    assert!(acknowledged > 100, "{acknowledged} operations are no load");
    drop(cluster);
    nothing_is_left();
}

/// Takes a node's card off the bridge, or puts it back: frames are lost, and the link stays up.
fn plug(cluster: &Running, node: &str, is_in: bool) {
    let namespace = cluster.cluster.as_ref().unwrap().container(node);
    let ip = |words: &[&str]| {
        let done = Command::new("ip").args(words).output().unwrap();
        assert!(done.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let card = ip(&["-n", &namespace, "-o", "link", "show", "eth0"]);
    let index = card.split("@if").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
    let links = ip(&["-o", "link"]);
    let link = links.lines().find(|line| line.starts_with(&format!("{index}: "))).unwrap();
    let name = link.split(": ").nth(1).and_then(|name| name.split('@').next()).unwrap();
    if is_in {
        let bridge =
            links.lines().find_map(|line| line.split(": ").nth(1).filter(|name| name.starts_with("blb")));
        ip(&["link", "set", name, "master", bridge.unwrap()]);
    } else {
        ip(&["link", "set", name, "nomaster"]);
    }
}

#[test]
#[ignore = "long run"]
fn a_node_that_is_cut_off_has_no_address_and_comes_back() {
    if !inside("kills::a_node_that_is_cut_off_has_no_address_and_comes_back") {
        return;
    }
    let tell = teller();
    let cluster = three();
    let holder = loop {
        if let Some(holder) = holders(&cluster, SHARED).pop() {
            break holder;
        }
    };
    tell(&format!("three nodes are ready, {holder} has the address"));
    let others: Vec<&str> = [("cp-1", FIRST), ("cp-2", SECOND), ("cp-3", THIRD)]
        .into_iter()
        .filter(|(name, _)| *name != holder)
        .map(|(_, address)| address)
        .collect();
    let load = Load::start(&cluster, &others);
    plug(&cluster, &holder, false);
    let (begin, mut moved, mut samples) = (Instant::now(), None, 0_u32);
    while begin.elapsed() < PARTITION_TIME {
        let now = holders(&cluster, SHARED);
        assert!(now.len() <= 1, "{now:?} have the address");
        if now.first().is_some_and(|other| *other != holder) {
            moved.get_or_insert_with(|| begin.elapsed());
        }
        assert!(moved.is_none() || !now.contains(&holder), "the node that is cut off has the address again");
        samples += 1;
        std::thread::sleep(SAMPLE);
    }
    let moved = moved.unwrap_or_else(|| panic!("no other node has the address\n{}", cluster.state()));
    let before = load.acknowledged();
    tell(&format!(
        "{moved:?} until another node had the address, {samples} samples, {before} operations acknowledged"
    ));
    assert!(before > 100, "{before} operations are no load");
    plug(&cluster, &holder, true);
    let begin = Instant::now();
    are_well(&cluster);
    tell(&format!("the node is well again after {:?}", begin.elapsed()));
    assert!(begin.elapsed() < deadline(2 * STEP_LIMIT));
    load.end();
    drop(cluster);
    nothing_is_left();
}
