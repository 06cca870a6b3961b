//! docs/users/kernels.md: the hardened kernel that was compiled from source starts a node, in the build's own image and where
//! a person puts it in; Debian's starts the nodes of all other tests.

use std::path::Path;
use std::process::Command;

use qemu_tests::TestNode;
use qemu_tests::artifacts::{self, Build, build};
use qemu_tests::node::{BOOT_LIMIT, Transport};

use crate::encryption::{BOOT, MACHINE, node_id, section};
use crate::images::flashed;

/// Whoever compiles kernels for other machines has the options for these, and no list of modules.
const HARDENING: [(&str, &str); 3] = [
    ("/proc/sys/kernel/kptr_restrict", "2"),
    ("/proc/sys/kernel/dmesg_restrict", "1"),
    ("/proc/sys/kernel/unprivileged_bpf_disabled", "1"),
];

/// Boots a disk with this image, whose volumes are encrypted, and asks what runs.
fn boots(name: &str, disk: &Path, build: &Build) -> TestNode {
    let encrypted = section(&node_id(0), &node_id(0));
    let node = TestNode::builder(name)
        .transport(Transport::Firmware)
        .disk(disk)
        .machine_section(&encrypted)
        .machine(|vm, _| Ok(vm.extra(&["-uuid", MACHINE])))
        .start()
        .unwrap();
    node.wait_api(BOOT).unwrap();
    node.expect("billet: boot sequence: done").unwrap();
    let read = |path: &str| node.admin().ok(&["read", path]).unwrap();
    assert_eq!(read("/proc/sys/kernel/osrelease").trim(), build.kernel_release);
    node
}

#[test]
#[ignore = "long run"]
fn the_hardened_one_opens_volumes_and_keeps_them() {
    let hardened = artifacts::hardened().unwrap();
    assert_ne!(hardened.kernel_release, build().kernel_release);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.raw");
    qemu_tests::root::copy_sparse(&hardened.test.disk, &image).unwrap();
    let disk = flashed(&image, 5 << 30);
    let node = boots("kernel-hardened", &disk, &hardened);
    let read = |path: &str| node.admin().ok(&["read", path]).unwrap();
    assert_eq!(read("/proc/modules"), "", "nothing is modular");
    for (path, value) in HARDENING {
        assert_eq!(read(path).trim(), value, "{path}");
    }
    for line in [
        "STATE is encrypted, opened by the nodeID key in slot 0",
        "EPHEMERAL is /dev/mapper/luks2-EPHEMERAL, mounted at /var",
    ] {
        node.vm().wait_for(line, BOOT).unwrap();
    }
    node.admin().ok(&["reboot", "--wait=false"]).unwrap();
    node.vm().expect("machine config: taken from STATE", BOOT_LIMIT * 2).unwrap();
    node.wait_api(BOOT).unwrap();
}

/// As docs/users/kernels.md says of a kernel that has everything built in.
#[test]
#[ignore = "long run"]
fn a_persons_own_takes_the_place_of_the_images() {
    let hardened = artifacts::hardened().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(&build().billetctl)
        .args(["image", "build", "--kind", "disk", "--remove", "/lib/modules", "--from"])
        .arg(&build().test.installer)
        .arg("--kernel-path")
        .arg(&hardened.vmlinuz)
        .arg("--output")
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let disk = flashed(&folder.path().join("metal-amd64.raw"), 5 << 30);
    let node = boots("kernel-own", &disk, &hardened);
    let listed = node.admin().ok(&["list", "/usr/lib/modules"]).unwrap();
    assert!(!listed.contains("6."), "{listed}");
}
