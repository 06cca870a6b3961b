//! Nodes that are mistreated while they run: they keep answering, and nothing is lost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use qemu_tests::TestNode;
use qemu_tests::agent::{Agent, Process, signal};
use qemu_tests::config_volume;
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::settings::rounds;
use serde_json::json;

/// Enough for the line a test waits for, or for a child of the agent to end.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// How machined starts to say what is wrong with a config.
const COMPLAINT: &str = "billet: machined: machine config: ";

/// What is told apart when machined is killed: all of userspace but machined itself.
fn services(agent: &Agent) -> BTreeSet<(i32, u64, String)> {
    let is_service = |process: &Process| {
        process.pid > 1 && process.ppid != 2 && process.pid != 2 && process.name != "machined"
    };
    let processes = agent.processes().unwrap().into_iter().filter(is_service);
    processes.map(|process| (process.pid, process.start_ticks, process.name)).collect()
}

/// Asserts that the log holds every line of a flood once and in order.
fn assert_flood_is_whole(node: &TestNode, tag: &str, lines: u64) {
    let log = node.admin().ok(&["logs", "test-agent"]).unwrap();
    let marker = format!("flood {tag} ");
    let numbers: Vec<u64> =
        log.lines().filter_map(|line| line.split_once(&marker)?.1.trim().parse().ok()).collect();
    let first_wrong = numbers.iter().zip(0..).find(|&(&number, wanted)| number != wanted);
    assert_eq!(first_wrong, None, "{} lines of {lines}", numbers.len());
    assert_eq!(numbers.len() as u64, lines, "lines are missing at the end");
}

#[test]
fn machined_is_killed_again_and_again() {
    let kills = rounds(10, 50);
    let node = TestNode::boot("node-kill-machined").unwrap();
    let agent = node.agent().unwrap();
    node.wait_services().unwrap();
    let settled = services(&agent);
    for wanted in ["apid", "test-agent"] {
        assert!(settled.iter().any(|(_, _, name)| name == wanted), "no {wanted} in {settled:?}");
    }
    // Slow enough to last through every kill, small enough for the log file's bound.
    let lines = u64::from(kills) * 200;
    let flood = agent.flood("kill", lines, Duration::from_millis(20)).unwrap();
    let flooding = services(&agent);
    let mut memory = None;
    let mut machined = agent.process("machined").unwrap();
    for kill in 0..kills {
        agent.signal(machined.pid, signal::KILL).unwrap();
        node.answers(BOOT_LIMIT).unwrap();
        let next = agent.process("machined").unwrap();
        assert_ne!((next.pid, next.start_ticks), (machined.pid, machined.start_ticks));
        machined = next;
        let now = agent.anonymous_kib(1).unwrap();
        // What the first restart touches stays; after that nothing grows.
        assert!(
            memory.is_none_or(|before| now <= before),
            "init grew from {memory:?} to {now} KiB at kill {kill}"
        );
        memory = memory.or(Some(now));
    }
    agent.wait_child(flood, STEP_LIMIT * 2).unwrap();
    let survivors = services(&agent);
    let lost: Vec<_> = settled.difference(&survivors).collect();
    assert!(lost.is_empty(), "restarted or gone: {lost:?}, now {survivors:?}");
    assert!(survivors.is_subset(&flooding), "started by a kill: {survivors:?}");
    assert_flood_is_whole(&node, "kill", lines);
}

/// The kill may fall into the boot sequence: it is finished by the next machined, with every service there once.
#[test]
#[ignore = "long run"]
fn machined_is_killed_while_services_start() {
    let node = TestNode::boot("node-kill-early").unwrap();
    let agent = node.agent().unwrap();
    agent.signal(agent.process("machined").unwrap().pid, signal::KILL).unwrap();
    node.wait_services().unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    for service in ["apid", "trustd"] {
        agent.process(service).unwrap();
    }
    let containerds =
        agent.processes().unwrap().into_iter().filter(|p| p.name == "containerd" && p.state != "Z");
    assert_eq!(containerds.count(), 1);
    let text = node.vm().console().text();
    assert!(!text.contains("sequence: failed"), "{text}");
}

#[test]
#[ignore = "long run"]
fn an_unreadable_config_is_retried_until_it_is_readable() {
    let node = TestNode::builder("node-bad-config").config_cd("machine:\n  type: [\n").start().unwrap();
    // The first complaints may come before the drive's driver; then what is wrong stands there with its place.
    let complaint = || {
        node.vm().expect_with("a complaint about line 2", BOOT_LIMIT, |text| {
            let start = text.match_indices(COMPLAINT).map(|(at, _)| at);
            let mut lines = start.filter_map(|at| Some((text[at..].split_once('\n')?.0, at)));
            lines
                .find(|(line, _)| line.contains("line 2"))
                .map(|(line, at)| (line.to_owned(), at + line.len()))
        })
    };
    complaint().unwrap();
    node.vm().expect("looking again", BOOT_LIMIT).unwrap();
    complaint().unwrap();
    let good = node.credentials().machine_config().unwrap();
    let image = config_volume::write_cd(&node.files().join("good.img"), &good).unwrap();
    node.vm().change_medium(0, &image).unwrap();
    node.wait_api(STEP_LIMIT).unwrap();
    let log = node.admin().ok(&["logs", "machined"]).unwrap();
    assert!(log.contains("machine config: "), "the reason is not in machined's log:\n{log}");
}

#[test]
fn a_config_volume_that_comes_late_is_taken() {
    let node = TestNode::builder("node-late-config").no_config().start().unwrap();
    node.vm().expect("no volume labelled metal-iso", BOOT_LIMIT).unwrap();
    let good = node.credentials().machine_config().unwrap();
    let image = config_volume::write(&node.files().join("good.img"), &good).unwrap();
    node.vm().plug_in("late", &image).unwrap();
    node.wait_api(STEP_LIMIT).unwrap();
}

#[test]
#[ignore = "long run"]
fn a_log_flood_delays_nothing() {
    let node = TestNode::boot("node-log-flood").unwrap();
    let agent = node.agent().unwrap();
    // The log file is put aside at 1 MiB: the short run writes nearly two.
    let lines = u64::from(rounds(110_000, 400_000));
    let flood = agent.flood("fast", lines, Duration::ZERO).unwrap();
    for _ in 0..3 {
        node.answers(STEP_LIMIT).unwrap();
    }
    agent.wait_child(flood, STEP_LIMIT).unwrap();
    let last = format!("flood fast {}", lines - 1);
    let end = Instant::now() + qemu_tests::deadline(STEP_LIMIT);
    while !node.admin().ok(&["logs", "--tail", "5", "test-agent"]).unwrap().contains(&last) {
        assert!(Instant::now() < end, "{last} never reached the log");
    }
    // The log is bounded: it took far less than was written.
    let used =
        agent.ask(json!({ "op": "read", "path": "/run/log/test-agent.log" })).unwrap()["bytes"].as_u64();
    assert!(used.unwrap() < lines * 18, "the log was not rotated: {used:?} bytes");
}

#[test]
#[ignore = "long run"]
fn a_full_tmpfs_stops_nobody() {
    let node = TestNode::boot("node-full-tmpfs").unwrap();
    let agent = node.agent().unwrap();
    for directory in ["/run", "/tmp"] {
        let path = format!("{directory}/filled-by-a-test");
        let done = agent.ask(json!({ "op": "fill", "path": path })).unwrap();
        assert_eq!(done["full"], true, "{directory} has no bound: {done}");
        for words in [&["version"][..], &["services"], &["dmesg", "--tail"], &["memory"]] {
            node.admin().ok(words).unwrap_or_else(|error| panic!("with a full {directory}: {error:#}"));
        }
        // A service that writes into a full log must not be held up by it.
        let flood = agent.flood("full", 5_000, Duration::ZERO).unwrap();
        agent.wait_child(flood, STEP_LIMIT).unwrap();
        agent.ask(json!({ "op": "remove", "path": path })).unwrap();
    }
    let flood = agent.flood("after", 10, Duration::ZERO).unwrap();
    agent.wait_child(flood, STEP_LIMIT).unwrap();
    assert!(node.admin().ok(&["logs", "test-agent"]).unwrap().contains("flood after 9"));
}

#[test]
#[ignore = "long run"]
fn orphans_are_reaped_while_the_node_answers() {
    let node = TestNode::boot("node-orphans").unwrap();
    let agent = node.agent().unwrap();
    let (machined, memory) = (agent.process("machined").unwrap(), agent.anonymous_kib(1).unwrap());
    let forks = rounds(300, 5_000);
    let child = agent.fork_and_die(u64::from(forks)).unwrap();
    for _ in 0..3 {
        node.answers(STEP_LIMIT).unwrap();
    }
    agent.wait_forking_child(child, STEP_LIMIT).unwrap();
    let end = Instant::now() + qemu_tests::deadline(STEP_LIMIT);
    let is_zombie_of_init = |process: &Process| process.state == "Z" && process.ppid == 1;
    while agent.processes().unwrap().iter().any(is_zombie_of_init) {
        assert!(Instant::now() < end, "init does not reap");
    }
    assert_eq!(agent.process("machined").unwrap(), machined);
    assert!(agent.anonymous_kib(1).unwrap() <= memory, "init grew");
}

#[test]
fn a_service_that_dies_is_started_again() {
    let node = TestNode::boot("node-dying-service").unwrap();
    let mut before = node.agent().unwrap().process("test-agent").unwrap();
    for _ in 0..3 {
        // The answer may be lost with the process that was to give it.
        let _ = node.agent().unwrap().signal(before.pid, signal::KILL);
        let agent = node.agent().unwrap();
        let after = agent.process("test-agent").unwrap();
        assert_ne!((after.pid, after.start_ticks), (before.pid, before.start_ticks));
        node.admin().ok(&["version"]).unwrap();
        before = after;
    }
    let services = node.admin().ok(&["service", "test-agent"]).unwrap();
    assert!(services.contains("Running"), "{services}");
}
