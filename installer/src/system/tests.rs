use super::*;
use crate::certify::System as Made;
use ondisk::cpio;

const STUB: &[u8] = include_bytes!("../../../crates/ondisk/testdata/stub.efi");

/// A bzImage with nothing but the release in it.
fn kernel() -> Vec<u8> {
    let mut image = vec![0; 6000];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e] = 0x10;
    image[0x210..0x216].copy_from_slice(b"6.12.1");
    image
}

pub(super) fn boot_parts() -> BootParts {
    BootParts {
        kernel: kernel(),
        stub: STUB.to_vec(),
        loader: b"loader".to_vec(),
        modules: b"mods".to_vec(),
        network: Vec::new(),
        firmware: Vec::new(),
        init: b"init".to_vec(),
        command_line: "console=ttyS0 gpt".into(),
        boot_entry: "ID=billet\n".into(),
        loader_config: "timeout 0\n".into(),
        config_key: None,
        authorities: Vec::new(),
        signed_uki: Vec::new(),
    }
}

/// Writes a root as a node has it: both layers' files, and the manifest that init left.
fn root(boot: &BootParts, manifest: &RootManifest) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join(DIRECTORY);
    fs::create_dir_all(&directory).unwrap();
    for (name, content) in boot.of_base().into_iter().chain(boot.of_kernel()) {
        fs::write(directory.join(name), content).unwrap();
    }
    fs::create_dir_all(root.path().join("run/billet")).unwrap();
    fs::write(root.path().join("run/billet/root.json"), manifest.to_json()).unwrap();
    root
}

#[test]
fn the_running_system_is_read_whole() {
    let (boot, manifest) = (boot_parts(), Made::new("0.1.0", 40_000).manifest);
    let root = root(&boot, &manifest);
    let running = System::running(root.path()).unwrap();
    assert_eq!(running, System { manifest, boot });
    fs::remove_file(root.path().join(DIRECTORY).join(names::STUB)).unwrap();
    let error = System::running(root.path()).unwrap_err().to_string();
    assert!(error.ends_with("usr/lib/billet/boot/stub.efi"), "{error}");
}

#[test]
fn the_key_of_configs_is_in_the_initramfs_and_stays_with_the_node() {
    let manifest = Made::new("0.1.0", 40_000).manifest;
    let root = root(&boot_parts(), &manifest);
    assert_eq!(System::running(root.path()).unwrap().boot.config_key, None);
    let key = [5; KEY_BYTES];
    fs::write(root.path().join("run/billet/config.key"), key).unwrap();
    let running = System::running(root.path()).unwrap();
    assert_eq!(running.boot.config_key, Some(key));
    assert!(running.boot.all().any(|(name, content)| name == names::CONFIG_KEY && content == key));
    let initramfs = running.initramfs().unwrap();
    let own = initramfs.strip_prefix(b"modsinit").unwrap();
    let mut entries = cpio::Reader::new(own).map(Result::unwrap);
    assert!(entries.any(|entry| entry.name == "etc/billet/config.key" && entry.content == key));
    fs::write(root.path().join("run/billet/config.key"), b"short").unwrap();
    assert!(System::running(root.path()).is_err());
}

#[test]
fn firmware_and_authorities_are_in_the_initramfs_for_roots_from_the_network_alone() {
    let manifest = Made::new("0.1.0", 40_000).manifest;
    let [network, firmware, authorities] = ["netw", "firm", "PEM"].map(|part| part.as_bytes().to_vec());
    let boot = BootParts { network, firmware, authorities, ..boot_parts() };
    let system = System { manifest, boot };
    let has = |initramfs: Vec<u8>, parts: &[u8]| {
        let own = initramfs.strip_prefix(parts).unwrap();
        let mut entries = cpio::Reader::new(own).map(Result::unwrap);
        entries.any(|entry| entry.name == "etc/billet/authorities.pem" && entry.content == b"PEM")
    };
    assert!(has(system.network_initramfs().unwrap().unwrap(), b"modsnetwfirminit"));
    assert!(!has(system.initramfs().unwrap(), b"modsinit"));
    let parts: Vec<_> = system.boot.all().collect();
    assert!(parts.contains(&(names::AUTHORITIES, b"PEM")));
    let find =
        |name: &str| parts.iter().find(|(known, _)| *known == name).map(|(_, content)| content.to_vec());
    let missing = |name: &str| Error::MissingPart { from: "parts".into(), part: name.to_owned() };
    let again = BootParts::by_name(|name| find(name).ok_or_else(|| missing(name))).unwrap();
    assert_eq!(again, system.boot);
}

#[test]
fn a_uki_holds_the_parts_and_the_arguments() {
    let mut manifest = Made::new("0.1.0", 40_000).manifest;
    manifest.layers[0].kernel_release = Some("6.12.1".into());
    let system = System { manifest, boot: boot_parts() };
    let plain = system.uki(&[]).unwrap();
    let section =
        |uki: &[u8], name: &str| ondisk::pe::Image::parse(uki).unwrap().section(name).unwrap().to_vec();
    assert_eq!(section(&plain, ".cmdline"), b"console=ttyS0 gpt");
    assert_eq!(section(&plain, ".linux"), system.boot.kernel);
    assert_eq!(section(&plain, ".uname"), b"6.12.1");
    let initramfs = section(&plain, ".initrd");
    let manifest = initramfs.strip_prefix(b"modsinit").unwrap();
    let mut entries = cpio::Reader::new(manifest);
    let found = entries.find_map(|entry| {
        let entry = entry.unwrap();
        (entry.name == "etc/billet/root.json").then(|| entry.content.to_vec())
    });
    assert_eq!(found.unwrap(), system.manifest.to_json().as_bytes());
    let changed = system.uki(&["quiet".into()]).unwrap();
    assert_eq!(section(&changed, ".cmdline"), b"console=ttyS0 gpt quiet");
    assert!(system.uki(&["a\nb".into()]).is_err());
}

#[test]
fn a_running_layer_is_read_below_its_verity_device() {
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("sys/class/block/dm-0/slaves");
    fs::create_dir_all(below.join("loop3")).unwrap();
    fs::create_dir(directory.path().join("dev")).unwrap();
    let made = Made::new("0.1.0", 40_000);
    let layer = &made.manifest.layers[0];
    let padded = [made.layer.as_slice(), &[9; 512]].concat();
    fs::write(directory.path().join("dev/loop3"), padded).unwrap();
    let device = Path::new("/dev/dm-0");
    let mut read = Vec::new();
    running_layer(directory.path(), layer, device).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == made.layer, "other bytes than the layer file's");
    // Two devices below are nobody's layer.
    fs::create_dir(below.join("loop4")).unwrap();
    let error = running_layer(directory.path(), layer, device).err().unwrap();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("2 devices"), "{error}");
}
