//! docs/users/images.md, "64-bit ARM": an image that was made here for other processors starts on them.

use std::fs::File;
use std::time::Duration;

use qemu_tests::artifacts;
use qemu_tests::credentials::HOSTNAME;
use qemu_tests::root::copy_sparse;
use qemu_tests::{Bus, Drive, TestNode, Transport};

/// Room for STATE and EPHEMERAL, which the first boot makes.
const DISK_BYTES: u64 = 4 << 30;
/// Firmware, boot loader, kernel and node by emulated processors, on whatever machine tests run.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

#[test]
#[ignore = "long run"]
fn a_flashed_disk_starts_makes_its_volumes_and_answers() {
    let disk = artifacts::arm64().unwrap().test.disk;
    let node = TestNode::builder("arm64")
        .transport(Transport::Network)
        .machine(move |vm, dir| {
            let image = dir.join("disk.img");
            copy_sparse(&disk, &image)?;
            File::options().write(true).open(&image)?.set_len(DISK_BYTES)?;
            Ok(vm.arm64().drive(Drive::writable(&image, Bus::Virtio).boot_index(0)))
        })
        .start()
        .unwrap();
    node.vm().expect("(ROOT-A)", BOOT_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    assert!(node.admin().ok(&["version"]).unwrap().contains("linux/arm64"));
    assert!(node.admin().ok(&["get", "hostname"]).unwrap().contains(HOSTNAME));
    node.wait_services().unwrap();
    let volumes = node.admin().ok(&["get", "volumestatus"]).unwrap();
    for volume in ["STATE", "EPHEMERAL"] {
        assert!(volumes.lines().any(|line| line.contains(volume) && line.contains("ready")), "{volumes}");
    }
    // From the disk that it has become, with the config that it kept.
    node.admin().ok(&["reboot", "--wait=false"]).unwrap();
    node.vm().expect("machine config: taken from STATE", BOOT_LIMIT * 2).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
}
