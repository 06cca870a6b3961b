//! A control plane node on a disk that is upgraded and reset: what becomes of its member of etcd.

use std::fs::File;
use std::time::{Duration, Instant};

use oci::archive;
use qemu_tests::deadline;
use qemu_tests::installer_image::Parts;

use crate::machine::{ADDRESS, CONTROL_PLANE, LIMIT, Machine};
use crate::members::{FIRST, Row, THREE, members_within, write_and_read};
use crate::rig::{Running, STEP_LIMIT};
use crate::{inside, nothing_is_left, teller};

const REPOSITORY: &str = "billet/installer";
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);
const ALL: [&str; 3] = ["cp-1", "cp-2", CONTROL_PLANE];

/// Has the registry keep the built image as another version; answers how a node names it.
fn keep(cluster: &Running, version: &str) -> String {
    let file = cluster.files.path().join(version);
    let image = Parts::of_build().unwrap().image(version);
    archive::write(&mut File::create(&file).unwrap(), &image).unwrap();
    cluster.registry.serve(&file, REPOSITORY, version).unwrap();
    format!("registry.example.org/{REPOSITORY}:{version}")
}

/// The machine's member, once all three have a vote and it says that it is well.
fn member(cluster: &Running) -> Row {
    let mut rows = members_within(cluster, FIRST, &ALL, LIMIT);
    cluster.until(&["-n", ADDRESS, "service", "etcd"], &["Running", "Health check successful"], LIMIT);
    rows.pop().unwrap()
}

/// Upgrades the machine, and waits until it has kept the new version.
fn upgrade(cluster: &Running, machine: &Machine, version: &str, more: &[&str]) {
    let image = keep(cluster, version);
    let words = [&["-n", ADDRESS, "upgrade", "--wait=false", "--image", &image], more].concat();
    cluster.until(&words, &["Upgrade request received"], LIMIT);
    if more.contains(&"--preserve=false") {
        members_within(cluster, FIRST, &ALL[..2], LIMIT);
        write_and_read(cluster, "left");
    }
    let line = format!("version {version} proved itself and is kept as");
    machine.vm().expect(&line, 2 * LIMIT).unwrap();
    cluster.until(&["-n", ADDRESS, "version"], &[version], LIMIT);
}

#[test]
#[ignore = "long run"]
fn a_control_plane_node_is_upgraded_and_reset_with_its_member_and_without() {
    if !inside("upgrade::a_control_plane_node_is_upgraded_and_reset_with_its_member_and_without") {
        return;
    }
    let tell = teller();
    let cluster = Running::start(&THREE[..2]);
    let machine = Machine::control_plane(&cluster);
    cluster.begin();
    let first = member(&cluster);
    tell("the machine has a member with a vote");
    for version in ["0.2.0", "0.3.0"] {
        upgrade(&cluster, &machine, version, &[]);
        assert_eq!(member(&cluster), first, "the member is another one after {version}");
        write_and_read(&cluster, &format!("kept-{version}"));
        tell(&format!("{version} runs with the same member"));
    }
    upgrade(&cluster, &machine, "0.4.0", &["--preserve=false"]);
    let second = member(&cluster);
    assert_ne!(second.id, first.id, "a node that left has its member again");
    tell("0.4.0 runs, and the machine has joined anew");

    // Its data goes, and etcd is not told.
    let wipe = ["-n", ADDRESS, "reset", "--wait=false", "--graceful=false", "--reboot"];
    let wipe = [&wipe[..], &["--system-labels-to-wipe", "EPHEMERAL"]].concat();
    cluster.until(&wipe, &[], STEP_LIMIT);
    machine.vm().expect("EPHEMERAL on /dev/vda was empty: formatted", LIMIT).unwrap();
    // The list has the member without data until the machine asks to join.
    let begin = Instant::now();
    while member(&cluster) == second {
        assert!(begin.elapsed() < deadline(LIMIT), "a member without data stays\n{}", cluster.state());
        std::thread::sleep(PAUSE);
    }
    tell("wiped without a word to etcd, the machine's member is replaced");

    cluster.kubectl_until(&["get", "nodes"], CONTROL_PLANE, LIMIT);
    cluster.until(&["-n", ADDRESS, "reset", "--wait=false"], &[], STEP_LIMIT);
    members_within(&cluster, FIRST, &ALL[..2], LIMIT);
    let begin = Instant::now();
    while cluster.kubectl(&["get", "nodes"]).is_ok_and(|nodes| nodes.contains(CONTROL_PLANE)) {
        assert!(begin.elapsed() < deadline(LIMIT), "the machine's object stays");
        std::thread::sleep(PAUSE);
    }
    write_and_read(&cluster, "reset");
    tell("reset, the machine has left etcd and Kubernetes");
    drop(machine);
    drop(cluster);
    nothing_is_left();
}
