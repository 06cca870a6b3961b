//! docs/users/kernels.md: a kernel that a person puts in with its modules starts a node; so does the hardened one that was
//! compiled from source, in the build's own image and where a person puts it in. Debian's starts the nodes of all other tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use ondisk::manifest::RootManifest;
use qemu_tests::TestNode;
use qemu_tests::artifacts::{self, Build, build};
use qemu_tests::node::{BOOT_LIMIT, Transport};
use qemu_tests::root::Root;

use crate::encryption::{BOOT, MACHINE, node_id, section};
use crate::images::{built_kernel, flashed};

/// Whoever compiles kernels for other machines has the options for these, and no list of modules.
const HARDENING: [(&str, &str); 3] = [
    ("/proc/sys/kernel/kptr_restrict", "2"),
    ("/proc/sys/kernel/dmesg_restrict", "1"),
    ("/proc/sys/kernel/unprivileged_bpf_disabled", "1"),
];

/// A disk image of the build with these changes.
fn with_kernel(directory: &Path, flags: &[&Path]) -> PathBuf {
    let made = Command::new(&build().billetctl)
        .args(["image", "build", "--kind", "disk", "--from"])
        .arg(&build().test.installer)
        .args(flags)
        .arg("--output")
        .arg(directory)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    directory.join("metal-amd64.raw")
}

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

/// The build's own, as its makers install it, with a file that tells its directory from the image's: initramfs and kernel layer are
/// made of that directory, and modules load from both.
#[test]
#[ignore = "long run"]
fn a_persons_own_with_modules_starts_a_node() {
    let directory = tempfile::tempdir().unwrap();
    let own = built_kernel(directory.path());
    let release = &build().kernel_release;
    std::fs::write(own.join("lib/modules").join(release).join("whose"), "a person's\n").unwrap();
    let [path, modules] = ["--kernel-path", "--kernel-modules"].map(Path::new);
    let image = with_kernel(directory.path(), &[path, &own.join("boot/vmlinuz"), modules, &own]);
    let disk = flashed(&image, 5 << 30);
    let node =
        TestNode::builder("kernel-own-modules").transport(Transport::Firmware).disk(&disk).boot().unwrap();
    node.vm().wait_for("STATE was made on /dev/vda", BOOT_LIMIT).unwrap();
    let read = |path: &str| node.admin().ok(&["read", path]).unwrap();
    assert_eq!(read("/proc/sys/kernel/osrelease").trim(), release);
    assert_eq!(read(&format!("/usr/lib/modules/{release}/whose")), "a person's\n");
    let running = RootManifest::parse(read("/run/billet/root.json").as_bytes()).unwrap();
    let built = Root::built_manifest().unwrap();
    let kernel = |manifest: &RootManifest| manifest.kernel().unwrap().root_hash;
    assert_ne!(kernel(&running), kernel(&built), "the kernel layer is made of the directory");
    // init needs the one to mount a root, machined the other for STATE, which the initramfs does not have.
    let loaded = read("/proc/modules");
    let is_loaded = |name: &str| loaded.lines().any(|line| line.split(' ').next() == Some(name));
    assert!(is_loaded("dm_verity") && is_loaded("xfs"), "{loaded}");
}

#[test]
#[ignore = "long run"]
fn the_hardened_one_opens_volumes_and_keeps_them() {
    let hardened = artifacts::hardened().unwrap();
    assert_ne!(hardened.kernel_release, build().kernel_release);
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk.raw");
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
    let directory = tempfile::tempdir().unwrap();
    let [remove, modules, path] = ["--remove", "/lib/modules", "--kernel-path"].map(Path::new);
    let image = with_kernel(directory.path(), &[remove, modules, path, &hardened.vmlinuz]);
    let disk = flashed(&image, 5 << 30);
    let node = boots("kernel-own", &disk, &hardened);
    let listed = node.admin().ok(&["list", "/usr/lib/modules"]).unwrap();
    assert!(!listed.contains("6."), "{listed}");
}

/// A kernel that does not look at Secure Boot is locked down by the command line of a signed image.
#[test]
#[ignore = "long run"]
fn the_hardened_one_is_locked_down_in_a_signed_image() {
    let hardened = artifacts::hardened().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (key, certificate) = (directory.path().join("key.pem"), directory.path().join("certificate.pem"));
    let made = Command::new("openssl")
        .args(["req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=owner", "-days", "1"])
        .args([Path::new("-keyout"), &key, Path::new("-out"), &certificate])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let [remove, modules, path] = ["--remove", "/lib/modules", "--kernel-path"].map(Path::new);
    let [sign_key, sign_certificate] = ["--sign-key", "--sign-certificate"].map(Path::new);
    let flags = [remove, modules, path, &hardened.vmlinuz, sign_key, &key, sign_certificate, &certificate];
    let disk = flashed(&with_kernel(directory.path(), &flags), 5 << 30);
    let node = boots("kernel-locked-down", &disk, &hardened);
    let lockdown = node.admin().ok(&["read", "/sys/kernel/security/lockdown"]).unwrap();
    assert_eq!(lockdown.trim(), "none [integrity] confidentiality");
}
