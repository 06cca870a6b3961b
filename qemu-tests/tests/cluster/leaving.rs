//! A node that loses its power while it leaves etcd.

use std::process::Command;
use std::time::{Duration, Instant};

use config::rewrite::Form;

use crate::members::{FIRST, THIRD, THREE, members_are, write_and_read};
use crate::rig::{Endpoint, Running, STEP_LIMIT};
use crate::{inside, nothing_is_left, teller};

/// Cuts, spread over the time that a whole leave takes and a bit more.
const CUTS: u32 = 12;
const NODE: &str = "cp-3";

/// Asks the node to leave, cuts its power after `delay`, and starts it again.
fn cut_off(cluster: &Running, delay: Duration) {
    let running = cluster.cluster.as_ref().unwrap();
    let leave = cluster.admin.follow(&["-n", THIRD, "etcd", "leave"]).unwrap();
    std::thread::sleep(delay);
    let init = running.pid(NODE).unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &init]).status().unwrap().success());
    drop(leave);
    running.start(NODE).unwrap();
}

/// The member that the node's own etcd has, once it is a healthy one of three.
fn member(cluster: &Running) -> String {
    let names = THREE.map(|(name, _)| name);
    cluster.until(&["-n", THIRD, "service", "etcd"], &["Running", "Health check successful"], 2 * STEP_LIMIT);
    let rows = members_are(cluster, FIRST, &names);
    assert_eq!(members_are(cluster, THIRD, &names), rows);
    rows.into_iter().find(|row| row.name == NODE).unwrap().id
}

#[test]
#[ignore = "long run"]
fn a_leave_that_is_cut_off_anywhere_ends_with_a_healthy_member() {
    if !inside("leaving::a_leave_that_is_cut_off_anywhere_ends_with_a_healthy_member") {
        return;
    }
    let tell = teller();
    let cluster = Running::start_as(&THREE, "v1.13", Form::V1alpha1, Endpoint::Shared);
    cluster.begin();
    let mut id = member(&cluster);
    let begin = Instant::now();
    cluster.until(&["-n", THIRD, "etcd", "leave"], &[], STEP_LIMIT);
    let whole = begin.elapsed();
    tell(&format!("a whole leave takes {whole:?}"));
    members_are(&cluster, FIRST, &["cp-1", "cp-2"]);
    cluster.cluster.as_ref().unwrap().stop(NODE).unwrap();
    cluster.cluster.as_ref().unwrap().start(NODE).unwrap();
    let (mut kept, mut anew) = (0, 0);
    for cut in 0..=CUTS {
        let before = std::mem::replace(&mut id, member(&cluster));
        if cut > 0 {
            *(if before == id { &mut kept } else { &mut anew }) += 1;
        }
        write_and_read(&cluster, &format!("cut-{cut}"));
        if cut < CUTS {
            // Closer at first: most of a leave is the wait for etcd's end.
            cut_off(&cluster, whole * (cut * cut) / ((CUTS - 2) * (CUTS - 2)));
        }
    }
    tell(&format!("{CUTS} leaves were cut off: {kept} members were kept, {anew} joined anew"));
    // The first cut comes before the request, and the last ones after the answer.
    assert!(kept > 0 && anew > 0, "{kept} kept, {anew} anew");
    drop(cluster);
    nothing_is_left();
}
