//! Services that are containers to clients: listed, measured, and started again by the API.

use std::time::{Duration, Instant};

use qemu_tests::TestNode;

/// A restart, on the reference machine.
const STEP_LIMIT: Duration = Duration::from_secs(30);

/// The process of a service that runs, as `containers` has it.
fn pid(node: &TestNode, id: &str) -> Option<String> {
    let table = node.admin().ok(&["containers"]).ok()?;
    let row = table.lines().find(|line| line.split_whitespace().nth(2) == Some(id))?;
    row.ends_with("RUNNING").then(|| row.split_whitespace().nth(4).map(str::to_owned))?
}

#[test]
fn apid_and_trustd_are_containers_that_start_again() {
    let node = TestNode::boot("node-restarts").unwrap();
    node.wait_services().unwrap();
    for id in ["trustd", "apid"] {
        let before = pid(&node, id).unwrap();
        let stats = node.admin().ok(&["stats"]).unwrap();
        assert!(stats.lines().any(|line| line.split_whitespace().nth(2) == Some(id)), "{stats}");
        // apid's answer comes through itself.
        node.admin().ok(&["restart", id]).unwrap();
        let end = Instant::now() + qemu_tests::deadline(STEP_LIMIT);
        while pid(&node, id).is_none_or(|after| after == before) {
            assert!(Instant::now() < end, "{id} has no other process");
        }
    }
    let said = node.admin().refused(&["restart", "udevd"]).unwrap();
    assert!(said.contains("container \"udevd\" does not exist"), "{said}");
}
