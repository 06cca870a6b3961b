//! The node's own partitions: made on the first boot whatever cuts it off, kept, grown, reset.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use qemu_tests::artifacts::build;
use qemu_tests::credentials::Credentials;
use qemu_tests::node::{BOOT_LIMIT, NodeBuilder, Transport};
use qemu_tests::process::POLL_INTERVAL;
use qemu_tests::root::{copy_sparse, partition_offset};
use qemu_tests::{Bus, Drive, TestNode, VmBuilder, deadline, paths};
use serde_json::json;

pub(crate) const GIB: u64 = 1 << 30;
/// A first boot makes two file systems.
const FIRST_BOOT_LIMIT: Duration = Duration::from_secs(60);
/// Some gigabytes of zeros, most of them holes.
pub(crate) const RESET_LIMIT: Duration = Duration::from_secs(120);
pub(crate) const BOOTED: &str = "billet: boot sequence: done";
/// A disk beside the system's.
const OTHER_BYTES: u64 = 512 << 20;
/// A file in /var.
pub(crate) const KEPT: &str = "/var/kept";

/// An image as somebody flashes it to a disk of this size.
pub(crate) struct Disk {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) credentials: Credentials,
}

impl Disk {
    pub(crate) fn new(bytes: u64) -> Self {
        let dir = paths::temporary_dir().unwrap();
        let disk = Self { dir, credentials: Credentials::generate().unwrap() };
        copy_sparse(&build().test.disk, &disk.path()).unwrap();
        disk.resize(bytes);
        disk
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("disk.img")
    }

    pub(crate) fn resize(&self, bytes: u64) {
        File::options().write(true).open(self.path()).unwrap().set_len(bytes).unwrap();
    }

    pub(crate) fn node(&self, name: &str) -> NodeBuilder {
        TestNode::builder(name)
            .transport(Transport::Slot)
            .disk(&self.path())
            .credentials(self.credentials.clone())
    }

    /// What lies on the image now.
    pub(crate) fn bytes(&self, at: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        File::open(self.path()).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    pub(crate) fn offset(&self, partition: &str) -> Option<u64> {
        partition_offset(&File::open(self.path()).unwrap(), partition).ok()
    }
}

pub(crate) fn booted(node: &TestNode) {
    node.wait_api(BOOT_LIMIT).unwrap();
    node.vm().wait_for(BOOTED, FIRST_BOOT_LIMIT).unwrap();
}

pub(crate) fn wait_until(what: &str, on_reference: Duration, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + deadline(on_reference);
    while !is_so() {
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// What a power cut is to the node; what it wrote so far is in the image.
fn kill(node: TestNode) {
    let pid = node.vm().pid().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    wait_until("QEMU's end", BOOT_LIMIT, || node.vm().over().is_some());
}

pub(crate) fn shut_down(node: &TestNode) {
    node.admin().ok(&["shutdown", "--wait=false"]).unwrap();
    node.vm().wait_exit(FIRST_BOOT_LIMIT).unwrap();
}

fn size_of_var(node: &TestNode) -> f64 {
    let mounts = node.admin().ok(&["mounts"]).unwrap();
    let line = mounts.lines().find(|line| line.split_whitespace().any(|word| word == "/var"));
    let line = line.unwrap_or_else(|| panic!("/var is not mounted: {mounts}"));
    assert!(line.contains("/dev/vda6"), "{line}");
    line.split_whitespace().find_map(|word| word.parse::<f64>().ok()).unwrap()
}

#[test]
fn a_flashed_disk_gets_its_volumes_keeps_them_and_fills_a_larger_disk() {
    let disk = Disk::new(4 * GIB);
    let node = disk.node("volumes-first").start().unwrap();
    booted(&node);
    node.vm().wait_for("STATE was made on /dev/vda", BOOT_LIMIT).unwrap();
    node.vm().wait_for("EPHEMERAL was made on /dev/vda", BOOT_LIMIT).unwrap();
    let before = size_of_var(&node);
    let config = node.admin().ok(&["read", "/system/state/config.yaml"]).unwrap();
    let write = json!({ "op": "write", "path": KEPT, "text": "kept over a restart" });
    node.agent().unwrap().ask(write).unwrap();
    node.admin().ok(&["meta", "write", "0x0a", "a value"]).unwrap();
    assert!(node.admin().ok(&["get", "metakeys"]).unwrap().contains("a value"));
    let error = node.admin().refused(&["meta", "delete", "0x0b"]).unwrap();
    assert!(error.contains("META has no key 0x0b"), "{error}");
    shut_down(&node);
    drop(node);

    disk.resize(5 * GIB);
    // Neither a volume with a config nor a word of one: what there is comes from STATE.
    let node = disk.node("volumes-second").source("").no_config().start().unwrap();
    booted(&node);
    node.vm().wait_for("machine config: taken from STATE", BOOT_LIMIT).unwrap();
    node.vm().wait_for("EPHEMERAL: the disk has become larger: 1024 MiB more", BOOT_LIMIT).unwrap();
    assert_eq!(node.admin().ok(&["read", "/system/state/config.yaml"]).unwrap(), config);
    assert_eq!(node.agent().unwrap().read(KEPT).unwrap(), "kept over a restart");
    assert!(node.admin().ok(&["get", "metakeys"]).unwrap().contains("a value"));
    let after = size_of_var(&node);
    assert!(after > before + 0.9, "{before} GB, then {after} GB");
    assert!(!node.vm().console().text().contains("was made on"), "nothing is made twice");
}

#[test]
#[ignore = "long run"]
fn a_first_boot_that_is_cut_off_is_finished_by_the_next() {
    type Moment = fn(&Disk, &TestNode);
    let moments: [(&str, Moment); 4] = [
        ("table", |disk, _| {
            wait_until("STATE in the table", FIRST_BOOT_LIMIT, || disk.offset("STATE").is_some());
        }),
        ("superblock", |disk, _| {
            wait_until("a superblock of STATE", FIRST_BOOT_LIMIT, || {
                disk.offset("STATE").is_some_and(|at| disk.bytes(at, 4) == b"XFSB")
            });
        }),
        ("state", |_, node| node.vm().wait_for("STATE was made on", FIRST_BOOT_LIMIT).unwrap()),
        ("ephemeral", |disk, _| {
            wait_until("EPHEMERAL in the table", FIRST_BOOT_LIMIT, || disk.offset("EPHEMERAL").is_some());
        }),
    ];
    for (name, moment) in moments {
        let disk = Disk::new(4 * GIB);
        let node = disk.node(&format!("volumes-cut-{name}")).start().unwrap();
        moment(&disk, &node);
        kill(node);
        let node = disk.node(&format!("volumes-after-{name}")).start().unwrap();
        booted(&node);
        assert!(size_of_var(&node) > 1.0);
        let config = node.admin().ok(&["read", "/system/state/config.yaml"]).unwrap();
        assert_eq!(config, node.credentials().machine_config().unwrap(), "{name}");
    }
}

#[test]
fn further_disks_are_made_once_and_mounted() {
    const SECTION: &str = "  disks:\n    - device: /dev/nvme0n1\n      partitions:\n        - mountpoint: /var/mnt/a\n          \
        size: 600MB\n        - mountpoint: /var/mnt/b\n";
    const FILE: &str = "/var/mnt/b/kept";
    let disk = Disk::new(4 * GIB);
    let further = disk.dir.path().join("further.img");
    File::create(&further).unwrap().set_len(2 * GIB).unwrap();
    // One that nobody uses any more: the magic number of xfs, and data behind it.
    let spare = disk.dir.path().join("spare.img");
    std::fs::write(&spare, [b"XFSB".as_slice(), &[7; 8 << 20]].concat()).unwrap();
    let start = |name: &str| {
        let (image, spare) = (further.clone(), spare.clone());
        let node = disk.node(name).machine_section(SECTION);
        let add = move |vm: VmBuilder, _: &Path| {
            Ok(vm.drive(Drive::writable(&image, Bus::Nvme)).drive(Drive::writable(&spare, Bus::Sata)))
        };
        let node = node.machine(add).start().unwrap();
        booted(&node);
        node
    };
    let node = start("further-first");
    node.vm().wait_for("user disk /dev/nvme0n1: 2 partitions were made", BOOT_LIMIT).unwrap();
    let mounts = node.admin().ok(&["mounts"]).unwrap();
    for (device, target) in [("/dev/nvme0n1p1", "/var/mnt/a"), ("/dev/nvme0n1p2", "/var/mnt/b")] {
        let is_it = |line: &&str| line.contains(device) && line.ends_with(target);
        assert!(mounts.lines().any(|line| is_it(&line)), "{device} is not at {target}: {mounts}");
    }
    node.agent().unwrap().ask(json!({ "op": "write", "path": FILE, "text": "kept" })).unwrap();
    shut_down(&node);
    drop(node);
    let node = start("further-second");
    node.vm().wait_for("found existing partitions", BOOT_LIMIT).unwrap();
    assert_eq!(node.agent().unwrap().read(FILE).unwrap(), "kept");
    // What is in use stays; of the rest the signatures go, or every byte.
    for used in ["nvme0n1p1", "nvme0n1", "vda"] {
        let refused = node.admin().refused(&["wipe", "disk", used]).unwrap();
        assert!(refused.contains(used), "{refused}");
    }
    let content = || std::fs::read(&spare).unwrap();
    node.admin().ok(&["wipe", "disk", "sda"]).unwrap();
    assert!(content().starts_with(&[0; 4]) && content().contains(&7));
    node.admin().ok(&["wipe", "disk", "sda", "--method", "ZEROES"]).unwrap();
    assert!(content().iter().all(|byte| *byte == 0));
}

#[test]
#[ignore = "long run"]
fn what_somebody_else_put_there_is_left_alone() {
    let disk = Disk::new(4 * GIB);
    let node = disk.node("volumes-own").start().unwrap();
    booted(&node);
    shut_down(&node);
    drop(node);
    let at = disk.offset("STATE").unwrap();
    let foreign = vec![0x5a; 4096];
    let image = File::options().write(true).open(disk.path()).unwrap();
    image.write_all_at(&foreign, at).unwrap();
    // Without the parameter the machine is locked: it has a config that it cannot read.
    let node = disk.node("volumes-foreign").command_line("billet.maintenance=open").start().unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    node.vm().wait_for("STATE holds data of an unknown kind", BOOT_LIMIT).unwrap();
    assert_eq!(disk.bytes(at, foreign.len()), foreign);
    // It is up and can be reset.
    node.admin().ok(&["reset", "--system-labels-to-wipe", "STATE", "--reboot", "--wait=false"]).unwrap();
    node.vm().wait_for("reset: STATE of /dev/vda reads as zeros", RESET_LIMIT).unwrap();
    node.vm().wait_for("STATE on /dev/vda was empty: formatted", RESET_LIMIT).unwrap();
}

#[test]
fn a_reset_of_state_ends_in_maintenance_and_leaves_the_rest() {
    let disk = Disk::new(4 * GIB);
    let node = disk.node("reset-first").start().unwrap();
    booted(&node);
    let write = json!({ "op": "write", "path": KEPT, "text": "kept" });
    node.agent().unwrap().ask(write).unwrap();
    shut_down(&node);
    drop(node);

    let node = disk.node("reset-state").source("").no_config().start().unwrap();
    booted(&node);
    let error = node.admin().refused(&["reset", "--system-labels-to-wipe", "BIOS", "--wait=false"]).unwrap();
    assert!(error.contains("failed location partition with label \"BIOS\""), "{error}");
    let disks = ["reset", "--user-disks-to-wipe", "/dev/vda", "--wait=false"];
    let error = node.admin().refused(&disks).unwrap();
    assert!(error.contains("device /dev/vda is the system disk"), "{error}");
    node.admin().ok(&["reset", "--system-labels-to-wipe", "STATE", "--reboot", "--wait=false"]).unwrap();
    node.vm().wait_for("reset: STATE of /dev/vda reads as zeros", RESET_LIMIT).unwrap();
    node.vm().wait_for("STATE of /dev/vda is made once there is a machine config", RESET_LIMIT).unwrap();
    kill(node);
    let node = disk.node("reset-maintenance").source("").no_config().start().unwrap();
    node.vm().wait_for("maintenance mode: this machine has no configuration", FIRST_BOOT_LIMIT).unwrap();
    kill(node);

    let node = disk.node("reset-again").start().unwrap();
    booted(&node);
    assert_eq!(node.agent().unwrap().read(KEPT).unwrap(), "kept");
}

#[test]
#[ignore = "long run"]
fn a_reset_that_is_cut_off_goes_on_and_erases_the_whole_disk() {
    let disk = Disk::new(4 * GIB);
    let node = disk.node("reset-whole").start().unwrap();
    booted(&node);
    let (state, slot_b, esp) =
        (disk.offset("STATE").unwrap(), disk.offset("ROOT-B").unwrap(), disk.offset("EFI").unwrap());
    node.admin().ok(&["reset", "--wait=false"]).unwrap();
    node.vm().wait_for("reset: wiping EPHEMERAL of /dev/vda", RESET_LIMIT).unwrap();
    kill(node);
    assert!(disk.offset("STATE").is_some(), "the table goes last");

    let node = disk.node("reset-resumed").start().unwrap();
    node.vm().wait_for("a reset was cut off: going on with it", FIRST_BOOT_LIMIT).unwrap();
    // What was asked for: no restart.
    node.vm().wait_exit(RESET_LIMIT).unwrap();
    assert!(node.vm().console().text().contains("the whole disk of /dev/vda reads as zeros"));
    for at in [0, 512, state, slot_b, esp, 4 * GIB - 4096] {
        assert!(disk.bytes(at, 512).iter().all(|byte| *byte == 0), "byte {at}");
    }
}

#[test]
#[ignore = "long run"]
fn wiping_another_disk_is_gone_on_with_after_a_power_cut() {
    let disk = Disk::new(4 * GIB);
    let other = disk.dir.path().join("other.img");
    let data = File::create(&other).unwrap();
    data.set_len(OTHER_BYTES).unwrap();
    for at in [0, OTHER_BYTES / 2, OTHER_BYTES - 512] {
        data.write_all_at(&[0x5a; 512], at).unwrap();
    }
    // Behind the system disk and the config volume.
    let start = |name: &str| {
        let other = other.clone();
        let with_other = move |vm: VmBuilder, _: &Path| Ok(vm.drive(Drive::writable(&other, Bus::Virtio)));
        let node = disk.node(name).machine(with_other).start().unwrap();
        booted(&node);
        node
    };
    let node = start("wipe-other");
    let words = ["--wipe-mode", "user-disks", "--user-disks-to-wipe", "/dev/vdc", "--reboot", "--wait=false"];
    node.admin().ok(&[&["reset"][..], &words].concat()).unwrap();
    node.vm().wait_for("reset: wiping /dev/vdc, 512 MiB", RESET_LIMIT).unwrap();
    kill(node);

    let node = start("wipe-other-resumed");
    let log = node.vm().console().text();
    assert!(log.contains("the wiping of other disks was cut off: going on with it"), "{log}");
    assert!(log.contains("reset: /dev/vdc reads as zeros"), "{log}");
    shut_down(&node);
    let mut bytes = [0; 512];
    for at in [0, OTHER_BYTES / 2, OTHER_BYTES - 512] {
        data_at(&other, &mut bytes, at);
        assert_eq!(bytes, [0; 512], "byte {at}");
    }
    // The note is gone.
    let node = start("wipe-other-done");
    assert!(!node.vm().console().text().contains("wiping of other disks"));
    kill(node);
}

fn data_at(image: &Path, bytes: &mut [u8], at: u64) {
    File::open(image).unwrap().read_exact_at(bytes, at).unwrap();
}

#[test]
#[ignore = "long run"]
fn the_command_line_wipes_what_it_names() {
    let disk = Disk::new(4 * GIB);
    let node = disk.node("wipe-first").start().unwrap();
    booted(&node);
    shut_down(&node);
    drop(node);
    let line = "talos.experimental.wipe=system:STATE,EPHEMERAL";
    let node = disk.node("wipe-labels").command_line(line).start().unwrap();
    booted(&node);
    node.vm().wait_for("reset: EPHEMERAL of /dev/vda is unreadable: ", RESET_LIMIT).unwrap();
    node.vm().wait_for("reset: STATE of /dev/vda reads as zeros", RESET_LIMIT).unwrap();
    node.vm().wait_for("EPHEMERAL on /dev/vda was empty: formatted", BOOT_LIMIT).unwrap();
    assert_eq!(disk_kind(&disk.path(), disk.offset("STATE").unwrap()), b"XFSB");
}

fn disk_kind(image: &Path, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    data_at(image, &mut bytes, at);
    bytes
}
