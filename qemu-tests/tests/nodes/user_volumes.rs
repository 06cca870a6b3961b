//! docs/users/disks.md, "Volumes on other disks": chosen by an expression, encrypted, kept; nothing is written over.

use std::fs::File;
use std::path::{Path, PathBuf};

use qemu_tests::node::{BOOT_LIMIT, NodeBuilder};
use qemu_tests::{Bus, Drive, VmBuilder};
use serde_json::json;

use crate::encryption::{BOOT, MACHINE, apply, on, opens_on};
use crate::volumes::{BOOTED, Disk, GIB, shut_down};

/// One that is encrypted, one without a file system beside it, one whose disk holds something.
const DOCUMENTS: &str = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning:\n  diskSelector: \
    {match: 'disk.transport == \"nvme\" && !system_disk'}\n  minSize: 400MiB\n  maxSize: 600MiB\nencryption: {provider: \
    luks2, keys: [{nodeID: {}, slot: 0}]}\n---\napiVersion: v1alpha1\nkind: RawVolumeConfig\nname: ceph\nprovisioning: \
    {diskSelector: {match: 'disk.size < 3u * GiB && disk.transport == \"nvme\"'}, minSize: 100MiB}\n---\napiVersion: \
    v1alpha1\nkind: UserVolumeConfig\nname: other\nprovisioning: {diskSelector: {match: 'disk.transport == \"sata\"'}, \
    minSize: 350MiB}\n";
/// What means the system's disk and no other.
const WRONG: &str = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: wrong\nprovisioning: {diskSelector: {match: \
    system_disk}, minSize: 1GiB}\n";
const FILE: &str = "/var/mnt/data/kept";
const FOREIGN: &[u8] = b"somebody's data";

struct Disks {
    disk: Disk,
    empty: PathBuf,
    foreign: PathBuf,
}

impl Disks {
    fn new() -> Self {
        let disk = Disk::new(4 * GIB);
        let image = |name: &str, bytes: u64| {
            let path = disk.dir.path().join(name);
            File::create(&path).unwrap().set_len(bytes).unwrap();
            path
        };
        let (empty, foreign) = (image("disks.img", 2 * GIB), image("foreign.img", GIB));
        let file = File::options().write(true).open(&foreign).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, FOREIGN, 4096).unwrap();
        Self { disk, empty, foreign }
    }

    fn node(&self, name: &str) -> NodeBuilder {
        let (empty, foreign) = (self.empty.clone(), self.foreign.clone());
        on(&self.disk, name, MACHINE).machine(move |vm: VmBuilder, _: &Path| {
            Ok(vm.drive(Drive::writable(&empty, Bus::Nvme)).drive(Drive::writable(&foreign, Bus::Sata)))
        })
    }
}

#[test]
#[ignore = "long run"]
fn a_volume_on_another_disk_is_encrypted_and_kept() {
    let disks = Disks::new();
    let node = disks.node("user-volumes-first").documents(DOCUMENTS).start().unwrap();
    node.wait_api(BOOT).unwrap();
    for line in [
        "u-data was made on /dev/nvme0n1",
        "u-data is encrypted, opened by the nodeID key in slot 0",
        "u-data is /dev/mapper/luks2-u-data, mounted at /var/mnt/data",
        "r-ceph is /dev/nvme0n1p2",
        "u-other: no disk takes it: /dev/sda",
        BOOTED,
    ] {
        node.vm().wait_for(line, BOOT).unwrap();
    }
    let mounts = node.admin().ok(&["read", "/proc/mounts"]).unwrap();
    let line = mounts.lines().find(|line| line.starts_with("/dev/mapper/luks2-u-data /var/mnt/data xfs "));
    let line = line.unwrap_or_else(|| panic!("it is not mounted: {mounts}"));
    assert!(["nosuid", "nodev", "noexec"].iter().all(|option| line.contains(option)), "{line}");
    let status = node.admin().ok(&["get", "volumestatus", "-o", "yaml"]).unwrap();
    for text in ["id: u-data", "id: r-ceph", "id: u-other", "encryptionProvider: luks2", "filesystem: none"] {
        assert!(status.contains(text), "{text}: {status}");
    }
    node.agent().unwrap().ask(json!({ "op": "write", "path": FILE, "text": "kept" })).unwrap();

    let config = disks.disk.credentials.machine_config().unwrap();
    let refused = apply(&node, &format!("{config}---\n{DOCUMENTS}---\n{WRONG}"), "auto").unwrap_err();
    assert!(refused.contains("u-wrong: its diskSelector means the system disk alone"), "{refused}");
    let plain = DOCUMENTS.replace("encryption: {provider: luks2, keys: [{nodeID: {}, slot: 0}]}\n", "");
    assert_ne!(plain, DOCUMENTS);
    let refused = apply(&node, &format!("{config}---\n{plain}"), "auto").unwrap_err();
    assert!(refused.contains("u-data is encrypted, and there is no in-place decryption"), "{refused}");
    let refused = node.admin().refused(&["wipe", "disk", "nvme0n1p2"]).unwrap();
    assert!(refused.contains("the configuration wants r-ceph"), "{refused}");
    shut_down(&node);
    drop(node);

    assert!(opens_on(&disks.empty, "u-data", 0, &format!("{MACHINE}u-data")));
    assert!(!opens_on(&disks.empty, "u-data", 0, &format!("{MACHINE}EPHEMERAL")));
    let mut held = vec![0; FOREIGN.len()];
    let file = File::open(&disks.foreign).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut held, 4096).unwrap();
    assert_eq!(held, FOREIGN);

    let node = disks.node("user-volumes-again").source("").no_config().start().unwrap();
    node.wait_api(BOOT).unwrap();
    node.vm().wait_for("u-data is /dev/mapper/luks2-u-data, mounted at /var/mnt/data", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT_LIMIT).unwrap();
    assert_eq!(node.agent().unwrap().read(FILE).unwrap(), "kept");
    assert!(!node.vm().console().text().contains("was made on"), "nothing is made twice");
}
