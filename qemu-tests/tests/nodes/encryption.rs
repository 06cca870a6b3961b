//! docs/users/encryption.md: STATE and EPHEMERAL encrypted, opened, given other keys, and back; cryptsetup is the judge.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use qemu_tests::node::{BOOT_LIMIT, NodeBuilder};
use qemu_tests::root::partition_offset;
use qemu_tests::{TestNode, VmBuilder};
use serde_json::json;

use crate::volumes::{BOOTED, Disk, GIB, KEPT, RESET_LIMIT, booted, shut_down};

/// Who the machine is, as its firmware says. QEMU's own answer is nobody, and gives no key.
pub(crate) const MACHINE: &str = "bc94b891-0df9-47d8-a7d3-c7c199d66b0e";
const OTHER_MACHINE: &str = "6f1a3c52-94d7-4b0e-8a6c-2d5be7f01983";
const OLD: &str = "correct-horse-battery-staple";
const NEW: &str = "tr0ub4dor-and-three-more";
/// A secret of every machine config of these tests.
const TOKEN: &str = "abcdef.0123456789abcdef";
/// A start with two file systems and as many derivations of keys, by an emulated processor.
pub(crate) const BOOT: Duration = Duration::from_secs(90);
/// All that a LUKS2 header of ours and a little data take.
pub(crate) const HEADER_BYTES: usize = 17 << 20;

/// The section of a config.
pub(crate) fn section(state: &str, ephemeral: &str) -> String {
    let volume = |name: &str, keys: &str| match keys {
        "" => String::new(),
        keys => format!("    {name}:\n      provider: luks2\n      keys: [{keys}]\n"),
    };
    match (state, ephemeral) {
        ("", "") => String::new(),
        (state, ephemeral) => {
            format!("  systemDiskEncryption:\n{}{}", volume("state", state), volume("ephemeral", ephemeral))
        }
    }
}

pub(crate) fn node_id(slot: u8) -> String {
    format!("{{nodeID: {{}}, slot: {slot}}}")
}

pub(crate) fn passphrase(slot: u8, text: &str) -> String {
    format!("{{static: {{passphrase: {text}}}, slot: {slot}}}")
}

pub(crate) fn on(disk: &Disk, name: &str, machine: &'static str) -> NodeBuilder {
    disk.node(name).machine(move |vm: VmBuilder, _| Ok(vm.extra(&["-uuid", machine])))
}

/// The config with these keys.
fn config(disk: &Disk, state: &str, ephemeral: &str) -> String {
    let text = disk.credentials.machine_config().unwrap();
    text.replacen("machine:\n", &format!("machine:\n{}", section(state, ephemeral)), 1)
}

pub(crate) fn apply(node: &TestNode, text: &str, mode: &str) -> Result<String, String> {
    apply_with(node, text, &[&format!("--mode={mode}")])
}

fn apply_with(node: &TestNode, text: &str, flags: &[&str]) -> Result<String, String> {
    let file = node.files().join("config.yaml");
    std::fs::write(&file, text).unwrap();
    let words = [&["apply-config", "-f", file.to_str().unwrap()], flags].concat();
    let output = node.admin().run(&words).unwrap();
    if output.success { Ok(output.stderr) } else { Err(output.stderr) }
}

/// Whether the host's cryptsetup opens a partition of the image.
pub(crate) fn opens(disk: &Disk, partition: &str, slot: u8, key: &str) -> bool {
    opens_on(&disk.path(), partition, slot, key)
}

/// The same of any disk's image.
pub(crate) fn opens_on(image: &Path, partition: &str, slot: u8, key: &str) -> bool {
    let (copy, image) = (image.with_file_name("header.img"), File::open(image).unwrap());
    let mut header = vec![0; HEADER_BYTES];
    image.read_exact_at(&mut header, partition_offset(&image, partition).unwrap()).unwrap();
    std::fs::write(&copy, header).unwrap();
    let slot = slot.to_string();
    let mut child = Command::new("cryptsetup")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .args(["open", "--test-passphrase", "--type", "luks2", "--key-file", "-", "--key-slot", &slot])
        .arg(&copy)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
    child.wait().unwrap().success()
}

/// Which of these words the image has anywhere, as grep finds them.
pub(crate) fn words_on(disk: &Disk, words: &[&str]) -> String {
    let list = disk.dir.path().join("words");
    std::fs::write(&list, words.join("\n")).unwrap();
    let found = Command::new("grep")
        .env("LC_ALL", "C")
        .args(["--text", "--only-matching", "--fixed-strings", "--no-filename", "--file"])
        .arg(&list)
        .arg(disk.path())
        .output()
        .unwrap();
    assert!(found.stderr.is_empty(), "grep: {}", String::from_utf8_lossy(&found.stderr));
    String::from_utf8(found.stdout).unwrap()
}

#[test]
fn both_are_encrypted_opened_and_given_other_keys() {
    let disk = Disk::new(4 * GIB);
    let keys = section(&node_id(0), &passphrase(0, OLD));
    let node = on(&disk, "encrypted-first", MACHINE).machine_section(&keys).start().unwrap();
    node.wait_api(BOOT).unwrap();
    node.vm().wait_for("STATE is encrypted, opened by the nodeID key in slot 0", BOOT).unwrap();
    node.vm().wait_for("EPHEMERAL is encrypted, opened by the static key in slot 0", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    let status = node.admin().ok(&["get", "volumestatus", "-o", "yaml"]).unwrap();
    assert_eq!(status.matches("encryptionProvider: luks2").count(), 2, "{status}");
    assert!(node.admin().ok(&["mounts"]).unwrap().contains("/dev/mapper/luks2-EPHEMERAL"));
    node.agent().unwrap().ask(json!({ "op": "write", "path": KEPT, "text": "kept" })).unwrap();
    shut_down(&node);
    drop(node);

    let state_key = format!("{MACHINE}STATE");
    assert!(opens(&disk, "STATE", 0, &state_key) && opens(&disk, "EPHEMERAL", 0, OLD));
    assert!(!opens(&disk, "STATE", 0, OLD) && !opens(&disk, "EPHEMERAL", 0, NEW));
    // What must be there shows that the search finds something.
    assert!(words_on(&disk, &["aes-xts-plain64"]).contains("aes-xts-plain64"));
    assert_eq!(words_on(&disk, &[OLD, &state_key, TOKEN, "clusterName: test"]), "");

    // A larger disk, and a damaged header: its other copy opens it, and mends it.
    disk.resize(5 * GIB);
    let at = disk.offset("EPHEMERAL").unwrap();
    File::options().write(true).open(disk.path()).unwrap().write_all_at(b"damage", at + 5000).unwrap();
    let node = on(&disk, "encrypted-again", MACHINE).source("").no_config().start().unwrap();
    node.wait_api(BOOT).unwrap();
    node.vm().wait_for("machine config: taken from STATE", BOOT).unwrap();
    node.vm().wait_for("EPHEMERAL: the first copy of the LUKS2 header was written anew", BOOT).unwrap();
    node.vm().wait_for("EPHEMERAL: the disk has become larger: 1024 MiB more", BOOT).unwrap();
    node.vm().expect(BOOTED, BOOT).unwrap();
    assert_eq!(node.agent().unwrap().read(KEPT).unwrap(), "kept");

    // Two halves of a rotation, and what would lock the node out.
    let refused = apply(&node, &config(&disk, &node_id(0), &passphrase(1, NEW)), "reboot").unwrap_err();
    assert!(refused.contains("no key of EPHEMERAL stays as it is"), "{refused}");
    let refused = apply(&node, &config(&disk, &node_id(0), ""), "reboot").unwrap_err();
    assert!(refused.contains("--system-labels-to-wipe EPHEMERAL"), "{refused}");
    let both = format!("{}, {}", passphrase(0, OLD), passphrase(1, NEW));
    apply(&node, &config(&disk, &node_id(0), &both), "reboot").unwrap();
    node.vm().expect("EPHEMERAL: the key in slot 1 was added", BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    apply(&node, &config(&disk, &node_id(0), &passphrase(1, NEW)), "reboot").unwrap();
    node.vm().expect("EPHEMERAL: the key in slot 0 was removed", BOOT).unwrap();
    node.vm().expect(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    assert_eq!(node.agent().unwrap().read(KEPT).unwrap(), "kept");
    shut_down(&node);
    drop(node);
    assert!(opens(&disk, "EPHEMERAL", 1, NEW) && !opens(&disk, "EPHEMERAL", 0, OLD));
    assert_eq!(words_on(&disk, &[NEW, OLD]), "");
}

/// Guide 13 from its first line to its last, in its own words and spellings. The snippets that cannot stand together in one
/// config are applied one after the other; the entropy check and the notes are unit tests of crates/unlock and
/// crates/config.
#[test]
#[ignore = "long run"]
fn guide_13_line_by_line() {
    // Nine boots; what each does is in the tests beside this one.
    let disk = Disk::new(4 * GIB);
    let with = |ephemeral: &str, state: &str| {
        let text = disk.credentials.machine_config().unwrap();
        let section = |name: &str, keys: &str| match keys {
            "" => String::new(),
            keys => format!("    {name}:\n      keys:\n{keys}"),
        };
        let section = format!(
            "  systemDiskEncryption:\n{}{}",
            section("ephemeral", ephemeral),
            section("state", state)
        );
        text.replacen("machine:\n", &format!("machine:\n{section}"), 1)
    };
    const OLD_KEY: &str = "        - static:\n            passphrase: oldkey\n          keySlot: 0\n";
    const NEW_KEY: &str = "        - static:\n            passphrase: newkey\n          keySlot: 1\n";
    const NODE_ID: &str = "        - nodeID: {} # key kind\n          slot: 1\n";
    let reset = |label| ["reset", "--system-labels-to-wipe", label, "--reboot=true", "--wait=false"];

    // "Going from Unencrypted to Encrypted", "Ephemeral Partition".
    let node = on(&disk, "guide-13-first", MACHINE).start().unwrap();
    booted(&node);
    shut_down(&node);
    drop(node);
    // Without the volume that brought the config: after a wipe of STATE it would bring it again.
    let node = on(&disk, "guide-13", MACHINE).source("").no_config().start().unwrap();
    booted(&node);
    let ephemeral = disk.offset("EPHEMERAL").unwrap();
    apply_with(&node, &with(OLD_KEY, ""), &["--on-reboot"]).unwrap();
    assert_eq!(disk.bytes(ephemeral, 4), b"XFSB", "nothing happens before the wipe");
    node.admin().ok(&reset("EPHEMERAL")).unwrap();
    node.vm().expect("EPHEMERAL on /dev/vda was empty: encrypted and formatted", RESET_LIMIT).unwrap();
    node.vm().expect(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    node.agent().unwrap().ask(json!({ "op": "write", "path": KEPT, "text": "kept" })).unwrap();

    // "Key Rotation": "add a new key", "then remove the old key".
    let both = format!("{OLD_KEY}{NEW_KEY}");
    for (keys, line) in
        [(both.as_str(), "the key in slot 1 was added"), (NEW_KEY, "the key in slot 0 was removed")]
    {
        apply_with(&node, &with(keys, ""), &[]).unwrap();
        node.vm().expect(&format!("EPHEMERAL: {line}"), BOOT).unwrap();
        node.vm().expect(BOOTED, BOOT).unwrap();
        node.answers(BOOT_LIMIT).unwrap();
    }
    assert_eq!(node.agent().unwrap().read(KEPT).unwrap(), "kept");
    assert!(opens(&disk, "EPHEMERAL", 1, "newkey") && !opens(&disk, "EPHEMERAL", 0, "oldkey"));

    // "State Partition". What STATE is opened with is in META; "EPHEMERAL partition may contain …" stays as it is.
    node.admin().ok(&reset("STATE")).unwrap();
    node.wait_maintenance().unwrap();
    assert!(node.apply_in_maintenance(&with(NEW_KEY, NODE_ID)).unwrap().success);
    node.vm().expect("STATE is encrypted, opened by the nodeID key in slot 1", BOOT).unwrap();
    node.vm().expect("EPHEMERAL is encrypted, opened by the static key in slot 1", BOOT).unwrap();
    node.vm().expect(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    assert_eq!(node.agent().unwrap().read(KEPT).unwrap(), "kept");
    shut_down(&node);
    drop(node);
    assert!(opens(&disk, "STATE", 1, &format!("{MACHINE}STATE")));
    let record = r#""KeyNodeID":{}"#;
    assert!(words_on(&disk, &[record]).contains(record), "META says how STATE is opened");

    // "Before mounting the STATE partition, load encryption configs … from the META partition."
    let node = on(&disk, "guide-13-again", MACHINE).source("").no_config().start().unwrap();
    node.vm().wait_for("STATE on /dev/vda5 opened by the nodeID key in slot 1", BOOT).unwrap();
    node.vm().wait_for("machine config: taken from STATE", BOOT).unwrap();
    booted(&node);
}

/// Guide 13, "Ephemeral Partition", there and back.
#[test]
#[ignore = "long run"]
fn data_is_never_encrypted_over_and_a_wipe_changes_either_way() {
    // Five boots; the refusals are unit tests of volumes::change too.
    let disk = Disk::new(4 * GIB);
    let node = on(&disk, "ephemeral-plain", MACHINE).start().unwrap();
    booted(&node);
    let at = disk.offset("EPHEMERAL").unwrap();
    let encrypted = config(&disk, "", &node_id(0));
    let refused = apply(&node, &encrypted, "reboot").unwrap_err();
    for part in
        ["EPHEMERAL holds data that is not encrypted", "--mode=staged", "--system-labels-to-wipe EPHEMERAL"]
    {
        assert!(refused.contains(part), "{refused}");
    }
    // Somebody forgets to wipe it.
    apply(&node, &encrypted, "staged").unwrap();
    shut_down(&node);
    drop(node);
    let node = on(&disk, "ephemeral-kept", MACHINE).source("").no_config().start().unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    let line = "failed to encrypt the partition EPHEMERAL, because it is not empty";
    node.vm().wait_for(line, BOOT).unwrap();
    assert_eq!(disk.bytes(at, 4), b"XFSB");
    let wipe = ["reset", "--system-labels-to-wipe", "EPHEMERAL", "--reboot", "--wait=false"];
    node.admin().ok(&wipe).unwrap();
    node.vm().expect("EPHEMERAL on /dev/vda was empty: encrypted and formatted", RESET_LIMIT).unwrap();
    node.vm().expect(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    assert_eq!(disk.bytes(at, 4), b"LUKS");

    apply(&node, &config(&disk, "", ""), "staged").unwrap();
    node.admin().ok(&wipe).unwrap();
    node.vm().expect("EPHEMERAL on /dev/vda was empty: formatted", RESET_LIMIT).unwrap();
    node.vm().expect(BOOTED, BOOT).unwrap();
    assert_eq!(disk.bytes(at, 4), b"XFSB");
}

/// Guide 13, "State Partition", there and back; and a disk that moved to another machine.
#[test]
#[ignore = "long run"]
fn a_wiped_state_is_made_as_the_next_config_says() {
    // Seven boots.
    let disk = Disk::new(4 * GIB);
    let node = on(&disk, "state-plain", MACHINE).start().unwrap();
    booted(&node);
    let at = disk.offset("STATE").unwrap();
    let encrypted = config(&disk, &node_id(0), "");
    for mode in ["reboot", "staged"] {
        let refused = apply(&node, &encrypted, mode).unwrap_err();
        assert!(
            refused.contains("--system-labels-to-wipe STATE") && refused.contains("--insecure"),
            "{refused}"
        );
    }
    shut_down(&node);
    drop(node);

    let wipe = ["reset", "--system-labels-to-wipe", "STATE", "--reboot", "--wait=false"];
    let node = on(&disk, "state-wiped", MACHINE).source("").no_config().start().unwrap();
    booted(&node);
    node.admin().ok(&wipe).unwrap();
    node.vm().expect("STATE of /dev/vda is made once there is a machine config", RESET_LIMIT).unwrap();
    node.wait_maintenance().unwrap();
    assert!(node.apply_in_maintenance(&encrypted).unwrap().success);
    node.vm().expect("STATE is encrypted, opened by the nodeID key in slot 0", BOOT).unwrap();
    node.vm().expect(BOOTED, BOOT).unwrap();
    assert_eq!(disk.bytes(at, 4), b"LUKS");
    shut_down(&node);
    drop(node);

    // In another machine it stays shut, and stays.
    let header = disk.bytes(at, HEADER_BYTES);
    let node = on(&disk, "state-elsewhere", OTHER_MACHINE).source("").no_config().start().unwrap();
    node.vm().wait_for("failed to open encrypted device STATE, no key matched", BOOT).unwrap();
    node.wait_locked().unwrap();
    node.vm().quit().unwrap();
    drop(node);
    assert!(disk.bytes(at, HEADER_BYTES) == header);

    let node = on(&disk, "state-at-home", MACHINE).source("").no_config().start().unwrap();
    node.vm().wait_for("machine config: taken from STATE", BOOT).unwrap();
    booted(&node);
    node.admin().ok(&wipe).unwrap();
    node.wait_maintenance().unwrap();
    assert!(node.apply_in_maintenance(&config(&disk, "", "")).unwrap().success);
    node.vm().expect("STATE is /dev/vda5", BOOT).unwrap();
    node.vm().expect(BOOTED, BOOT).unwrap();
    assert_eq!(disk.bytes(at, 4), b"XFSB");
}
