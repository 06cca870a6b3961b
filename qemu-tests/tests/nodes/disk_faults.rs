//! Disks that fail, vanish or are there twice: a clear error, and what ran runs on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use installer::device::Disk;
use installer::esp::Esp;
use qemu_tests::artifacts::build;
use qemu_tests::installer_image::{Parts, Registry};
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::root::{copy_sparse, partition_offset};
use qemu_tests::{Bus, Drive, TestNode, Transport, paths};
use serde_json::json;

const UPGRADE_LIMIT: Duration = Duration::from_secs(120);
/// Everything that an installed disk has, and a little of EPHEMERAL.
const DISK_BYTES: u64 = 4 << 30;
const DONE: &str = "billet: boot sequence: done";

fn copy_of_the_build(directory: &Path, name: &str) -> PathBuf {
    let image = directory.join(name);
    copy_sparse(&build().test.disk, &image).unwrap();
    image
}

/// The names of the entries on a disk's ESP.
fn entries(image: &Path) -> Vec<String> {
    let offset = |name| partition_offset(&File::open(image).unwrap(), name).unwrap();
    let (start, end) = (offset("EFI"), offset("ROOT-A"));
    let mut disk = Disk::open_shared(image).unwrap();
    let entries = Esp::new(&mut disk, start, end - start).entries().unwrap();
    entries.iter().map(ToString::to_string).collect()
}

#[test]
#[ignore = "long run"]
fn a_bad_sector_in_the_other_slot_ends_an_upgrade_and_nothing_else() {
    let dir = paths::temporary_dir().unwrap();
    let image = copy_of_the_build(dir.path(), "disk.img");
    let slot = partition_offset(&File::open(&image).unwrap(), "ROOT-B").unwrap();
    let registry = Registry::start().unwrap();
    let good = registry.keep("0.2.0", &Parts::of_build().unwrap().image("0.2.0")).unwrap();
    let node = TestNode::builder("disk-bad-sector")
        .transport(Transport::Slot)
        .disk(&image)
        .bad_byte(slot + (20 << 20))
        .machine_section(&registry.machine_section())
        .boot()
        .unwrap();
    node.expect(DONE).unwrap();
    let words = ["upgrade", "--wait=false", "--image", &good];
    node.admin().ok_within(&words, UPGRADE_LIMIT).unwrap();
    node.vm().expect("upgrade: write: 10 %", UPGRADE_LIMIT).unwrap();
    let failed = node.vm().expect("of /dev/vda: Input/output error", UPGRADE_LIMIT).unwrap();
    assert!(failed.contains("billet: machined: "), "{failed}");
    node.answers(BOOT_LIMIT).unwrap();
    let status = node.admin().ok(&["get", "upgradestatus", "-o", "yaml"]).unwrap();
    assert!(
        status.contains("state: failed") && status.contains("of /dev/vda: Input/output error"),
        "{status}"
    );
    assert!(node.admin().ok(&["version"]).unwrap().contains(&build().version));
    // Nothing that the loader could try.
    assert_eq!(entries(&image), ["billet-000001.efi"]);
}

#[test]
#[ignore = "long run"]
fn a_second_disk_with_our_partitions_is_left_alone_and_a_clone_refused() {
    let dir = paths::temporary_dir().unwrap();
    let (image, other) =
        (copy_of_the_build(dir.path(), "disk.img"), copy_of_the_build(dir.path(), "other.img"));
    // Room for STATE.
    File::options().write(true).open(&image).unwrap().set_len(DISK_BYTES).unwrap();
    let start = |name: &str| {
        let other = other.clone();
        TestNode::builder(name)
            .transport(Transport::Firmware)
            .disk(&image)
            .machine(move |vm, _| Ok(vm.drive(Drive::writable(&other, Bus::Sata))))
            .start()
            .unwrap()
    };
    // The very same GUIDs: nobody can tell which of them the loader ran from.
    let node = start("disk-clone");
    let line = "all hold these layers; remove the wrong ones";
    node.vm().expect(line, BOOT_LIMIT).unwrap();
    drop(node);
    let status = Command::new("sgdisk").arg("--randomize-guids").arg(&other).output().unwrap().status;
    assert!(status.success(), "sgdisk ended with {status}");
    let before = dir.path().join("before.img");
    copy_sparse(&other, &before).unwrap();
    let node = start("disk-two");
    node.wait_api(BOOT_LIMIT).unwrap();
    node.vm().wait_for("STATE was made on /dev/vda", BOOT_LIMIT).unwrap();
    node.vm().wait_for(DONE, BOOT_LIMIT).unwrap();
    assert!(node.admin().ok(&["get", "systemdisk"]).unwrap().contains("vda"));
    drop(node);
    let same = Command::new("cmp").args([&before, &other]).status().unwrap();
    assert!(same.success(), "the other disk was written to");
}

#[test]
#[ignore = "long run"]
fn a_disk_that_is_pulled_out_while_it_is_installed_to_is_named_and_may_come_back() {
    let node = TestNode::builder("disk-pulled")
        .installs()
        .source("")
        .no_config()
        .machine(|vm, dir| {
            let image = dir.join("disk.img");
            File::create(&image)?.set_len(DISK_BYTES)?;
            Ok(vm.drive(Drive::writable(&image, Bus::Usb)))
        })
        .start()
        .unwrap();
    node.wait_maintenance().unwrap();
    // Its driver is loaded from the root, as the last of all.
    node.vm().wait_for("[sda] Attached SCSI disk", BOOT_LIMIT).unwrap();
    let config = node.credentials().machine_config().unwrap();
    let applied = node.apply_in_maintenance(&config).unwrap();
    assert!(applied.success, "{}", applied.stderr);
    node.vm().expect("install: write 10 %", UPGRADE_LIMIT).unwrap();
    node.vm().qmp().execute("device_del", json!({ "id": "device0" })).unwrap();
    node.vm().expect("the disk /dev/sda is gone", UPGRADE_LIMIT).unwrap();
    // It runs from its initramfs, and goes on to.
    node.answers(BOOT_LIMIT).unwrap();
    let file = json!({ "driver": "file", "filename": node.files().join("disk.img") });
    let image = json!({ "driver": "raw", "node-name": "again", "file": file });
    node.vm().qmp().execute("blockdev-add", image).unwrap();
    let device = json!({ "driver": "usb-storage", "id": "back", "drive": "again" });
    node.vm().qmp().execute("device_add", device).unwrap();
    node.vm().expect("installed Billet ", UPGRADE_LIMIT).unwrap();
}
