//! Data of others with a LUKS2 header left over in it: refused by name, and not a byte of it changes.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use qemu_tests::root::{copy_sparse, partition_offset};
use qemu_tests::{Bus, Drive, TestNode, VmBuilder};

use crate::encryption::{BOOT, MACHINE, on};
use crate::install::installing;
use crate::volumes::{BOOTED, Disk, GIB, shut_down};

/// One that is to be encrypted, with the key that its second header was made with.
const DOCUMENTS: &str = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: \
    'disk.transport == \"nvme\"'}, minSize: 400MiB}\nencryption: {provider: luks2, keys: [{nodeID: {}, slot: 0}]}\n";
/// The label of a physical volume as pvcreate (lvm2 2.03) wrote it to its second sector.
const LABEL: [&str; 9] = [
    "4c4142454c4f4e450100000000000000",
    "8fe8cdce200000004c564d3220303031",
    "7a4c634368723665376942746f575043",
    "324a6a78554f63505a33444d6633667a",
    "00008000000000000000100000000000",
    "00000000000000000000000000000000",
    "00000000000000000010000000000000",
    "00f00f00000000000000000000000000",
    "00000000000000000200000000000000",
];
const CONTRADICTION: &str = "LVM2_member at byte 512 and crypto_LUKS at byte 16384 at once";

/// A file that cryptsetup encrypted with this machine's key, and LVM took afterwards.
fn physical_volume(path: &Path, bytes: u64) {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
    let mut child = Command::new("cryptsetup")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .args([
            "luksFormat",
            "-q",
            "--type",
            "luks2",
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
        ])
        .args(["--key-file", "-"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{MACHINE}u-data").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    file.write_all_at(&[0; 4096], 0).unwrap();
    for (at, row) in (512..).step_by(16).zip(LABEL) {
        let row: Vec<u8> = (0..16).map(|i| u8::from_str_radix(&row[i * 2..i * 2 + 2], 16).unwrap()).collect();
        file.write_all_at(&row, at).unwrap();
    }
    let known =
        Command::new("blkid").env("PATH", "/usr/sbin:/sbin:/usr/bin").arg("-p").arg(path).output().unwrap();
    let known = String::from_utf8_lossy(&known.stdout).into_owned();
    assert!(known.contains("TYPE=\"LVM2_member\""), "{known}");
}

fn is_same(one: &Path, other: &Path) -> bool {
    Command::new("cmp").args([one, other]).status().unwrap().success()
}

#[test]
fn a_physical_volume_with_an_old_header_is_no_encrypted_volume() {
    let disk = Disk::new(4 * GIB);
    let path = |name: &str| disk.dir.path().join(name);
    let (foreign, before, volume) = (path("foreign.img"), path("before.img"), path("volume.img"));
    File::create(&foreign).unwrap().set_len(GIB).unwrap();
    let made =
        Command::new("sgdisk").args(["-n", "1:0:+500M", "-c", "1:u-data"]).arg(&foreign).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    physical_volume(&volume, 500 << 20);
    // All that is not zero of it.
    let mut start = vec![0; 17 << 20];
    File::open(&volume).unwrap().read_exact_at(&mut start, 0).unwrap();
    let file = File::options().read(true).write(true).open(&foreign).unwrap();
    file.write_all_at(&start, partition_offset(&file, "u-data").unwrap()).unwrap();
    copy_sparse(&foreign, &before).unwrap();
    let drive = foreign.clone();
    let node = on(&disk, "foreign-volume", MACHINE)
        .machine(move |vm: VmBuilder, _: &Path| Ok(vm.drive(Drive::writable(&drive, Bus::Nvme))))
        .documents(DOCUMENTS)
        .start()
        .unwrap();
    node.wait_api(BOOT).unwrap();
    node.vm().wait_for(&format!("u-data holds {CONTRADICTION}"), BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    let status = node.admin().ok(&["get", "volumestatus", "u-data", "-o", "yaml"]).unwrap();
    assert!(status.contains(CONTRADICTION), "{status}");
    shut_down(&node);
    drop(node);
    assert!(is_same(&foreign, &before), "the disk was written to");
}

#[test]
#[ignore = "long run"]
fn a_disk_of_lvm_with_an_old_header_is_not_installed_to() {
    let node = TestNode::builder("foreign-disk")
        .installs()
        .source("")
        .no_config()
        .machine(|vm, dir| {
            let disk = dir.join("disk.img");
            physical_volume(&disk, 4 * GIB);
            copy_sparse(&disk, &dir.join("before.img"))?;
            Ok(vm.drive(Drive::writable(&disk, Bus::Sata)))
        })
        .start()
        .unwrap();
    node.wait_maintenance().unwrap();
    let config = installing(&node.credentials().machine_config().unwrap(), &["disk: /dev/sda"]);
    let answer = node.apply_in_maintenance(&config).unwrap();
    assert!(!answer.success, "{}", answer.stderr);
    let expected = format!("it holds {CONTRADICTION}: machine.install.wipe: true has it erased");
    assert!(answer.stderr.contains(&expected), "{}", answer.stderr);
    let (disk, before) = (node.files().join("disk.img"), node.files().join("before.img"));
    assert!(is_same(&disk, &before), "the disk was written to");
}
