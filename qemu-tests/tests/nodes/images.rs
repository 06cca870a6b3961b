//! docs/users/images.md and docs/users/flashing.md: what `billetctl image build` makes starts, also after `billetctl flash`.

use std::fs::File;
use std::path::{Path, PathBuf};

use installer::flash::{self, Image, Request, Target};
use installer::image::{Kind, Source};
use qemu_tests::artifacts::build;
use qemu_tests::node::{BOOT_LIMIT, Transport};
use qemu_tests::settings::rounds;
use qemu_tests::{Bus, Drive, TestNode, Vm};

/// What a node in maintenance mode tells the person before it.
const MAINTENANCE: &str = "upload a configuration with";

/// A form of the test image, from its installer image.
fn made(kind: Kind, folder: &Path) -> PathBuf {
    let source = Source::open(&build().test.installer, folder).unwrap();
    let path = folder.join(kind.file_name());
    kind.build(&source, 512, &path, &mut installer::silent).unwrap();
    path
}

/// An image on a file that is longer, as on a disk.
fn flashed(image: &Path, bytes: u64) -> PathBuf {
    let path = image.with_extension("flashed");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    let image = Image::open(image).unwrap();
    assert!(image.is_ours());
    let target = Target::find(Path::new("/"), &path).unwrap();
    target.check(&image, false).unwrap();
    let seed = Some(flash::random_seed().unwrap());
    let (name, identity) = (path.display().to_string(), target.identity());
    let request =
        Request { image: &image, name: &name, identity: &identity, note: None, seed, is_blank: false };
    let mut device = target.open(&image, false).unwrap();
    flash::write(&request, &mut device, &mut installer::silent).unwrap();
    path
}

/// The same file in a CD drive, and on a stick that is longer than it: into maintenance mode, by firmware alone.
#[test]
fn an_iso_starts_from_a_cd_and_from_a_stick() {
    let folder = tempfile::tempdir().unwrap();
    let iso = made(Kind::Iso, folder.path());
    let stick = flashed(&iso, 512 << 20);
    for (name, drive, root) in [
        ("iso-cd", Drive::new(&iso, Bus::Cdrom), "root from /dev/sr0 (label BILLET)"),
        ("iso-stick", Drive::new(&stick, Bus::Usb), "root from /dev/sda (label BILLET)"),
    ] {
        let vm = Vm::builder(name).drive(drive.boot_index(0)).uefi().start().unwrap();
        vm.expect(root, BOOT_LIMIT).unwrap();
        vm.expect(MAINTENANCE, BOOT_LIMIT).unwrap();
    }
}

/// Long form: a packed disk image, flashed to a longer disk, up to the API.
#[test]
fn a_flashed_disk_image_becomes_a_node() {
    if rounds(0, 1) == 0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = flashed(&made(Kind::PackedDisk, folder.path()), 5 << 30);
    let node = TestNode::builder("flashed").transport(Transport::Firmware).disk(&disk).boot().unwrap();
    node.vm().wait_for("root from /dev/vda2 (ROOT-A)", BOOT_LIMIT).unwrap();
    // The first boot found room behind the image's partitions: the table knows of the whole disk.
    node.vm().wait_for("STATE was made on /dev/vda", BOOT_LIMIT).unwrap();
    node.vm().wait_for("STATE is /dev/vda5", BOOT_LIMIT).unwrap();
}
