//! docs/users/secure-boot.md: a disk whose files are signed enrols its key and starts; what was altered does not.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use installer::system::{BootParts, LOADER_CONFIG_PATH, System, loader_path};
use ondisk::pe::Image;
use ondisk::{Architecture, fat};
use qemu_tests::artifacts::build;
use qemu_tests::emulated::NO_TIMER_CHECK;
use qemu_tests::installer_image::Parts;
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::root::{copy_sparse, partition_offset};
use qemu_tests::{TestNode, Transport, paths};

/// Enrolling, a restart, and a boot under system management mode, which an emulator is slow at.
const ENROL_LIMIT: Duration = Duration::from_secs(60);
/// What the kernel says when firmware checked it.
const SECURE: &str = "secureboot: Secure boot enabled";

/// Runs what the page says.
fn run(folder: &Path, program: &Path, words: &str) {
    let ran = Command::new(program).current_dir(folder).args(words.split(' ')).output().unwrap();
    assert!(ran.status.success(), "{words}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Signs a file the way a person does.
fn signed(folder: &Path, name: &str, content: &[u8]) -> Vec<u8> {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    let key = "--signing-key key.pem --signing-certificate certificate.pem";
    run(folder, &build().billetctl, &format!("gen secureboot sign {key} {name}"));
    std::fs::read(&path).unwrap()
}

/// The built disk with an EFI partition of its own: everything signed, and the key to enrol. `alter` changes the UKI
/// after it was signed.
fn disk(folder: &Path, alter: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let words =
        "req -new -x509 -newkey rsa:2048 -nodes -subj /CN=owner -days 1 -keyout key.pem -out certificate.pem";
    run(folder, Path::new("openssl"), words);
    let words =
        "gen secureboot database --signing-key key.pem --signing-certificate certificate.pem --output keys";
    run(folder, &build().billetctl, words);
    let parts = Parts::of_build().unwrap();
    let get = |name: &str| {
        let part = parts.boot.iter().find(|(known, _)| known == name);
        part.map(|(_, content)| content.clone())
            .ok_or_else(|| installer::Error::MissingPart { from: "the build".into(), part: name.to_owned() })
    };
    let boot = BootParts::by_name(get).unwrap();
    let system = System { manifest: parts.manifest.clone(), boot };
    let mut uki = signed(folder, "uki.efi", &system.uki(&[NO_TIMER_CHECK.into()]).unwrap());
    alter(&mut uki);
    let loader = signed(folder, "loader.efi", &system.boot.loader);
    let config = format!("{}secure-boot-enroll force\n", system.boot.loader_config);
    let keys = ["PK", "KEK", "db"].map(|name| {
        let content = std::fs::read(folder.join("keys").join(format!("{name}.auth"))).unwrap();
        (format!("loader/keys/auto/{name}.auth"), content)
    });
    let file = |path, content| fat::File { path, content };
    let mut files = vec![
        file(loader_path(Architecture::OWN), loader.as_slice()),
        file(LOADER_CONFIG_PATH, config.as_bytes()),
        file("EFI/Linux/billet-000001.efi", &uki),
    ];
    files.extend(keys.iter().map(|(path, content)| file(path, content)));
    let image = folder.join("disk.img");
    copy_sparse(&build().test.disk, &image).unwrap();
    let disk = File::options().read(true).write(true).open(&image).unwrap();
    let (start, end) = (partition_offset(&disk, "EFI").unwrap(), partition_offset(&disk, "ROOT-A").unwrap());
    let volume = fat::Volume { label: "EFI", volume_id: 1, sector_bytes: 512, bytes: end - start };
    for extent in fat::format(&volume, &files).unwrap() {
        disk.write_all_at(&extent.bytes, start + extent.offset).unwrap();
    }
    image
}

fn start(name: &str, image: &Path) -> TestNode {
    TestNode::builder(name).transport(Transport::SetupMode).disk(image).start().unwrap()
}

#[test]
fn a_signed_disk_enrols_its_key_and_starts() {
    let folder = paths::temporary_dir().unwrap();
    let node = start("secure-boot", &disk(folder.path(), |_| {}));
    node.vm().expect(SECURE, ENROL_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    let layers = node.admin().ok(&["get", "rootlayers"]).unwrap();
    assert!(layers.contains("kernel"), "{layers}");
}

/// Changes a byte in the middle of a section.
fn flip(uki: &mut [u8], section: &str) {
    let found = Image::parse(uki).unwrap().sections().iter().find(|found| found.name == section).copied();
    let found = found.map(|found| (found.file_offset, found.virtual_bytes)).unwrap();
    let at = usize::try_from(found.0 + found.1 / 2).unwrap();
    uki[at] ^= 1;
}

#[test]
#[ignore = "long run"]
fn what_was_altered_does_not_start() {
    for section in [".linux", ".cmdline", ".initrd"] {
        let folder = paths::temporary_dir().unwrap();
        let image = disk(folder.path(), |uki| flip(uki, section));
        let node = start(&format!("secure-boot{}", section.replace('.', "-")), &image);
        node.vm().expect("Access denied", ENROL_LIMIT).unwrap();
        let text = node.vm().console().text();
        assert!(!text.contains("Linux version"), "the kernel started:\n{text}");
    }
    // A layer is no file of the firmware's: init finds out, from the manifest in the signed UKI.
    let folder = paths::temporary_dir().unwrap();
    let image = disk(folder.path(), |_| {});
    let disk = File::options().read(true).write(true).open(&image).unwrap();
    let at = partition_offset(&disk, "ROOT-A").unwrap();
    let mut block = [0; 4096];
    disk.read_exact_at(&mut block, at).unwrap();
    block[100] ^= 1;
    disk.write_all_at(&block, at).unwrap();
    let node = start("secure-boot-layer", &image);
    node.vm().expect(SECURE, ENROL_LIMIT).unwrap();
    node.vm().expect("layer base: data block 0 is corrupt", BOOT_LIMIT).unwrap();
}

/// An image that nobody signed, on a machine whose key is enrolled.
#[test]
#[ignore = "long run"]
fn what_nobody_signed_does_not_start() {
    let folder = paths::temporary_dir().unwrap();
    let image = disk(folder.path(), |uki| *uki = Image::parse(uki).unwrap().without_signatures().unwrap());
    let node = start("secure-boot-unsigned", &image);
    node.vm().expect("Access denied", ENROL_LIMIT).unwrap();
}
