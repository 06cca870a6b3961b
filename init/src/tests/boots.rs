//! Boots that succeed, call by call.

use handoff::{Action, ToInit, ToMachined};

use super::golden;
use super::world::{
    RECORD, encrypted, machine, root, short_life, with_disk, with_layers, with_loader, with_medium,
    with_partitions, with_volume,
};
use crate::kernel::End;
use crate::recording::{Event, Recording, message};

fn transcript(name: &str, mut kernel: Recording) -> Recording {
    crate::run(&mut kernel);
    golden(name, &(kernel.calls.join("\n") + "\n"));
    assert_eq!(kernel.errors(), Vec::<&str>::new());
    assert_eq!(kernel.ends.first(), Some(&End::PowerOff));
    kernel
}

#[test]
fn from_the_initramfs() {
    let kernel = transcript("boot-initramfs.txt", short_life(with_layers(machine(""), "/billet/layers")));
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert_eq!(start.report.root_source, "initramfs");
    assert_eq!(start.report.kernel_release, "6.12.0-test");
    assert_eq!(start.report.layers[1].device, "/dev/dm-1");
    let plan: usize = crate::sequences::BOOT.tasks().count();
    assert_eq!(start.report.spans.len(), plan);
}

#[test]
fn in_a_container() {
    let mut kernel = short_life(machine(""));
    kernel.is_container = true;
    let kernel = transcript("boot-container.txt", kernel);
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert_eq!(start.report.version, "0.1.0");
    for call in ["mount", "sysrq", "umount", "unmount"] {
        assert!(!kernel.calls.iter().any(|line| line.contains(call)), "{call} is the host's");
    }
}

#[test]
fn from_the_disk_that_the_loader_names() {
    let slot = root().1;
    // Another disk with the same layers does not disturb.
    let kernel = with_disk(with_disk(machine(""), "vda", 1, &slot), "vdb", 2, &slot);
    let kernel = transcript("boot-disk.txt", short_life(with_loader(kernel, 2)));
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert_eq!(start.report.root_source, "/dev/vdb2 (ROOT-A)");
}

#[test]
fn from_the_only_disk_without_firmware_variables() {
    let slot = root().1;
    let kernel = with_disk(with_disk(machine(""), "vda", 1, &[]), "vdb", 2, &slot);
    transcript("boot-only-disk.txt", short_life(kernel));
}

#[test]
fn from_a_disk_that_comes_late_and_whose_partition_the_kernel_does_not_know() {
    let slot = root().1;
    let mut late = with_disk(Recording::new(), "vda", 1, &slot).files;
    let device = late.remove("/dev/vda").unwrap();
    let partition = late.remove("/sys/block/vda/vda2/size").unwrap();
    let mut kernel = machine("");
    kernel.files.extend(late);
    kernel.events.extend([Event::File("/dev/vda", device), Event::Time(1)]);
    kernel.events.push_back(Event::File("/sys/block/vda/vda2/size", partition));
    transcript("boot-late-disk.txt", short_life(kernel));
}

#[test]
fn from_a_disk_whose_state_is_encrypted() {
    let kernel = transcript("boot-encrypted.txt", short_life(encrypted(RECORD)));
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert!(start.report.unlock.as_ref().unwrap().opened.is_some());
}

#[test]
fn from_a_labelled_medium() {
    let kernel = with_medium(machine("billet.root=label:BILLET"), "BILLET");
    let kernel = transcript("boot-label.txt", short_life(kernel));
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert_eq!(start.report.root_source, "/dev/sr0 (label BILLET)");
}

#[test]
fn from_the_medium_that_holds_the_layers_beside_an_older_one() {
    for parameters in ["", "billet.root=label:BILLET"] {
        let mut kernel = short_life(with_volume(with_medium(machine(parameters), "BILLET"), "sda", "BILLET"));
        kernel.empty = vec!["/dev/sda"];
        crate::run(&mut kernel);
        assert_eq!(kernel.errors(), Vec::<&str>::new());
        let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
        assert_eq!(start.report.root_source, "/dev/sr0 (label BILLET)");
        let why = "not the root: /dev/sda: layer base is not there, or of another version; looking for another medium";
        assert_eq!(
            kernel.warnings().iter().filter(|text| **text == why).count(),
            1,
            "{:?}",
            kernel.warnings()
        );
    }
}

#[test]
fn two_layers_of_the_same_content_and_names_of_the_greatest_length() {
    let (mut manifest, mut slot) = root();
    let mut twin = manifest.layers[0].clone();
    twin.offset = manifest.slot_bytes();
    twin.name = "x".repeat(ondisk::manifest::MAX_TEXT_BYTES);
    slot.resize(usize::try_from(twin.offset).unwrap(), 0);
    slot.extend_from_within(..usize::try_from(twin.total_bytes()).unwrap());
    // Its name is that of the mapping below another layer, but for the dot.
    let mut named = manifest.layers[0].clone();
    named.offset = twin.end();
    named.name = "kernel-slice".into();
    slot.extend_from_within(..usize::try_from(named.total_bytes()).unwrap());
    manifest.layers.extend([twin, named]);
    let kernel = with_disk(machine(""), "vda", 1, &slot).file(ondisk::manifest::PATH, manifest.to_json());
    let mut kernel = short_life(kernel);
    crate::run(&mut kernel);
    assert_eq!(kernel.errors(), Vec::<&str>::new());
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert_eq!(start.report.layers.len(), 4);
}

#[test]
fn from_a_medium_although_the_loader_names_a_partition_of_it() {
    let kernel = with_partitions(with_medium(machine(""), "BILLET"), "sda", 1, &[], &["EFI"]);
    let mut kernel = short_life(with_loader(kernel, 1));
    crate::run(&mut kernel);
    assert_eq!(kernel.errors(), Vec::<&str>::new());
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert_eq!(start.report.root_source, "/dev/sr0 (label BILLET)");
}

#[test]
fn the_key_of_configs_is_left_for_machined() {
    let kernel = with_layers(machine(""), "/billet/layers").file(ondisk::bundle::KEY_PATH, [7; 32]);
    let mut kernel = short_life(kernel);
    crate::run(&mut kernel);
    assert!(kernel.calls.iter().any(|c| c == "create /run/billet/config.key 444, 32 bytes"));
    // One that is no key is no reason not to boot.
    let kernel = with_layers(machine(""), "/billet/layers").file(ondisk::bundle::KEY_PATH, [7; 33]);
    let mut kernel = short_life(kernel);
    crate::run(&mut kernel);
    assert_eq!(kernel.errors(), Vec::<&str>::new());
    assert!(!kernel.calls.iter().any(|c| c.starts_with("create /run/billet/config.key")));
}

#[test]
fn one_layer_is_mounted_directly() {
    let mut manifest = root().0;
    manifest.layers.truncate(1);
    let kernel = with_layers(machine(""), "/billet/layers").file(ondisk::manifest::PATH, manifest.to_json());
    let mut kernel = short_life(kernel);
    crate::run(&mut kernel);
    assert!(kernel.calls.iter().any(|c| c == "mount /dev/dm-0 /sysroot squashfs ro,nodev,"));
    assert!(!kernel.calls.iter().any(|c| c.contains("overlay /sysroot")));
}

#[test]
fn shutdown_halts_where_the_command_line_says_so() {
    let mut kernel = short_life(with_layers(machine("talos.shutdown=halt"), "/billet/layers"));
    crate::run(&mut kernel);
    assert_eq!(kernel.ends.first(), Some(&End::Halt));
}

#[test]
fn kexec_and_reboot_are_done_as_asked() {
    for (action, end) in [(Action::Kexec, End::Kexec), (Action::Reboot, End::Restart)] {
        let mut kernel = with_layers(machine(""), "/billet/layers");
        kernel.events.extend([message(&ToInit::Ready), message(&ToInit::Finish { action, reason: "x" })]);
        crate::run(&mut kernel);
        assert_eq!(kernel.ends.first(), Some(&end));
        assert!(!kernel.calls.iter().any(|c| c == "disarm watchdog"));
    }
}
