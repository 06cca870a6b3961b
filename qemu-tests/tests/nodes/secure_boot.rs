//! docs/users/secure-boot.md: a signed disk or medium enrols its key and starts, installs and is upgraded to what is signed;
//! what was altered, or what nobody signed, does not start and is not written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use installer::boot_volume::loader_path;
use installer::image::UKI_PATH;
use oci::archive;
use ondisk::Architecture;
use ondisk::pe::Image;
use qemu_tests::artifacts::build;
use qemu_tests::emulated::NO_TIMER_CHECK;
use qemu_tests::installer_image::{Parts, Registry};
use qemu_tests::node::{BOOT_LIMIT, NodeBuilder};
use qemu_tests::process::POLL_INTERVAL;
use qemu_tests::root::{copy_sparse, partition_offset};
use qemu_tests::{Bus, Drive, TestNode, Transport, deadline, paths};

use crate::install::{INSTALL_LIMIT, with_blank};
use crate::upgrade::{UPGRADE_LIMIT, expect_kept, rolls_back, upgrade};

/// Enrolling, a restart, and a boot under system management mode, which an emulator is slow at.
const ENROL_LIMIT: Duration = Duration::from_secs(60);
/// What the kernel says when firmware checked it.
const SECURE: &str = "secureboot: Secure boot enabled";
/// How the page has disks and ISOs made, once there is a key; on machines that ask nobody.
const SIGNED: &str = "--sign-key owner.pem --sign-certificate owner-certificate.pem --enrol-keys keys --enrol force \
    --extra-kernel-arg";
/// How a file is signed by hand.
const KEY: &str = "--signing-key owner.pem --signing-certificate owner-certificate.pem";
/// What `image build` calls what it makes.
const DISK: &str = "metal-amd64.raw";
const ISO: &str = "metal-amd64.iso";
const INSTALLER: &str = "installer-amd64.tar";
/// A file that was taken out of one.
const COPIED: &str = "copied.efi";

/// Who owns machines: a directory with the key, and with what is made and signed there.
struct Owner(tempfile::TempDir);

impl Owner {
    /// Makes the key, and what enrols it.
    fn new() -> Self {
        let owner = Self(paths::temporary_dir().unwrap());
        owner.key("owner");
        owner.billetctl(&format!("gen secureboot database {KEY} --output keys"));
        owner
    }

    /// The same, with this form of the test image, signed.
    fn with(kind: &str) -> Self {
        let owner = Self::new();
        owner.build(kind);
        owner
    }

    /// Makes this form of the test image, signed; more flags may be behind it.
    fn build(&self, kind: &str) {
        let from = build().test.installer.display();
        self.billetctl(&format!("image build --from {from} {SIGNED} {NO_TIMER_CHECK} --kind {kind}"));
    }

    /// Makes an addon with this name, which adds `billet.addon=NAME`, signed with this key.
    fn addon(&self, name: &str, key: &str) -> PathBuf {
        let key = format!("--signing-key {key}.pem --signing-certificate {key}-certificate.pem");
        let words = format!("--extra-kernel-arg billet.addon={name} {name}.addon.efi");
        self.billetctl(&format!("gen secureboot addon {key} {words}"));
        self.path(&format!("{name}.addon.efi"))
    }

    /// Makes a key with its certificate.
    fn key(&self, name: &str) {
        let files = format!("-keyout {name}.pem -out {name}-certificate.pem");
        let words = format!("req -new -x509 -newkey rsa:2048 -nodes -subj /CN={name} -days 1 {files}");
        self.run(Path::new("openssl"), &words);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A disk that starts like the signed one, and may be spoiled.
    fn copy_of_disk(&self, name: &str) -> PathBuf {
        let copy = self.path(name);
        copy_sparse(&self.path(DISK), &copy).unwrap();
        copy
    }

    fn billetctl(&self, words: &str) {
        self.run(&build().billetctl, words);
    }

    fn run(&self, program: &Path, words: &str) {
        let ran = Command::new(program).current_dir(self.0.path()).args(words.split(' ')).output().unwrap();
        let said = [ran.stdout, ran.stderr].concat();
        assert!(ran.status.success(), "{words}: {}", String::from_utf8_lossy(&said));
    }

    /// Changes a file for firmware on a disk or medium that was made already.
    fn alter(&self, image: &Path, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut content = self.copied(image, path);
        change(&mut content);
        fs::write(self.path(COPIED), content).unwrap();
        self.run(Path::new("mcopy"), &format!("-o -i {} {COPIED} ::{path}", efi(image)));
    }

    /// A file for firmware, which sbverify is asked about.
    fn verified(&self, image: &Path, path: &str) -> Vec<u8> {
        let content = self.copied(image, path);
        self.run(Path::new("sbverify"), &format!("--cert owner-certificate.pem {COPIED}"));
        content
    }

    fn copied(&self, image: &Path, path: &str) -> Vec<u8> {
        self.run(Path::new("mcopy"), &format!("-o -i {} ::{path} {COPIED}", efi(image)));
        fs::read(self.path(COPIED)).unwrap()
    }
}

/// The volume for firmware of a disk or medium, as mtools call it.
fn efi(image: &Path) -> String {
    let start = partition_offset(&File::open(image).unwrap(), "EFI").unwrap();
    format!("{}@@{start}", image.display())
}

/// Changes a byte in the middle of a section.
fn flip(program: &mut [u8], section: &str) {
    let found = Image::parse(program).unwrap().sections().iter().find(|found| found.name == section).copied();
    let found = found.map(|found| (found.file_offset, found.virtual_bytes)).unwrap();
    let at = usize::try_from(found.0 + found.1 / 2).unwrap();
    program[at] ^= 1;
}

/// A machine that nobody's key is enrolled on, with this disk.
fn machine(name: &str, disk: &Path) -> NodeBuilder {
    TestNode::builder(name).transport(Transport::SetupMode).disk(disk)
}

/// Such a machine with this medium in its CD drive.
fn machine_with_cd(name: &str, iso: PathBuf) -> NodeBuilder {
    TestNode::builder(name)
        .transport(Transport::Network)
        .machine(move |vm, _| Ok(vm.drive(Drive::new(&iso, Bus::Cdrom)).setup_mode()))
}

/// Firmware or loader refuses it by these words, and no kernel starts.
fn expect_refused(node: &TestNode, words: &str) {
    node.vm().expect(words, ENROL_LIMIT).unwrap();
    let text = node.vm().console().text();
    assert!(!text.contains("Linux version"), "the kernel started:\n{text}");
}

/// The node says how it was started, once the drivers of its devices are there.
fn expect_told(node: &TestNode) {
    let end = Instant::now() + deadline(BOOT_LIMIT);
    loop {
        let state = node.admin().ok(&["get", "securitystate", "-o", "yaml"]).unwrap();
        if state.contains("secureBoot: true") && state.contains("bootedWithUKI: true") {
            return;
        }
        assert!(Instant::now() < end, "{state}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn a_signed_disk_enrols_its_key_and_starts() {
    let owner = Owner::with("disk");
    let disk = owner.path(DISK);
    let uki = owner.verified(&disk, UKI_PATH);
    owner.verified(&disk, loader_path(Architecture::OWN));
    // Who signs a file by hand gets the same one.
    fs::write(owner.path("by-hand.efi"), Image::parse(&uki).unwrap().without_signatures().unwrap()).unwrap();
    owner.billetctl(&format!("gen secureboot sign {KEY} by-hand.efi"));
    assert!(fs::read(owner.path("by-hand.efi")).unwrap() == uki);
    let node = machine("secure-boot", &disk).start().unwrap();
    node.vm().expect(SECURE, ENROL_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    // By the image's command line, not by what Debian's kernel does alone.
    let lockdown = node.admin().ok(&["read", "/sys/kernel/security/lockdown"]).unwrap();
    assert_eq!(lockdown.trim(), "none [integrity] confidentiality");
    node.vm().wait_for("Kernel is locked down from command line", BOOT_LIMIT).unwrap();
    let layers = node.admin().ok(&["get", "rootlayers"]).unwrap();
    assert!(layers.contains("kernel"), "{layers}");
    expect_told(&node);
}

/// The UKI's kernel, its command line, its initramfs; and a layer, which is no file of the firmware's.
#[test]
#[ignore = "long run"]
fn what_was_altered_does_not_start() {
    let owner = Owner::with("disk");
    for section in [".linux", ".cmdline", ".initrd"] {
        let disk = owner.copy_of_disk("altered.raw");
        owner.alter(&disk, UKI_PATH, |uki| flip(uki, section));
        let node = machine(&format!("secure-boot{}", section.replace('.', "-")), &disk).start().unwrap();
        expect_refused(&node, "Access denied");
    }
    // init finds out, from the manifest in the signed UKI.
    let disk = owner.copy_of_disk("altered.raw");
    let file = File::options().read(true).write(true).open(&disk).unwrap();
    let at = partition_offset(&file, "ROOT-A").unwrap();
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, at).unwrap();
    block[100] ^= 1;
    file.write_all_at(&block, at).unwrap();
    let node = machine("secure-boot-layer", &disk).start().unwrap();
    node.vm().expect(SECURE, ENROL_LIMIT).unwrap();
    node.vm().expect("layer base: data block 0 is corrupt", BOOT_LIMIT).unwrap();
}

/// An image that nobody signed, on a machine whose key is enrolled.
#[test]
#[ignore = "long run"]
fn what_nobody_signed_does_not_start() {
    let owner = Owner::with("disk");
    let disk = owner.path(DISK);
    owner.alter(&disk, UKI_PATH, |uki| *uki = Image::parse(uki).unwrap().without_signatures().unwrap());
    expect_refused(&machine("secure-boot-unsigned", &disk).start().unwrap(), "Access denied");
}

/// Arguments beside the UKI: what the owner signed counts. What nobody signed, what somebody else signed and what was changed
/// since is passed over, and the machine starts.
#[test]
#[ignore = "long run"]
fn addons_count_if_the_owner_signed_them() {
    let owner = Owner::new();
    owner.key("stranger");
    owner.addon("owners", "owner");
    owner.build("disk --addon owners.addon.efi");
    let disk = owner.path(DISK);
    owner.addon("strangers", "stranger");
    let rewrite = |path: &Path, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        fs::write(path, change(fs::read(path).unwrap())).unwrap();
    };
    rewrite(&owner.addon("nobodys", "owner"), &|addon| {
        Image::parse(&addon).unwrap().without_signatures().unwrap()
    });
    rewrite(&owner.addon("altered", "owner"), &|mut addon| {
        flip(&mut addon, ".cmdline");
        addon
    });
    for name in ["strangers", "nobodys", "altered"] {
        let words = format!("-i {} {name}.addon.efi ::loader/addons/{name}.addon.efi", efi(&disk));
        owner.run(Path::new("mcopy"), &words);
    }
    let node = machine("secure-boot-addons", &disk).start().unwrap();
    node.vm().expect(SECURE, ENROL_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    let line = node.admin().ok(&["read", "/proc/cmdline"]).unwrap();
    assert!(line.contains(NO_TIMER_CHECK) && line.contains("billet.addon=owners"), "{line}");
    for name in ["=strangers", "=nobodys", "=altered"] {
        assert!(!line.contains(name), "{line}");
    }
}

/// Refused before the first write, with the command that signs it; what that command makes is tried, kept, and left again
/// by a rollback, each under Secure Boot.
#[test]
#[ignore = "long run"]
fn a_node_is_upgraded_to_what_is_signed_only() {
    let owner = Owner::with("disk");
    let mut parts = Parts::of_build().unwrap();
    parts.add_arguments(NO_TIMER_CHECK).unwrap();
    let newer = owner.path("newer.tar");
    archive::write(&mut File::create(&newer).unwrap(), &parts.image("0.2.0")).unwrap();
    let registry = Registry::start().unwrap();
    let unsigned = registry.serve("billet/installer", "unsigned", &newer).unwrap();
    let disk = owner.path(DISK);
    let node = machine("secure-boot-upgrade", &disk).machine_section(&registry.machine_section());
    let node = node.start().unwrap();
    node.vm().expect(SECURE, ENROL_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    node.vm().expect("billet: boot sequence: done", BOOT_LIMIT).unwrap();

    let before = owner.copy_of_disk("before.raw");
    let words = ["upgrade", "--wait=false", "--image", &unsigned];
    let refused = node.admin().refused_within(&words, UPGRADE_LIMIT).unwrap();
    assert!(refused.contains("this machine starts with Secure Boot and would not start"), "{refused}");
    assert!(
        refused.contains("it has no signed UKI: sign the image with `billetctl image build"),
        "{refused}"
    );
    for (from, to) in [("EFI", "ROOT-A"), ("ROOT-B", "META")] {
        let at = |name| partition_offset(&File::open(&disk).unwrap(), name).unwrap();
        let range = format!("--ignore-initial={} --bytes={}", at(from), at(to) - at(from));
        owner.run(Path::new("cmp"), &format!("{range} {DISK} {}", before.display()));
    }

    let command = refused.split('`').nth(1).unwrap().strip_prefix("billetctl ").unwrap();
    let command = command.replace("IMAGE", "newer.tar").replace("KEY", "owner.pem");
    owner.billetctl(&command.replace("CERTIFICATE", "owner-certificate.pem"));
    let signed = registry.serve("billet/installer", "signed", &owner.path(INSTALLER)).unwrap();
    upgrade(&node, &signed, &[]);
    node.vm().expect("billet-000002+3.efi will be tried", UPGRADE_LIMIT).unwrap();
    node.vm().expect(SECURE, UPGRADE_LIMIT + BOOT_LIMIT).unwrap();
    expect_kept(&node, "0.2.0", "billet-000002.efi");
    rolls_back(&node, &build().version, "billet-000003.efi");
    let text = node.vm().console().text();
    assert_eq!(text.matches(SECURE).count(), 3, "a start was not checked:\n{text}");
}

/// The medium enrols the key and starts by its loader; what it installs to a blank disk is what it was started from.
#[test]
#[ignore = "long run"]
fn a_signed_iso_starts_and_installs_a_disk_that_does() {
    let owner = Owner::new();
    owner.addon("owners", "owner");
    owner.build("iso --addon owners.addon.efi");
    let node = machine_with_cd("secure-boot-iso", owner.path(ISO));
    // No order: a blank disk is passed by, and what is installed has an entry of the firmware's.
    let node = node.machine(|vm, dir| Ok(with_blank(vm, dir))).start().unwrap();
    node.vm().expect(SECURE, ENROL_LIMIT).unwrap();
    node.vm().expect("root from /dev/sr0 (label BILLET)", BOOT_LIMIT).unwrap();
    node.vm().expect("installed Billet ", INSTALL_LIMIT).unwrap();
    node.vm().expect(SECURE, INSTALL_LIMIT).unwrap();
    node.vm().expect("root from /dev/sda2 (ROOT-A)", BOOT_LIMIT).unwrap();
    node.vm().expect("machine config: taken from STATE", BOOT_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    expect_told(&node);
    // What the firmware checked: of the medium, and of the disk.
    let (iso, disk) = (owner.path(ISO), node.files().join("disk.img"));
    for path in [loader_path(Architecture::OWN), UKI_PATH, "loader/addons/owners.addon.efi"] {
        assert!(owner.verified(&iso, path) == owner.verified(&disk, path), "{path}");
    }
    let line = node.admin().ok(&["read", "/proc/cmdline"]).unwrap();
    assert!(line.contains("billet.addon=owners"), "{line}");
}

/// Of a medium the firmware checks the loader, and has the loader check the UKI.
#[test]
#[ignore = "long run"]
fn a_medium_that_was_altered_does_not_start() {
    let owner = Owner::with("iso");
    for (name, path, section, words) in [
        ("secure-boot-iso-loader", loader_path(Architecture::OWN), ".osrel", "Access Denied"),
        ("secure-boot-iso-uki", UKI_PATH, ".cmdline", "Access denied"),
    ] {
        let iso = owner.path(&format!("{name}.iso"));
        fs::copy(owner.path(ISO), &iso).unwrap();
        owner.alter(&iso, path, |program| flip(program, section));
        expect_refused(&machine_with_cd(name, iso).start().unwrap(), words);
    }
}
