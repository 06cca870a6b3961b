//! An encrypted STATE before the root switch: init opens what cryptsetup made, or boots and says why not.
//!
//! machined's part, which makes such volumes and mounts them, has tests of its own.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use qemu_tests::artifacts::build;
use qemu_tests::credentials::Credentials;
use qemu_tests::encrypted_state::{self, CHEAP, DEAR, MARK, MARK_OFFSET_BYTES};
use qemu_tests::node::{BOOT_LIMIT, NodeBuilder};
use qemu_tests::root::{copy_sparse, partition_offset};
use qemu_tests::{TestNode, Transport, VmBuilder, paths};
use serde_json::json;

/// Room for EPHEMERAL.
const DISK_BYTES: u64 = 4 << 30;
/// The VM that STATE was encrypted on, and another.
const OWN: &str = "bc94b891-0df9-47d8-a7d3-c7c199d66b0e";
const OTHER: &str = "6f1a3c52-94d7-4b0e-8a6c-2d5be7f01983";
const PASSPHRASE: &str = "correct horse battery staple";
/// Keys of three kinds, one of which opens STATE on its own machine.
const RECORD: &str = r#"{"EncryptionProvider":"luks2","EncryptionKeys":[{"KeyKMS":{"KMSEndpoint":"https://10.9.8.7"},"KeySlot":0},{"KeyNodeID":{},"KeySlot":1},{"KeyFido":{},"KeySlot":4}]}"#;
/// The same for machined: a config that names no key would have it take STATE for somebody else's.
const CONFIG: &str = "  systemDiskEncryption:\n    state:\n      provider: luks2\n      keys:\n        - nodeID: {}\n          \
                      slot: 1\n";
const MAPPING: &str = "luks2-STATE";
/// Shutting down, with services that take their time.
const END_LIMIT: Duration = Duration::from_secs(60);
/// A gigabyte, four times over, by an emulated processor; init gives it as long.
const DEAR_LIMIT: Duration = Duration::from_secs(120);

/// A flashed disk with an encrypted STATE.
struct Disk {
    dir: tempfile::TempDir,
    credentials: Credentials,
}

impl Disk {
    /// Whose slot 1 has this key.
    fn new(key: &str, kdf: &[&str], record: &str) -> Self {
        let dir = paths::temporary_dir().unwrap();
        let disk = Self { dir, credentials: Credentials::generate().unwrap() };
        copy_sparse(&build().test.disk, &disk.path()).unwrap();
        File::options().write(true).open(disk.path()).unwrap().set_len(DISK_BYTES).unwrap();
        encrypted_state::add(&disk.path(), 1, key, kdf).unwrap();
        encrypted_state::record(&disk.path(), record).unwrap();
        disk
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("disk.img")
    }

    fn node(&self, name: &str, uuid: &'static str) -> NodeBuilder {
        TestNode::builder(name)
            .transport(Transport::Slot)
            .disk(&self.path())
            .credentials(self.credentials.clone())
            .machine_section(CONFIG)
            .machine(move |vm: VmBuilder, _| Ok(vm.extra(&["-uuid", uuid])))
    }
}

fn static_record() -> String {
    format!(r#"{{"EncryptionKeys":[{{"KeyStatic":{{"KeyData":"{PASSPHRASE}"}},"KeySlot":1}}]}}"#)
}

/// What init said of STATE, once the API answers.
fn said(node: &TestNode) -> Vec<String> {
    let log = node.admin().ok(&["dmesg"]).unwrap();
    let about = log.lines().filter_map(|line| line.split_once("billet: init: STATE").map(|(_, text)| text));
    about.map(|text| text.trim().to_owned()).collect()
}

/// Boots a node whose STATE stays locked, with a config from elsewhere, and gives the reason.
fn locked(node: NodeBuilder) -> String {
    let node = node.command_line("billet.maintenance=open").start().unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    let said = said(&node);
    let [line] = said.as_slice() else { panic!("{said:?}") };
    line.strip_prefix("on /dev/vda5 is locked: ").unwrap_or_else(|| panic!("{line}")).to_owned()
}

fn is_mapped(node: &TestNode) -> bool {
    node.admin().ok(&["ls", "/dev/mapper"]).unwrap().split_whitespace().any(|word| word.ends_with(MAPPING))
}

/// Reads a byte behind the file system, through the mapping's link: what cryptsetup's key encrypted.
fn mark(node: &TestNode) -> u64 {
    let request = json!({ "op": "flip-byte", "path": format!("/dev/mapper/{MAPPING}"), "offset": MARK_OFFSET_BYTES,
        "mask": 1 });
    let agent = node.agent().unwrap();
    let before = agent.ask(request.clone()).unwrap()["before"].as_u64().unwrap();
    let between = agent.ask(request).unwrap()["before"].as_u64().unwrap();
    assert_eq!(between, before ^ 1);
    before
}

#[test]
fn a_state_of_cryptsetups_making_is_open_when_machined_starts_and_closed_at_the_end() {
    let disk = Disk::new(&format!("{OWN}STATE"), CHEAP, RECORD);
    for name in ["crypt-first", "crypt-again"] {
        let node = disk.node(name, OWN).start().unwrap();
        node.wait_api(BOOT_LIMIT).unwrap();
        let said = said(&node);
        assert!(said[0].starts_with("on /dev/vda5 opened by the nodeID key in slot 1 in "), "{said:?}");
        assert!(said.get(1).is_none_or(|line| line.starts_with("on /dev/vda5 not opened by the kms key")));
        assert!(is_mapped(&node));
        assert_eq!(mark(&node), u64::from(MARK));
        node.admin().ok(&["shutdown", "--wait=false"]).unwrap();
        node.vm().wait_exit(END_LIMIT).unwrap();
        let console = node.vm().console().text();
        assert!(!console.contains(&format!("remove mapping {MAPPING}")), "it was in use");
    }
}

#[test]
fn keys_that_do_not_open_it_have_reasons_and_the_node_boots() {
    let disk = Disk::new(&format!("{OWN}STATE"), CHEAP, RECORD);
    let reasons = locked(disk.node("crypt-moved", OTHER));
    assert_eq!(
        reasons,
        "kms key for slot 0: it needs the network, machined tries it; nodeID key for slot 1: the passphrase is not its \
         own; KeyFido key for slot 4: KeyFido is not known here"
    );
    // Nobody's firmware names this one: all zeros, as QEMU has it.
    encrypted_state::record(&disk.path(), r#"{"EncryptionKeys":[{"KeyNodeID":{},"KeySlot":1}]}"#).unwrap();
    let reasons = locked(disk.node("crypt-nobody", "00000000-0000-0000-0000-000000000000"));
    assert!(reasons.ends_with("entropy check failed"), "{reasons}");
}

#[test]
#[ignore = "long run"]
fn a_damaged_first_copy_of_the_header_is_told_and_the_second_opens() {
    let disk = Disk::new(PASSPHRASE, CHEAP, &static_record());
    let image = File::options().read(true).write(true).open(disk.path()).unwrap();
    let at = partition_offset(&image, "STATE").unwrap() + 5000;
    image.write_all_at(&[0xff; 100], at).unwrap();
    let node = disk.node("crypt-damaged", OWN).start().unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    let said = said(&node);
    assert!(said[0].starts_with("on /dev/vda5 opened by the static key in slot 1 in "), "{said:?}");
    let told = "the first copy of its header is damaged (checksum does not match), the other one counts";
    assert!(said.iter().any(|line| line.ends_with(told)), "{said:?}");
    assert!(is_mapped(&node));
    // The passphrase stands in META as it is, and nowhere in the log.
    assert!(!node.vm().console().text().contains(PASSPHRASE));
}

#[test]
#[ignore = "long run"]
fn a_state_that_is_half_made_is_left_to_machined() {
    let disk = Disk::new(PASSPHRASE, CHEAP, &static_record());
    encrypted_state::begin_format(&disk.path()).unwrap();
    let reason = locked(disk.node("crypt-half", OWN));
    assert_eq!(reason, "META says that making it was cut off, machined makes it again");
}

#[test]
#[ignore = "long run"]
fn a_gigabyte_of_key_derivation_is_refused_or_gone_with_the_helper() {
    let disk = Disk::new(PASSPHRASE, DEAR, &static_record());
    let needed = encrypted_state::derivation_mib(&disk.path(), 1).unwrap();
    let with = |name, mib| disk.node(name, OWN).machine(move |vm, _| Ok(vm.memory_mib(mib)));
    assert_eq!(
        locked(with("crypt-small", needed - 64)),
        format!("static key for slot 1: key derivation needs {needed} MiB of memory, which are not free")
    );
    let node = with("crypt-large", needed + 512).start().unwrap();
    node.wait_api(BOOT_LIMIT + DEAR_LIMIT).unwrap();
    let said = said(&node);
    assert!(said[0].starts_with("on /dev/vda5 opened by the static key in slot 1 in "), "{said:?}");
    let memory = node.admin().ok(&["read", "/proc/meminfo"]).unwrap();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let available_kib: u64 = available.trim().trim_end_matches(" kB").parse().unwrap();
    let all = needed + 512;
    assert!(available_kib > u64::from(needed - 200) << 10, "{available_kib} KiB of {all} MiB are available");
}
