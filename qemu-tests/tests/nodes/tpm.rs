//! Keys of a TPM: a volume opens on the machine that made it, in the systems that were approved, and nowhere else. What
//! the TPM is asked and what it refuses is tested on the host, in crates/tpm.

use std::path::{Path, PathBuf};
use std::time::Duration;

use qemu_tests::credentials::Credentials;
use qemu_tests::encrypted_state;
use qemu_tests::installer_image::{Parts, Registry};
use qemu_tests::node::{BOOT_LIMIT, NodeBuilder};
use qemu_tests::{TestNode, Transport, VmBuilder};

use crate::encryption::{MACHINE, apply, node_id, on};
use crate::upgrade::{UPGRADE_LIMIT, expect_kept, upgrade};
use crate::volumes::{BOOTED, Disk, GIB, RESET_LIMIT, shut_down};

/// A start with a file system, a key that is sealed and the derivation of another.
const BOOT: Duration = Duration::from_secs(90);

fn section(pcrs: &str) -> String {
    let key = format!("{{tpm: {{options: {{pcrs: {pcrs}}}}}, slot: 0}}");
    format!("  systemDiskEncryption:\n    state:\n      provider: luks2\n      keys: [{key}]\n")
}

pub(crate) fn with_tpm(builder: NodeBuilder, state: &Path) -> NodeBuilder {
    let state = PathBuf::from(state);
    builder.machine(move |vm: VmBuilder, _| Ok(vm.tpm_in(&state)))
}

#[test]
fn state_opens_with_its_tpm_and_with_no_other() {
    let disk = Disk::new(4 * GIB);
    let own = disk.dir.path().join("tpm");
    let node = with_tpm(disk.node("tpm-first"), &own).machine_section(&section("[7]")).start().unwrap();
    node.vm().wait_for("STATE is encrypted, opened by the tpm key in slot 0", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    let status = node.admin().ok(&["get", "volumestatus", "STATE", "-o", "yaml"]).unwrap();
    assert!(status.contains("encryptionKey: tpm"), "{status}");
    shut_down(&node);
    drop(node);

    let node = with_tpm(disk.node("tpm-again"), &own).source("").no_config().start().unwrap();
    node.vm().wait_for("STATE on /dev/vda5 opened by the tpm key in slot 0", BOOT).unwrap();
    node.vm().wait_for("machine config: taken from STATE", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    shut_down(&node);
    drop(node);

    let at = disk.offset("STATE").unwrap();
    let before = disk.bytes(at, 1 << 20);
    let other = disk.dir.path().join("other-tpm");
    let node = with_tpm(disk.node("tpm-other"), &other).source("").no_config().start().unwrap();
    let line = "tpm key for slot 0: the key was sealed by another TPM, or before this one was cleared";
    node.vm().wait_for(&format!("STATE on /dev/vda5 is locked: {line}"), BOOT).unwrap();
    node.wait_locked().unwrap();
    node.vm().quit().unwrap();
    drop(node);
    assert!(disk.bytes(at, 1 << 20) == before, "what does not open is not written to");
}

/// The documents of both volumes: STATE has another key beside its TPM's.
fn documents(pcrs: &str) -> String {
    let volume = |name: &str, keys: &str| {
        let head = format!("apiVersion: v1alpha1\nkind: VolumeConfig\nname: {name}\n");
        format!("{head}encryption:\n  provider: luks2\n  keys: [{keys}]\n")
    };
    let own = format!("{{tpm: {{options: {{pcrs: {pcrs}}}}}, slot: 0}}");
    let state = volume("STATE", &format!("{own}, {}", node_id(1)));
    format!("{state}---\n{}", volume("EPHEMERAL", &own))
}

/// A thief with the machine copies STATE, header and ciphertext, over the partition of EPHEMERAL: the TPM has its key,
/// and it does not open there.
#[test]
#[ignore = "long run"]
fn state_copied_over_ephemeral_stays_closed() {
    /// LUKS2's header, and what was written of the file system behind it.
    const COPIED_BYTES: usize = 32 << 20;
    let disk = Disk::new(4 * GIB);
    let own = disk.dir.path().join("tpm");
    let builder = on(&disk, "copied-first", MACHINE).documents(&documents("[7]"));
    let node = with_tpm(builder, &own).start().unwrap();
    node.vm().wait_for("EPHEMERAL is encrypted, opened by the tpm key in slot 0", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    shut_down(&node);
    drop(node);

    let (state, ephemeral) = (disk.offset("STATE").unwrap(), disk.offset("EPHEMERAL").unwrap());
    let copy = disk.bytes(state, COPIED_BYTES);
    let image = std::fs::File::options().write(true).open(disk.path()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &copy, ephemeral).unwrap();
    drop(image);
    let node = with_tpm(disk.node("copied-again"), &own).source("").no_config().start().unwrap();
    node.vm().wait_for("STATE on /dev/vda5 opened by", BOOT).unwrap();
    let line = "no key matched: tpm key for slot 0: it was sealed for STATE, not for EPHEMERAL";
    node.vm().wait_for(&format!("failed to open encrypted device EPHEMERAL, {line}"), BOOT).unwrap();
    node.vm().quit().unwrap();
    drop(node);
    assert!(disk.bytes(ephemeral, 1 << 20) == copy[..1 << 20], "what does not open is not written to");
}

/// A thief with the machine deletes STATE and all that META knows of it, and gives a config of their own. The first start
/// stays before EPHEMERAL since the TPM knows where that config came from; the next one, which has it on the thief's
/// STATE, since the salt went with the owner's.
#[test]
fn ephemeral_stays_closed_for_another_state_and_another_config() {
    const BINDING: &str = "EPHEMERAL: the tpm key in slot 0 is bound to this volume, this STATE, configs from STATE or a signed";
    let disk = Disk::new(4 * GIB);
    let own = disk.dir.path().join("tpm");
    let builder = on(&disk, "owner-first", MACHINE).documents(&documents("[7]"));
    let node = with_tpm(builder, &own).start().unwrap();
    node.vm().wait_for("the machine config comes from outside: PCR 15 of the TPM says so", BOOT).unwrap();
    node.vm().wait_for("EPHEMERAL is encrypted, opened by the tpm key in slot 0", BOOT).unwrap();
    node.vm().wait_for(BINDING, BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    shut_down(&node);
    drop(node);
    // What the first start sealed for the next one opens there, without a word of another config.
    let node = with_tpm(on(&disk, "owner-again", MACHINE), &own).source("").no_config().start().unwrap();
    node.vm().wait_for("machine config: taken from STATE", BOOT).unwrap();
    node.vm().wait_for("EPHEMERAL is encrypted, opened by the tpm key in slot 0", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    assert!(!node.vm().console().text().contains("comes from outside"));
    node.answers(BOOT_LIMIT).unwrap();
    shut_down(&node);
    drop(node);

    encrypted_state::delete(&disk.path()).unwrap();
    let ephemeral = disk.offset("EPHEMERAL").unwrap();
    let before = disk.bytes(ephemeral, 1 << 20);
    let header = String::from_utf8_lossy(&before[..32 << 10]).into_owned();
    let settings = r#""billet":{"lockToState":true,"pcrs":[7],"version":3,"volume":"EPHEMERAL"}"#;
    assert!(header.contains(settings), "{header}");
    let thief = Credentials::generate().unwrap();
    let closed = "failed to open encrypted device EPHEMERAL, no key matched: tpm key for slot 0: ";
    let builder = on(&disk, "thief-first", MACHINE).credentials(thief.clone()).documents(&documents("[7]"));
    let node = with_tpm(builder, &own).start().unwrap();
    node.vm().wait_for("STATE is encrypted, opened by the tpm key in slot 0", BOOT).unwrap();
    let reason = "the machine config of this start came from outside (PCR 15)";
    node.vm().wait_for(&format!("{closed}{reason}"), BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    shut_down(&node);
    drop(node);
    let builder = on(&disk, "thief-again", MACHINE).credentials(thief).source("").no_config();
    let node = with_tpm(builder, &own).start().unwrap();
    node.vm().wait_for("machine config: taken from STATE", BOOT).unwrap();
    let reason = "it is locked to another STATE than this one";
    node.vm().wait_for(&format!("{closed}{reason}"), BOOT).unwrap();
    node.vm().quit().unwrap();
    drop(node);
    assert!(disk.bytes(ephemeral, 1 << 20) == before, "what does not open is not written to");
}

/// Register 1 holds what the firmware tells of the machine: another label on its case changes it.
#[test]
#[ignore = "long run"]
fn a_changed_register_is_named_another_key_opens_and_other_registers_are_sealed_to() {
    let disk = Disk::new(4 * GIB);
    let own = disk.dir.path().join("tpm");
    let start = |name: &str, documents: &str, label: &'static str| {
        let builder = on(&disk, name, MACHINE).documents(documents);
        let builder = if documents.is_empty() { builder.source("").no_config() } else { builder };
        let chassis = format!("type=3,asset={label}");
        let builder = builder.machine(move |vm: VmBuilder, _| Ok(vm.extra(&["-smbios", &chassis])));
        with_tpm(builder, &own).start().unwrap()
    };
    let node = start("register-first", &documents("[1]"), "rack-1");
    node.vm().wait_for("EPHEMERAL is encrypted, opened by the tpm key in slot 0", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    shut_down(&node);
    drop(node);

    let (state, ephemeral) = (disk.offset("STATE").unwrap(), disk.offset("EPHEMERAL").unwrap());
    let before = disk.bytes(ephemeral, 1 << 20);
    let node = start("register-changed", "", "rack-2");
    node.vm().wait_for("STATE on /dev/vda5 opened by the nodeID key in slot 1", BOOT).unwrap();
    node.vm().wait_for("machine config: taken from STATE", BOOT).unwrap();
    let line = "no key matched: tpm key for slot 0: PCR 1 changed since the key was sealed";
    node.vm().wait_for(&format!("failed to open encrypted device EPHEMERAL, {line}"), BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    assert!(disk.bytes(ephemeral, 1 << 20) == before, "what does not open is not written to");
    // Other registers, while the other key has STATE open: it is sealed to those, without a restart.
    let text = disk.credentials.machine_config().unwrap();
    apply(&node, &format!("{text}---\n{}", documents("[7]")), "no-reboot").unwrap();
    node.vm().wait_for("STATE: the key in slot 0 was replaced", BOOT).unwrap();
    let header = String::from_utf8_lossy(&disk.bytes(state, 32 << 10)).into_owned();
    assert!(header.contains(r#""billet":{"pcrs":[7],"version":3,"volume":"STATE"}"#), "{header}");
    let wipe = ["reset", "--system-labels-to-wipe", "EPHEMERAL", "--reboot", "--wait=false"];
    node.admin().ok(&wipe).unwrap();
    node.vm().expect("EPHEMERAL on /dev/vda was empty: encrypted and formatted", RESET_LIMIT).unwrap();
    node.vm().expect(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    shut_down(&node);
    drop(node);
    // Its label plays no part any more.
    let node = start("register-back", "", "rack-1");
    node.vm().wait_for("EPHEMERAL is encrypted, opened by the tpm key in slot 0", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
}

/// Register 11 has another value in every system: the new one opens since the old one approved it.
#[test]
#[ignore = "long run"]
fn an_upgrade_opens_what_was_sealed_to_the_system_before() {
    let registry = Registry::start().unwrap();
    let image = registry.keep("0.2.0", &Parts::of_build().unwrap().image("0.2.0")).unwrap();
    let state = registry.new_directory("tpm").unwrap();
    // With room for STATE.
    let disk = Disk::new(4 * GIB);
    let builder = TestNode::builder("tpm-upgrade").disk(&disk.path()).transport(Transport::Firmware);
    let builder = with_tpm(builder, &state);
    let sections = format!("{}{}", registry.machine_section(), section("[7, 11]"));
    let node = builder.machine_section(&sections).boot().unwrap();
    node.vm().wait_for("STATE is encrypted, opened by the tpm key in slot 0", BOOT).unwrap();
    node.vm().expect("billet: boot sequence: done", BOOT).unwrap();
    // This start took its config from outside: the key is for the next ones, and approves nothing in this one.
    upgrade(&node, &image, &[]);
    let line = "restart the machine first, then upgrade";
    node.vm().expect(line, UPGRADE_LIMIT).unwrap();
    node.admin().ok(&["reboot", "--wait=false"]).unwrap();
    node.vm().expect("STATE on /dev/vda5 opened by the tpm key in slot 0", BOOT).unwrap();
    node.vm().expect("billet: boot sequence: done", BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    upgrade(&node, &image, &[]);
    node.vm().expect("billet-000002+3.efi will be tried", UPGRADE_LIMIT).unwrap();
    node.vm()
        .expect("STATE on /dev/vda5 opened by the tpm key in slot 0", UPGRADE_LIMIT + BOOT_LIMIT)
        .unwrap();
    expect_kept(&node, "0.2.0", "billet-000002.efi");
    // And the old one opens as well.
    node.admin().ok(&["rollback"]).unwrap();
    node.vm().expect("STATE on /dev/vda5 opened by the tpm key in slot 0", BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
}
