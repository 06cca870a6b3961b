//! docs/users/images.md, docs/users/flashing.md and docs/users/customising.md: what `billetctl image build` makes starts, also
//! after `billetctl flash`, and of images that buildah made.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use installer::custom::{Addition, From, Profile, customise};
use installer::flash::{self, Image, Request, Target};
use installer::image::{Kind, Platform, Source};
use ondisk::manifest::RootManifest;
use qemu_tests::artifacts::build;
use qemu_tests::buildah::Buildah;
use qemu_tests::installer_image::Registry;
use qemu_tests::node::{BOOT_LIMIT, Transport};
use qemu_tests::root::Root;
use qemu_tests::{Bus, Drive, TestNode, Vm, VmBuilder};

use crate::install::installed_from;

/// What a node in maintenance mode tells the person before it.
const MAINTENANCE: &str = "upload a configuration with";

/// An image of 100 MB is sent, written and read back.
const UPGRADE_LIMIT: Duration = Duration::from_secs(120);

/// A form of the test image, from its installer image.
pub(crate) fn made(kind: Kind, directory: &Path) -> PathBuf {
    made_from(&build().test.installer, kind, directory)
}

fn made_from(installer: &Path, kind: Kind, directory: &Path) -> PathBuf {
    let source = Source::open(installer, directory).unwrap();
    let path = directory.join(kind.file_name(&source));
    kind.build(&source, 512, &path, &mut installer::silent).unwrap();
    path
}

/// An image on a file that is longer, as on a disk.
pub(crate) fn flashed(image: &Path, bytes: u64) -> PathBuf {
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

/// In a CD drive, and on a stick that is longer than it: into maintenance mode, by firmware alone. The drive before has
/// another CD, with the same label and one layer less.
#[test]
fn an_iso_starts_from_a_cd_and_from_a_stick() {
    let directory = tempfile::tempdir().unwrap();
    let other = made(Kind::Iso, directory.path());
    let files = directory.path().join("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("words"), "one layer more").unwrap();
    let addition = Addition { from: From::Directory(files), to: "/usr/share/site".into() };
    let profile = Profile { additions: vec![addition], ..Profile::default() };
    let work = tempfile::tempdir().unwrap();
    let source = Source::open(&build().test.installer, work.path()).unwrap();
    let source = customise(&source, &profile, work.path(), &mut installer::silent).unwrap();
    let iso = work.path().join("more.iso");
    Kind::Iso.build(&source, 512, &iso, &mut installer::silent).unwrap();
    let stick = flashed(&other, 512 << 20);
    let other_first = vec![Drive::new(&other, Bus::Cdrom), Drive::new(&iso, Bus::Cdrom).boot_index(0)];
    let passed_by = "not the root: /dev/sr0: layer custom is not there, or of another version";
    for (name, drives, said) in [
        ("iso-cd", other_first, vec![passed_by, "root from /dev/sr1 (label BILLET)"]),
        (
            "iso-stick",
            vec![Drive::new(&stick, Bus::Usb).boot_index(0)],
            vec!["root from /dev/sda (label BILLET)"],
        ),
    ] {
        let vm = drives.into_iter().fold(Vm::builder(name), VmBuilder::drive).uefi().start().unwrap();
        for line in said {
            vm.expect(line, BOOT_LIMIT).unwrap();
        }
        vm.expect(MAINTENANCE, BOOT_LIMIT).unwrap();
    }
}

/// Long form: a packed disk image, flashed to a longer disk, up to the API.
#[test]
fn a_flashed_disk_image_becomes_a_node() {
    let directory = tempfile::tempdir().unwrap();
    let disk = flashed(&made(Kind::PackedDisk, directory.path()), 5 << 30);
    let node = TestNode::builder("flashed").transport(Transport::Firmware).disk(&disk).boot().unwrap();
    node.vm().wait_for("root from /dev/vda2 (ROOT-A)", BOOT_LIMIT).unwrap();
    // The first boot found room behind the image's partitions: the table knows of the whole disk.
    node.vm().wait_for("STATE was made on /dev/vda", BOOT_LIMIT).unwrap();
    node.vm().wait_for("STATE is /dev/vda5", BOOT_LIMIT).unwrap();
}

/// The node asks no platform for anything; what it is called shows in its API.
#[test]
#[ignore = "long run"]
fn a_disk_for_a_cloud_says_where_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let source = Source::open(&build().test.installer, directory.path()).unwrap();
    let platform = Some(Platform::named("aws").unwrap());
    let profile = Profile { platform, ..Profile::default() };
    let source = customise(&source, &profile, directory.path(), &mut installer::silent).unwrap();
    let disk = directory.path().join(Kind::Disk.file_name(&source));
    assert!(disk.ends_with("aws-amd64.raw"), "{}", disk.display());
    Kind::Disk.build(&source, 512, &disk, &mut installer::silent).unwrap();
    let node = TestNode::builder("cloud-disk").transport(Transport::Firmware).disk(&disk).boot().unwrap();
    let version = node.admin().ok(&["version", "--output", "json"]).unwrap();
    assert!(version.contains("\"aws\"") && !version.contains("metal"), "{version}");
}

/// A directory with the built kernel as its makers install it: `/boot/vmlinuz` and `/lib/modules`.
pub(crate) fn built_kernel(directory: &Path) -> PathBuf {
    let layer = build().test.layers.iter().find(|layer| layer.name == "kernel").unwrap();
    let root = directory.join("kernel-root");
    let unpack = Command::new("unsquashfs")
        .args(["-quiet", "-no-progress", "-dest"])
        .arg(&root)
        .arg(&layer.file)
        .output();
    let said = String::from_utf8_lossy(&unpack.unwrap().stderr).into_owned();
    let place = directory.join("custom-kernel");
    std::fs::create_dir_all(place.join("lib")).unwrap();
    std::fs::rename(root.join("usr/lib/modules"), place.join("lib/modules"))
        .unwrap_or_else(|_| panic!("{said}"));
    std::fs::create_dir(place.join("boot")).unwrap();
    std::fs::copy(&build().vmlinuz, place.join("boot/vmlinuz")).unwrap();
    place
}

/// Guides 11 and 12 as they stand, by buildah: a blank machine installs the first from a registry and upgrades to the second,
/// which is one layer (`--squash`), and of which a disk image is made too.
#[test]
#[ignore = "long run"]
fn what_the_guides_dockerfiles_make_installs_upgrades_and_makes_images() {
    let directory = tempfile::tempdir().unwrap();
    let buildah = Buildah::with_installer().unwrap();
    buildah.image("localhost/custom-kernel:1", &built_kernel(directory.path())).unwrap();
    let library = directory.path().join("library/opt/library");
    std::fs::create_dir_all(&library).unwrap();
    std::fs::write(library.join("words"), "from a stage\n").unwrap();
    buildah.image("localhost/library:1", &directory.path().join("library")).unwrap();

    buildah.guide("kernel", "/lib/modules", &[]).unwrap();
    let registry = Registry::start().unwrap();
    let image = registry.serve("custom/kernel", "1", &buildah.as_oci("kernel").unwrap()).unwrap();
    let node = installed_from(&registry, &image, "buildah-kernel", "");
    node.wait_api(BOOT_LIMIT).unwrap();
    node.expect("billet: boot sequence: done").unwrap();
    let read = |path: &str| node.admin().ok(&["read", path]).unwrap();
    let running = RootManifest::parse(read("/run/billet/root.json").as_bytes()).unwrap();
    let built = Root::built_manifest().unwrap();
    let kernel = |manifest: &RootManifest| manifest.kernel().unwrap().root_hash;
    assert_ne!(kernel(&running), kernel(&built), "the modules are those of the stage");
    let release = &build().kernel_release;
    assert!(read(&format!("/usr/lib/modules/{release}/modules.dep")).contains(".ko"));

    let removed = "/usr/share/billet/sbom-kernel.spdx.json";
    let rootfs = buildah.guide("rootfs", removed, &["--squash"]).unwrap();
    let image = rootfs.display().to_string();
    node.admin().ok_within(&["upgrade", "--wait=false", "--image", &image], UPGRADE_LIMIT).unwrap();
    node.vm().expect("proved itself and is kept as billet-000002.efi", UPGRADE_LIMIT + BOOT_LIMIT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    let has_both = |node: &TestNode| {
        let read = |path: &str| node.admin().ok(&["read", path]).unwrap();
        assert_eq!(read("/usr/local/lib/library/words"), "from a stage\n");
        assert!(read("/run/billet/root.json").contains("\"removed\""));
        node.admin().refused(&["read", removed]).unwrap();
    };
    has_both(&node);
    drop(node);

    let disk = made_from(&rootfs, Kind::Disk, directory.path());
    has_both(&TestNode::builder("buildah-disk").transport(Transport::Firmware).disk(&disk).boot().unwrap());
}
