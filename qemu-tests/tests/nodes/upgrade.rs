//! Upgrades from a registry, under firmware and boot loader: to another version and back, staged, and what is
//! refused. What does not boot: `boot_faults`.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use oci::archive;
use oci::installer::FORMAT_LABEL;
use oci::server::Behaviour;
use qemu_tests::artifacts::build;
use qemu_tests::installer_image::{Parts, Registry};
use qemu_tests::node::{BOOT_LIMIT, NodeBuilder};
use qemu_tests::root::copy_sparse;
use qemu_tests::{TestNode, Transport, VmBuilder, paths};
use serde_json::json;

use crate::encryption::{BOOT, MACHINE, node_id, passphrase, section};
use crate::volumes::{Disk, GIB};

/// A layer image of 100 MB is pulled, written and read back.
pub(crate) const UPGRADE_LIMIT: Duration = Duration::from_secs(120);
/// A file on EPHEMERAL.
const KEPT: &str = "/var/kept";

fn up(builder: NodeBuilder, registry: &Registry) -> TestNode {
    let builder = builder.transport(Transport::Firmware);
    let node = builder.machine_section(&registry.machine_section()).boot().unwrap();
    node.expect("billet: boot sequence: done").unwrap();
    node
}

pub(crate) fn upgrade(node: &TestNode, image: &str, more: &[&str]) -> String {
    let words = [&["upgrade", "--wait=false", "--image", image], more].concat();
    node.admin().ok_within(&words, UPGRADE_LIMIT).unwrap()
}

/// The next start, up to the line that the system on trial is kept.
pub(crate) fn expect_kept(node: &TestNode, version: &str, entry: &str) {
    let line = format!("version {version} proved itself and is kept as {entry}");
    node.vm().expect(&line, UPGRADE_LIMIT + BOOT_LIMIT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    assert!(node.admin().ok(&["version"]).unwrap().contains(version));
    let status = node.admin().ok(&["get", "upgradestatus", "-o", "yaml"]).unwrap();
    assert!(status.contains("state: kept") && status.contains(&format!("to: \"{version}\"")), "{status}");
}

/// A node on a disk of this directory with room for EPHEMERAL, so that what becomes of it is seen; a file is on it.
fn with_ephemeral(name: &str, directory: &Path, registry: &Registry) -> TestNode {
    let disk = directory.join("disk.img");
    copy_sparse(&build().test.disk, &disk).unwrap();
    File::options().write(true).open(&disk).unwrap().set_len(4 << 30).unwrap();
    let node = up(TestNode::builder(name).disk(&disk), registry);
    let write = json!({ "op": "write", "path": KEPT, "text": "kept" });
    node.agent().unwrap().ask(write).unwrap();
    node
}

/// Goes back to that version by a new entry of that number.
pub(crate) fn rolls_back(node: &TestNode, version: &str, entry: &str) {
    node.admin().ok(&["rollback"]).unwrap();
    node.vm().expect(&format!("rollback: {entry} starts from now on"), BOOT_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    // /var is mounted after the API is there.
    node.vm().expect("billet: boot sequence: done", BOOT_LIMIT).unwrap();
    assert!(node.admin().ok(&["version"]).unwrap().contains(version));
    let status = node.admin().ok(&["get", "upgradestatus", "-o", "yaml"]).unwrap();
    assert!(status.contains("state: rolled back"), "{status}");
}

#[test]
fn an_upgrade_is_kept_and_a_rollback_goes_back() {
    let registry = Registry::start().unwrap();
    let image = registry.keep("0.2.0", &Parts::of_build().unwrap().image("0.2.0")).unwrap();
    let directory = paths::temporary_dir().unwrap();
    let node = with_ephemeral("upgrade-and-back", directory.path(), &registry);
    assert!(upgrade(&node, &image, &[]).contains("Upgrade request received"));
    node.vm().expect("upgrade: verify: 100 %", UPGRADE_LIMIT).unwrap();
    node.vm().expect("billet-000002+3.efi will be tried", UPGRADE_LIMIT).unwrap();
    expect_kept(&node, "0.2.0", "billet-000002.efi");
    assert_eq!(node.admin().ok(&["read", KEPT]).unwrap(), "kept");
    rolls_back(&node, &build().version, "billet-000003.efi");
    assert_eq!(node.admin().ok(&["read", KEPT]).unwrap(), "kept");
}

/// A downgrade is tried like any other. This one comes out of a file, and wipes EPHEMERAL, but not before it runs.
#[test]
#[ignore = "long run"]
fn a_downgrade_from_a_file_wipes_what_it_was_told_to() {
    let registry = Registry::start().unwrap();
    let directory = paths::temporary_dir().unwrap();
    // This one never is in a registry.
    let older = directory.path().join("older.tar");
    let mut out = File::create(&older).unwrap();
    archive::write(&mut out, &Parts::of_build().unwrap().image("0.0.9")).unwrap();
    let node = with_ephemeral("upgrade-down", directory.path(), &registry);
    let older = older.display().to_string();
    upgrade(&node, &older, &["--preserve=false", "--force", "--reboot-mode=powercycle"]);
    node.vm().expect("imported imported.invalid/installer:0.0.9@sha256:", UPGRADE_LIMIT).unwrap();
    node.vm().expect("billet-000002+3.efi will be tried", UPGRADE_LIMIT).unwrap();
    node.vm().expect("was to wipe EPHEMERAL (preserve=false)", UPGRADE_LIMIT).unwrap();
    node.vm().expect("reset: EPHEMERAL of /dev/vda is unreadable: ", BOOT_LIMIT).unwrap();
    node.vm().expect("EPHEMERAL on /dev/vda was empty: formatted", BOOT_LIMIT).unwrap();
    expect_kept(&node, "0.0.9", "billet-000002.efi");
    assert!(node.admin().refused(&["read", KEPT]).unwrap().contains(KEPT));
    rolls_back(&node, &build().version, "billet-000003.efi");
}

/// The machine's UUID and a passphrase open the volumes of any system: no TPM has to approve one.
#[test]
#[ignore = "long run"]
fn a_staged_upgrade_happens_at_the_next_start_and_encrypted_volumes_stay() {
    let registry = Registry::start().unwrap();
    let image = registry.keep("0.2.0", &Parts::of_build().unwrap().image("0.2.0")).unwrap();
    let disk = Disk::new(4 * GIB);
    let builder = TestNode::builder("upgrade-staged").disk(&disk.path()).transport(Transport::Firmware);
    let builder = builder.machine(|vm: VmBuilder, _| Ok(vm.extra(&["-uuid", MACHINE])));
    let builder = builder.machine_section(&registry.machine_section());
    let builder = builder.machine_section(&section(&node_id(0), &passphrase(0, "for any system")));
    let node = builder.start().unwrap();
    node.wait_api(BOOT).unwrap();
    node.vm().wait_for("EPHEMERAL is encrypted, opened by the static key in slot 0", BOOT).unwrap();
    node.vm().expect("billet: boot sequence: done", BOOT).unwrap();
    node.agent().unwrap().ask(json!({ "op": "write", "path": KEPT, "text": "kept" })).unwrap();
    upgrade(&node, &image, &["--stage"]);
    node.vm().expect("stageUpgrade sequence", BOOT_LIMIT).unwrap();
    node.vm().expect("upgrade: version 0.2.0 from", UPGRADE_LIMIT).unwrap();
    expect_kept(&node, "0.2.0", "billet-000002.efi");
    assert_eq!(node.admin().ok(&["read", KEPT]).unwrap(), "kept");
    node.admin().ok(&["rollback"]).unwrap();
    node.vm().expect("rollback: billet-000003.efi starts from now on", BOOT_LIMIT).unwrap();
    node.vm().expect("STATE on /dev/vda5 opened by the nodeID key in slot 0", BOOT_LIMIT).unwrap();
    node.wait_api(BOOT).unwrap();
    node.vm().expect("billet: boot sequence: done", BOOT).unwrap();
    assert!(!node.admin().ok(&["version"]).unwrap().contains("0.2.0"));
    assert_eq!(node.admin().ok(&["read", KEPT]).unwrap(), "kept");
}

#[test]
#[ignore = "long run"]
fn what_cannot_be_installed_is_refused_and_the_node_is_unharmed() {
    let registry = Registry::start().unwrap();
    let built_as = |version: &str| Parts::of_build().unwrap().image(version);
    let built = || built_as("0.2.0");
    let keep = |tag: &str, change: &dyn Fn(&mut oci::archive::NewImage)| {
        let mut image = built();
        change(&mut image);
        registry.keep(tag, &image).unwrap()
    };
    let signed = registry.keep_in("signed/installer", "signed", &built()).unwrap();
    let key = registry.sign("signed/installer", "signed").unwrap();
    let unsigned = registry.keep_in("signed/installer", "unsigned", &built_as("0.3.0")).unwrap();
    let builder = TestNode::builder("upgrade-refused").documents(&format!(
        "apiVersion: v1alpha1\nkind: ImageVerificationConfig\nrules:\n  - image: registry.invalid/signed/*\n    \
         publicKey:\n      certificate: |\n        {}\n  - image: registry.invalid/denied/*\n    deny: true\n",
        key.trim().replace('\n', "\n        ")
    ));
    let node = up(builder, &registry);
    let refused = |image: &str, why: &str| {
        let said = node.admin().refused(&["upgrade", "--wait=false", "--image", image]).unwrap();
        assert!(said.contains(why), "{image}: {said}");
    };
    refused(&keep("arm64", &|image| image.architecture = "arm64".into()), "is for linux/arm64");
    let talos = keep("talos", &|image| {
        image.labels = [("alpha.talos.dev/version".to_owned(), "v0.9.3".to_owned())].into();
    });
    refused(&talos, "is a Talos installer image (v0.9.3)");
    let newer = keep("newer", &|image| drop(image.labels.insert(FORMAT_LABEL.into(), "2".into())));
    refused(&newer, "has the format 2");
    refused("registry.invalid/billet/installer:none", "not there (404)");
    refused("installer", "name the registry");
    refused(&unsigned, "is not signed with the key that ImageVerificationConfig names");
    refused("registry.invalid/denied/installer:1", "the rule for \"registry.invalid/denied/*\"");
    // The registry goes away once the request was found to be good.
    let good = keep("good", &|_| {});
    registry.behave(Behaviour { gone_after: Some(3), ..Behaviour::default() });
    upgrade(&node, &good, &[]);
    node.vm().expect("deadline stalled pull", UPGRADE_LIMIT).unwrap();
    let status = node.admin().ok(&["get", "upgradestatus", "-o", "yaml"]).unwrap();
    assert!(status.contains("state: failed"), "{status}");
    registry.behave(Behaviour::default());
    upgrade(&node, &signed, &[]);
    expect_kept(&node, "0.2.0", "billet-000002.efi");
}
