//! docs/users/per-device.md: one image, several machines, each with the config that was added for it.

use std::path::{Path, PathBuf};

use api::pki::PrivateKey;
use installer::bundle::{self, DeviceKey, New, Selector, SigningKey};
use installer::custom::{Profile, customise};
use installer::device::Disk;
use installer::image::{Kind, Source};
use qemu_tests::artifacts::build;
use qemu_tests::credentials::{Credentials, HOSTNAME};
use qemu_tests::node::{API_PORT, BOOT_LIMIT, Transport};
use qemu_tests::settings::rounds;
use qemu_tests::{Bus, Drive, TestNode, Vm};

use crate::images::flashed;

/// What a node without a config tells the person before it.
const MAINTENANCE: &str = "upload a configuration with";

/// An image that takes configs, and the key that they are signed with.
fn image(kind: Kind, directory: &Path) -> (PathBuf, SigningKey) {
    let key = PrivateKey::generate().unwrap();
    let public = directory.join("devices.pub");
    std::fs::write(&public, key.public_pem("the key").unwrap()).unwrap();
    let work = directory.join("work");
    std::fs::create_dir(&work).unwrap();
    let source = Source::open(&build().test.installer, &work).unwrap();
    let profile = Profile { config_key: Some(public), ..Profile::default() };
    let source = customise(&source, &profile, &work, &mut installer::silent).unwrap();
    let path = directory.join(kind.file_name(&source));
    kind.build(&source, 512, &path, &mut installer::silent).unwrap();
    let blocks = api::pki::blocks(key.to_pem().expose_secret()).unwrap();
    (path, SigningKey::from_pkcs8(&blocks[0].der).unwrap())
}

/// A machine, numbered from 1: what tells it from the others, and QEMU's words for that.
struct Device {
    number: u32,
    selector: Selector,
    words: [String; 2],
}

impl Device {
    /// By MAC, serial number and UUID in turn.
    fn new(number: u32) -> Self {
        let (mac, serial) = (format!("52:54:00:00:0a:{number:02x}"), format!("DEVICE-{number}"));
        let uuid = format!("4c4c4544-0039-3510-8059-b7c04f3332{number:02x}");
        let (selector, words) = match number % 3 {
            1 => (Selector::mac(&mac), ["-global".into(), format!("virtio-net-pci.mac={mac}")]),
            2 => (Selector::serial(&serial), ["-smbios".into(), format!("type=1,serial={serial}")]),
            _ => (Selector::uuid(&uuid), ["-uuid".into(), uuid]),
        };
        Self { number, selector: selector.unwrap(), words }
    }

    fn name(&self) -> String {
        format!("device-{}", self.number)
    }

    /// Adds this machine's config to an image.
    fn add_to(&self, image: &Path, key: &SigningKey, credentials: &Credentials) {
        let config = credentials.machine_config().unwrap().replace(HOSTNAME, &self.name());
        add(image, key, &self.selector, &config, None);
    }
}

fn add(image: &Path, key: &SigningKey, selector: &Selector, config: &str, seal_for: Option<&DeviceKey>) {
    let selectors = std::slice::from_ref(selector);
    let new = New { selectors, config: config.as_bytes(), seal_for, replace: false };
    bundle::add(&mut Disk::open(image).unwrap(), key, &new).unwrap();
}

/// Short form: two machines. Long form: five, and one that nothing was added for.
#[test]
#[ignore = "long run"]
fn machines_from_one_image_take_their_own_configs() {
    let directory = tempfile::tempdir().unwrap();
    let (raw, key) = image(Kind::Disk, directory.path());
    let credentials = Credentials::generate().unwrap();
    let devices: Vec<Device> = (1..=5).map(Device::new).collect();
    for device in &devices {
        device.add_to(&raw, &key, &credentials);
    }
    let disk = flashed(&raw, 5 << 30);
    let started = |name: &str, words: [String; 2]| {
        let drive = Drive::new(&disk, Bus::Virtio).boot_index(0);
        // The disk is the only thing that is given to it.
        TestNode::builder(name)
            .transport(Transport::Network)
            .no_config()
            .credentials(credentials.clone())
            .machine(move |vm, _| Ok(vm.drive(drive).uefi().extra(&words.each_ref().map(String::as_str))))
    };
    let count = usize::try_from(rounds(2, 5)).unwrap();
    for device in devices.iter().take(count) {
        let name = device.name();
        let node = started(&name, device.words.clone()).boot().unwrap();
        let taken = format!(
            "machine config: taken from entry {} of the config bundle of /dev/vda, by {}",
            device.number, device.selector
        );
        node.vm().wait_for(&taken, BOOT_LIMIT).unwrap();
        let told = node.admin().ok(&["hostname"]).unwrap();
        assert!(told.contains(&name), "{told}");
    }
    if count == 5 {
        let node = started("device-stranger", Device::new(6).words).start().unwrap();
        node.vm()
            .wait_for("none of the 5 configs in the bundle of /dev/vda is for this machine", BOOT_LIMIT)
            .unwrap();
        node.vm().wait_for(MAINTENANCE, BOOT_LIMIT).unwrap();
    }
}

/// Long form: the same on a CD; and a bundle that somebody changed is told and not used.
#[test]
#[ignore = "long run"]
fn an_iso_has_configs_and_a_changed_bundle_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (iso, key) = image(Kind::Iso, directory.path());
    let device = Device::new(2);
    device.add_to(&iso, &key, &Credentials::generate().unwrap());
    let started = |name: &str| {
        let words = device.words.each_ref().map(String::as_str);
        Vm::builder(name)
            .drive(Drive::new(&iso, Bus::Cdrom).boot_index(0))
            .uefi()
            .extra(&words)
            .start()
            .unwrap()
    };
    let vm = started("device-iso");
    vm.expect("machine config: taken from entry 1 of the config bundle of /dev/sr0, by serial", BOOT_LIMIT)
        .unwrap();
    drop(vm);
    change(&iso, &device.name());
    let vm = started("device-iso-changed");
    vm.expect("its signature is wrong", BOOT_LIMIT).unwrap();
    vm.wait_for(MAINTENANCE, BOOT_LIMIT).unwrap();
}

/// Long form: a machine shows the key of its TPM, and a config that is sealed for it opens there. Another machine, for
/// which the same config was added by its serial number, does not open it and says whose it is.
#[test]
#[ignore = "long run"]
fn a_sealed_config_opens_on_the_machine_with_its_tpm_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (raw, key) = image(Kind::Disk, directory.path());
    let credentials = Credentials::generate().unwrap();
    let other = Device::new(2);
    let started = |name: &str, tpm: &str, device: &Device| {
        let drive = Drive::new(&flashed(&raw, 5 << 30), Bus::Virtio).boot_index(0);
        let (state, words) = (directory.path().join(tpm), device.words.clone());
        TestNode::builder(name)
            .transport(Transport::Network)
            .no_config()
            .credentials(credentials.clone())
            .machine(move |vm, _| {
                Ok(vm.drive(drive).uefi().tpm_in(&state).extra(&words.each_ref().map(String::as_str)))
            })
    };
    let node = started("sealed-shows", "own", &Device::new(1)).start().unwrap();
    node.wait_maintenance().unwrap();
    node.vm().wait_for("this machine's TPM key: ", BOOT_LIMIT).unwrap();
    let address = format!("127.0.0.1:{}", node.vm().port(API_PORT).unwrap());
    let words = ["get", "tpmkeys", "tpm", "--insecure", "--nodes", &address, "-o", "yaml"];
    let shown = node.admin().ok(&words).unwrap();
    node.vm().quit().unwrap();
    drop(node);

    let device = DeviceKey::from_file(shown.as_bytes()).unwrap();
    let (own, config) = (Selector::of_tpm(device.digest()), credentials.machine_config().unwrap());
    add(&raw, &key, &own, &config.replace(HOSTNAME, "sealed-own"), Some(&device));
    add(&raw, &key, &other.selector, &config.replace(HOSTNAME, "sealed-other"), Some(&device));
    let bytes = std::fs::read(&raw).unwrap();
    assert!(!bytes.windows(10).any(|window| window == b"sealed-own"), "the config is in the image as it is");

    let node = started("sealed-own", "own", &Device::new(1)).boot().unwrap();
    let taken = format!("machine config: taken from entry 1 of the config bundle of /dev/vda, by {own}");
    node.vm().wait_for(&taken, BOOT_LIMIT).unwrap();
    assert!(node.admin().ok(&["hostname"]).unwrap().contains("sealed-own"));
    drop(node);

    let node = started("sealed-other", "other", &other).start().unwrap();
    let refused =
        format!("by {} is sealed and does not open: it is sealed for the TPM with key", other.selector);
    node.vm().wait_for(&refused, BOOT_LIMIT).unwrap();
    node.vm().wait_for(MAINTENANCE, BOOT_LIMIT).unwrap();
}

/// Changes a word of a file, which is in it once.
fn change(file: &Path, word: &str) {
    let mut bytes = std::fs::read(file).unwrap();
    let at = bytes.windows(word.len()).position(|window| window == word.as_bytes()).unwrap();
    bytes[at] ^= 1;
    std::fs::write(file, bytes).unwrap();
}
