//! Roots that are wrong: one line says what, then the machine restarts. Nothing corrupt is ever delivered.

use std::time::Duration;

use qemu_tests::node::{BOOT_LIMIT, NodeBuilder, READY_LINE};
use qemu_tests::root::Root;
use qemu_tests::settings::{Random, seed};
use qemu_tests::{Bus, Drive, TestNode, Transport};
use serde_json::json;

mod fingerprints;

/// What init's line starts with when a boot ends.
const FAILED: &str = "billet: init: boot failed: ";

/// init waits this long for devices before it gives up on a root that is nowhere.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// Boots what must not boot; returns the one line that says why.
fn failure_of(builder: NodeBuilder) -> String {
    failed_boot(builder).0
}

/// The same with everything on the console. The restart ends the VM.
fn failed_boot(builder: NodeBuilder) -> (String, String) {
    let node = builder.command_line("panic=1").machine(|vm, _| Ok(vm.reboot_ends())).start().unwrap();
    let line = node.vm().expect(FAILED, SETTLE_LIMIT).unwrap();
    assert!(node.vm().wait_exit(BOOT_LIMIT).unwrap().success());
    let text = node.vm().console().text();
    assert_eq!(text.matches(FAILED).count(), 1, "more than one line:\n{text}");
    assert!(!text.contains("Kernel panic"), "init let the kernel panic:\n{text}");
    assert!(line.contains("restarting in 1 s"), "{line}");
    (line, text)
}

fn assert_names(line: &str, words: &[&str]) {
    for word in words {
        assert!(line.contains(word), "the line does not name {word}: {line}");
    }
}

#[test]
#[ignore = "long run"]
fn a_missing_manifest() {
    let node = TestNode::builder("root-no-manifest").spoil(|root| {
        root.missing_files.push("etc/billet/root.json".into());
        Ok(())
    });
    assert_names(&failure_of(node), &["read_root_manifest", "/etc/billet/root.json", "ENOENT"]);
}

#[test]
#[ignore = "long run"]
fn a_manifest_that_is_none() {
    let node = TestNode::builder("root-bad-manifest").spoil(|root| {
        root.manifest_override = Some(b"{\"format\":1,\"version\":".to_vec());
        Ok(())
    });
    assert_names(&failure_of(node), &["read_root_manifest", "/etc/billet/root.json"]);
}

#[test]
fn a_manifest_with_another_root_hash() {
    let node = TestNode::builder("root-other-hash").spoil(|root| {
        let mut manifest = Root::built_manifest()?;
        let layer = &mut manifest.layers[0];
        layer.root_hash.0[0] ^= 1;
        // The bytes are found, under the name that the manifest gives them, and are not believed.
        root.layers[0].file_name = layer.file_name();
        root.set_manifest(&manifest);
        Ok(())
    });
    assert_names(&failure_of(node), &["layer base", "corrupt"]);
}

#[test]
#[ignore = "long run"]
fn a_truncated_layer() {
    let node = TestNode::builder("root-truncated").spoil(|root| {
        let bytes = &mut root.layer("kernel")?.bytes;
        bytes.truncate(bytes.len() - 4096);
        Ok(())
    });
    assert_names(&failure_of(node), &["check_layer_sizes", "layer kernel", "truncated"]);
}

#[test]
#[ignore = "long run"]
fn a_kernel_layer_of_another_release() {
    let node = TestNode::builder("root-other-release").spoil(|root| {
        let mut manifest = Root::built_manifest()?;
        for layer in manifest.layers.iter_mut().filter(|layer| layer.kernel_release.is_some()) {
            layer.kernel_release = Some("5.10.0-other".into());
        }
        root.set_manifest(&manifest);
        Ok(())
    });
    let release = &qemu_tests::artifacts::build().kernel_release;
    assert_names(&failure_of(node), &["check_kernel_release", "5.10.0-other", release]);
}

#[test]
#[ignore = "long run"]
fn a_module_that_is_missing() {
    let node = TestNode::builder("root-no-module").spoil(|root| {
        let release = &qemu_tests::artifacts::build().kernel_release;
        root.missing_files.push(format!("lib/modules/{release}/kernel/drivers/md/dm-verity.ko"));
        Ok(())
    });
    let (line, text) = failed_boot(node);
    assert_names(&line, &["map_layers", "layer base", "put dm-verity.ko into the initramfs"]);
    assert_names(&text, &["billet: init: load module", "/dm-verity.ko: ENOENT"]);
}

#[test]
#[ignore = "long run"]
fn two_disks_that_could_be_the_root() {
    let node = TestNode::builder("root-two-disks").transport(Transport::Slot).machine(|vm, _| {
        let second = &qemu_tests::artifacts::build().test.disk;
        Ok(vm.drive(Drive::new(second, Bus::Virtio)))
    });
    assert_names(&failure_of(node), &["/dev/vda (ROOT-A)", "/dev/vdc (ROOT-A)"]);
}

#[test]
fn no_root_anywhere() {
    let node = TestNode::builder("root-nowhere").spoil(|root| {
        root.layers.clear();
        Ok(())
    });
    assert_names(&failure_of(node), &["find_layers", "BILLET"]);
}

#[test]
#[ignore = "long run"]
fn an_unknown_parameter_is_a_warning() {
    let node = TestNode::builder("root-unknown-parameter").command_line("billet.rooot=disk").boot().unwrap();
    let warning = "kernel parameter billet.rooot is not known and has no effect";
    assert!(node.vm().console().text().contains(warning));
    assert!(node.admin().ok(&["dmesg"]).unwrap().contains(warning));
}

#[test]
fn a_corrupt_block_during_boot() {
    for (name, transport) in
        [("root-corrupt-block", Transport::Initramfs), ("root-corrupt-slot", Transport::Slot)]
    {
        let node = TestNode::builder(name).transport(transport).spoil(|root| root.flip("base", 100, 0x10));
        assert_names(&failure_of(node), &["layer base: data block 0 is corrupt"]);
    }
}

#[test]
#[ignore = "long run"]
fn a_corrupt_hash_block_during_boot() {
    let node = TestNode::builder("root-corrupt-hash").spoil(|root| {
        let hash_offset = usize::try_from(Root::built_manifest()?.layers[0].hash_offset)?;
        root.flip("base", hash_offset + 5, 1)
    });
    assert_names(&failure_of(node), &["layer base: hash block", "is corrupt"]);
}

/// Boots of each transport.
const BOOTS: u32 = 33;

/// Bits flipped in one boot. Few enough that most boots get through to where files are compared.
const FLIPS: usize = 4;

/// Whatever bits flip: a file is intact or EIO, or the boot ends with a line that names the layer. A node whose network
/// driver, API or test agent was hit runs without them: then its console must show the corrupt block.
fn flipped_bits_are_never_delivered(name: &str, transport: Transport) {
    let intact = fingerprints::intact();
    let mut random = Random::new(seed().wrapping_add(transport as u64));
    let (mut refused_boots, mut refused_files, mut intact_files, mut mute) = (0, 0, 0, 0);
    for _ in 0..BOOTS {
        let flips: Vec<(usize, u64, u8)> =
            (0..FLIPS).map(|_| (random.below(2), random.number(), random.bit())).collect();
        let node = TestNode::builder(name)
            .transport(transport)
            .command_line("panic=1")
            .spoil(move |root| spoil(root, &flips))
            .machine(|vm, _| Ok(vm.reboot_ends()))
            .start()
            .unwrap();
        let ready = node.vm().expect_with("the API or a corrupt block", SETTLE_LIMIT, |text| {
            let found =
                text.find(READY_LINE).map(|at| (true, at)).or(text.find(FAILED).map(|at| (false, at)));
            found.map(|(ready, at)| (ready, at + 1))
        });
        let ready = match ready {
            Ok(ready) => ready,
            // What serves the API was hit in a place that it only comes to later: it is started again and again.
            Err(error) => {
                let runs = node.vm().over().is_none();
                assert!(runs && is_corrupt(&node), "no block is corrupt, or the boot ended: {error:#}");
                mute += 1;
                continue;
            }
        };
        if ready {
            match node.agent() {
                Ok(agent) => {
                    let (same, refused) = fingerprints::compare(intact, &agent.fingerprints("/").unwrap());
                    intact_files += same;
                    refused_files += refused;
                }
                Err(error) => {
                    assert!(is_corrupt(&node), "no block is corrupt, and yet {error:#}");
                    mute += 1;
                }
            }
        } else {
            let line = node.vm().expect("corrupt", BOOT_LIMIT).unwrap();
            assert!(line.contains("layer base") || line.contains("layer kernel"), "{line}");
            refused_boots += 1;
        }
    }
    eprintln!(
        "{name}: seed {}: {intact_files} files intact, {refused_files} refused, {refused_boots} boots refused, {mute} nodes mute",
        seed()
    );
    assert!(intact_files + refused_files + refused_boots + mute > 0);
}

/// Whether the kernel said that it met a corrupt block.
fn is_corrupt(node: &TestNode) -> bool {
    node.vm().console().text().contains(" is corrupted")
}

fn spoil(root: &mut Root, flips: &[(usize, u64, u8)]) -> anyhow::Result<()> {
    for (layer, at, mask) in flips {
        let name = ["base", "kernel"][*layer];
        let length = u64::try_from(root.layer(name)?.bytes.len())?;
        root.flip(name, usize::try_from(at % length)?, *mask)?;
    }
    Ok(())
}

#[test]
#[ignore = "long run"]
fn bits_flipped_in_the_initramfs() {
    flipped_bits_are_never_delivered("flips-initramfs", Transport::Initramfs);
}

#[test]
#[ignore = "long run"]
fn bits_flipped_on_a_disk() {
    flipped_bits_are_never_delivered("flips-disk", Transport::Slot);
}

#[test]
#[ignore = "long run"]
fn bits_flipped_on_a_medium() {
    flipped_bits_are_never_delivered("flips-medium", Transport::Medium);
}

/// Where the kernel layer's files are.
const MODULES: &str = "/usr/lib/modules";

/// A block that the boot does not touch: the node runs, the files in it answer EIO, all others are intact.
#[test]
fn a_corrupt_block_after_boot_is_an_error_of_its_files() {
    let node = TestNode::builder("root-late-corruption").transport(Transport::Slot).boot().unwrap();
    let agent = node.agent().unwrap();
    let intact = agent.fingerprints(MODULES).unwrap();
    let offset = fingerprints::middle_of_kernel_layer().unwrap();
    agent.ask(json!({ "op": "flip-byte", "path": "/dev/vda", "offset": offset, "mask": 1 })).unwrap();
    agent.ask(json!({ "op": "drop-caches" })).unwrap();
    let (same, refused) = fingerprints::compare(&intact, &agent.fingerprints(MODULES).unwrap());
    assert!(refused > 0, "{same} files intact, none refused");
    assert!(same > refused, "{same} files intact, {refused} refused");
    assert!(node.admin().run(&["version"]).unwrap().success);
}
