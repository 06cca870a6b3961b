//! The same layers from every transport, up to an API that says so.

use qemu_tests::{TestNode, Transport};

/// Boots from a transport; the API answers, and names `source` as where the root came from.
fn boots_from(name: &str, transport: Transport, source: &str) {
    let node = TestNode::builder(name).transport(transport).boot().unwrap();
    let version = node.admin().ok(&["version"]).unwrap();
    assert!(version.contains(&qemu_tests::artifacts::build().version), "{version}");
    let log = node.admin().ok(&["dmesg"]).unwrap();
    let line = log.lines().find(|line| line.contains("billet: init: root from")).unwrap_or_default();
    assert!(line.contains(source), "init names another source than {source}: {line:?}");
    // Every layer is mapped, whatever carried it.
    let mounts = node.agent().unwrap().read("/proc/self/mounts").unwrap();
    assert!(mounts.lines().any(|line| line.starts_with("overlay / overlay ro")), "{mounts}");
}

#[test]
fn from_the_initramfs() {
    boots_from("boot-initramfs", Transport::Initramfs, "initramfs");
}

#[test]
fn from_a_slot_of_a_disk() {
    boots_from("boot-slot", Transport::Slot, "(ROOT-A)");
}

#[test]
fn from_a_disk_under_firmware_and_systemd_boot() {
    boots_from("boot-firmware", Transport::Firmware, "(ROOT-A)");
}

#[test]
fn from_a_labelled_medium() {
    boots_from("boot-medium", Transport::Medium, "/dev/sr0 (label BILLET)");
}
