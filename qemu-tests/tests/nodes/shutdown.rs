//! Ends of a node: asked for, and forced by the watchdog.

use std::time::Duration;

use qemu_tests::TestNode;
use qemu_tests::agent::signal;
use qemu_tests::node::BOOT_LIMIT;
use serde_json::json;

/// Services get 10 s to stop, then 5 s to be killed, then 30 s for file systems; nothing here needs that long.
const END_LIMIT: Duration = Duration::from_secs(20);

/// init's deadline for heartbeats is 60 s of the guest's clock, which runs in real time whatever the host does.
const HEARTBEAT_LIMIT: Duration = Duration::from_secs(90);

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
#[ignore = "long run"]
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
fn the_power_button_shuts_down_in_order() {
    let node = TestNode::boot("shutdown-button").unwrap();
    // There are two, one after the other; a press before its device is watched is nobody's.
    node.wait_services().unwrap();
    assert!(node.vm().console().text().contains("watching the power button"));
    node.vm().qmp().execute("system_powerdown", json!({})).unwrap();
    node.vm().expect("shutdown sequence", END_LIMIT).unwrap();
    let event = node.vm().wait_event("SHUTDOWN", END_LIMIT).unwrap();
    assert_eq!(event["data"]["reason"], "guest-shutdown", "{event}");
}

#[test]
#[ignore = "long run"]
fn ctrl_alt_delete_reboots_in_order() {
    let node = TestNode::boot("shutdown-keys").unwrap();
    let keys = ["ctrl", "alt", "delete"].map(|key| json!({ "type": "qcode", "data": key }));
    node.vm().qmp().execute("send-key", json!({ "keys": keys })).unwrap();
    node.vm().expect("reboot sequence", END_LIMIT).unwrap();
    node.vm().wait_event("RESET", END_LIMIT).unwrap();
}

#[test]
#[ignore = "long run"]
fn a_hanging_machined_is_replaced() {
    let node = TestNode::boot("shutdown-hang").unwrap();
    let agent = node.agent().unwrap();
    let hanging = agent.process("machined").unwrap();
    agent.signal(hanging.pid, signal::STOP).unwrap();
    node.vm().expect("no heartbeat for 60 s", HEARTBEAT_LIMIT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    assert_ne!(agent.process("machined").unwrap(), hanging);
}

#[test]
fn a_hanging_kernel_ends_in_a_watchdog_reset() {
    let node = TestNode::builder("shutdown-watchdog")
        .command_line("billet.watchdog=10 panic=0")
        .machine(|vm, _| Ok(vm.watchdog()))
        .boot()
        .unwrap();
    node.vm().wait_for("watchdog armed, 10 s", BOOT_LIMIT).unwrap();
    // The kernel panics and, with panic=0, hangs for ever; the agent's answer is lost with it.
    let crash = json!({ "op": "write", "path": "/proc/sysrq-trigger", "text": "c" });
    let address = node.agent().unwrap();
    std::thread::spawn(move || address.ask(crash));
    node.vm().expect("---[ end Kernel panic - not syncing: sysrq", BOOT_LIMIT).unwrap();
    let event = node.vm().wait_event("WATCHDOG", BOOT_LIMIT).unwrap();
    assert_eq!(event["data"]["action"], "reset", "{event}");
    node.vm().expect("billet: init: root from", BOOT_LIMIT).unwrap();
}
