//! Ends of a node: asked for, and forced by the watchdog.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use qemu_tests::TestNode;
use qemu_tests::agent::signal;
use qemu_tests::node::BOOT_LIMIT;

/// Services get 10 s to stop, then 5 s to be killed, then 30 s for file systems; nothing here needs that long.
const END_LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_reboot_ends_in_a_new_boot() {
    let node = TestNode::boot("shutdown-reboot").unwrap();
    let boot_id = "/proc/sys/kernel/random/boot_id";
    let before = node.admin().ok(&["read", boot_id]).unwrap();
    // Returns when the node is back.
    node.admin().ok_within(&["reboot"], END_LIMIT + BOOT_LIMIT).unwrap();
    let event = node.vm().wait_event("RESET", Duration::ZERO).unwrap();
    assert_eq!(event["data"]["guest"], true, "{event}");
    node.wait_api(BOOT_LIMIT).unwrap();
    assert_ne!(node.admin().ok(&["read", boot_id]).unwrap(), before);
}

#[test]
fn a_reboot_without_waiting_returns_at_once() {
    let node = TestNode::boot("shutdown-no-wait").unwrap();
    node.admin().ok(&["reboot", "--wait=false"]).unwrap();
    node.vm().wait_event("RESET", END_LIMIT).unwrap();
}

#[test]
fn a_shutdown_cuts_the_power() {
    let node = TestNode::boot("shutdown-poweroff").unwrap();
    node.admin().ok_within(&["shutdown"], END_LIMIT).unwrap();
    let event = node.vm().wait_event("SHUTDOWN", END_LIMIT).unwrap();
    assert_eq!(event["data"]["reason"], "guest-shutdown", "{event}");
    assert!(node.vm().wait_exit(END_LIMIT).unwrap().success());
    let text = node.vm().console().text();
    assert!(!text.contains("Kernel panic") && !text.contains("killed after"), "{text}");
}

#[test]
fn the_power_button_ends_the_node_in_order() {
    let node = TestNode::boot("shutdown-button").unwrap();
    node.vm().press_power().unwrap();
    let event = node.vm().wait_event("SHUTDOWN", END_LIMIT).unwrap();
    assert_eq!(event["data"]["reason"], "guest-shutdown", "{event}");
}

#[test]
fn a_hanging_machined_ends_in_a_watchdog_reset() {
    let node = TestNode::builder("shutdown-watchdog")
        .command_line("billet.watchdog=10")
        .machine(|vm, _| Ok(vm.watchdog()))
        .boot()
        .unwrap();
    let agent = node.agent().unwrap();
    agent.signal(agent.process("machined").unwrap().pid, signal::STOP).unwrap();
    // The heartbeat's deadline is 60 s, the watchdog's 10 s; the guest's clock runs in real time.
    let event = node.vm().wait_event("WATCHDOG", Duration::from_secs(120)).unwrap();
    assert_eq!(event["data"]["action"], "reset", "{event}");
    node.wait_api(BOOT_LIMIT).unwrap();
}
