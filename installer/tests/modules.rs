//! Modules and firmware that are added to the kernel of an image.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use common::modular::{OLD, content, customised, files, in_initramfs, listed, names, on_the_network, source};
use common::module;
use installer::custom::{Addition, From, Profile};
use installer::image::Source;

#[test]
fn modules_are_added_to_the_kernel_that_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let more = files(
        &dir.path().join("more"),
        &[
            (&format!("usr/lib/modules/{OLD}/extra/driver.ko"), &module("depends=fat alias=pci:v1*")),
            (&format!("usr/lib/modules/{OLD}/updates/vfat.ko"), &module("depends=fat alias=fs-vfat")),
        ],
    );
    let addition = Addition { from: From::Directory(more), to: String::new() };
    let profile = Profile { additions: vec![addition], ..Profile::default() };
    let made = customised(&source, &profile, &dir.path().join("work")).unwrap();
    assert_eq!(names(&made), ["base", "kernel", "custom"]);
    let index = |name: &str| content(&made, "custom", &format!("usr/lib/modules/{OLD}/{name}"));
    assert_eq!(
        index("modules.dep"),
        "extra/driver.ko: kernel/fat.ko\nkernel/fat.ko:\nkernel/igb.ko.gz:\nupdates/vfat.ko: kernel/fat.ko\n"
    );
    assert_eq!(index("modules.alias"), "alias fs-vfat vfat\nalias pci:v1* driver\n");
    // One of them belongs to those that the initramfs has.
    let initramfs = in_initramfs(&made, dir.path());
    assert!(initramfs.contains("updates/vfat.ko\n") && initramfs.contains("kernel/fat.ko\n"), "{initramfs}");
    assert!(listed(&made, "custom").contains("boot/modules.cpio.zst"));
}

/// `make modules_install` leaves an index of nothing but what it installed.
#[test]
fn modules_that_are_added_with_an_index_take_no_others_out_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let directory = format!("usr/lib/modules/{OLD}");
    let more = files(
        &dir.path().join("more"),
        &[
            (&format!("{directory}/extra/driver.ko"), &module("depends=fat alias=pci:v1*")),
            (&format!("{directory}/extra/packed.ko.xz"), b"packed"),
            (
                &format!("{directory}/modules.dep"),
                b"extra/driver.ko:\nextra/packed.ko.xz: extra/driver.ko kernel/vfat.ko.xz kernel/gone.ko.xz\n",
            ),
            (&format!("{directory}/modules.alias"), b"alias pci:v1* driver\nalias pci:v2* packed\n"),
        ],
    );
    let addition = Addition { from: From::Directory(more), to: String::new() };
    let profile = Profile { additions: vec![addition], ..Profile::default() };
    let made = customised(&source, &profile, &dir.path().join("work")).unwrap();
    let index = |name: &str| content(&made, "custom", &format!("{directory}/{name}"));
    assert_eq!(
        index("modules.dep"),
        "extra/driver.ko: kernel/fat.ko\nextra/packed.ko.xz: extra/driver.ko kernel/vfat.ko kernel/fat.ko\n\
         kernel/fat.ko:\nkernel/igb.ko.gz:\nkernel/vfat.ko: kernel/fat.ko\n"
    );
    assert_eq!(index("modules.alias"), "alias fs-vfat vfat\nalias pci:v1* driver\nalias pci:v2* packed\n");
}

/// A card's driver that is replaced, one that is new, and a replaced module that is no card's: each lies in the initramfs for
/// the network where its index says, and so does everything else that the index names.
#[test]
fn modules_that_are_added_reach_machines_that_start_from_the_network() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let directory = format!("lib/modules/{OLD}");
    for (name, replaces) in
        [("updates/igb.ko", "kernel/igb"), ("extra/virtio_net.ko", ""), ("updates/vfat.ko", "kernel/vfat")]
    {
        let own = module(&format!("depends=fat description={name}"));
        let place = dir.path().join(name.replace('/', "-"));
        let more = files(&place.join("files"), &[(&format!("usr/{directory}/{name}"), &own)]);
        let addition = Addition { from: From::Directory(more), to: String::new() };
        let profile = Profile { additions: vec![addition], ..Profile::default() };
        let made = customised(&source, &profile, &place.join("work")).unwrap();
        let found = on_the_network(&made, &place);
        assert_eq!(found.get(&format!("{directory}/{name}")), Some(&own), "{name}: {:?}", found.keys());
        let dep = String::from_utf8(found[&format!("{directory}/modules.dep")].clone()).unwrap();
        assert!(dep.contains(&format!("{name}: kernel/fat.ko\n")), "{dep}");
        assert!(replaces.is_empty() || !dep.contains(replaces), "{dep}");
        for path in dep.lines().map(|line| line.split(':').next().unwrap()) {
            assert!(
                found.contains_key(&format!("{directory}/{path}")),
                "{name}: {path} is not in the initramfs"
            );
        }
    }
}

/// It would lie in the root and do nothing, whichever way it came there.
#[test]
fn microcode_is_told_of_wherever_it_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let directory = |name: &str, all: &[(&str, &[u8])]| files(&dir.path().join(name), all);
    let firmware = directory("firmware", &[("intel-ucode/06-00-00", b"m"), ("bnx2/a.fw", b"a")]);
    let added = directory("added", &[("lib/firmware/amd-ucode/microcode_amd.bin", b"m")]);
    let card = directory("card", &[("bnx2/a.fw", b"a"), ("amd-ucode-notes/readme", b"no microcode")]);
    let add = |directory: &PathBuf| Addition { from: From::Directory(directory.clone()), to: String::new() };
    let warnings = |profile: Profile, work: &str| {
        customised(&source, &profile, &dir.path().join(work)).unwrap().warnings
    };
    let said = |directory: &PathBuf| {
        let directory = directory.display();
        format!(
            "{directory}: nodes do not load the processor microcode that it brings; the firmware's counts"
        )
    };
    let both = Profile {
        additions: vec![add(&added)],
        firmware: vec![firmware.clone(), card.clone()],
        ..Profile::default()
    };
    assert_eq!(warnings(both, "both"), [said(&added), said(&firmware)]);
    let none = Profile { additions: vec![add(&card)], firmware: vec![card], ..Profile::default() };
    assert!(warnings(none, "none").is_empty());
}

/// Cards may need their firmware before there is a root, and nodes after: it is in both, and what comes later counts.
#[test]
fn firmware_is_in_the_initramfs_for_the_network_and_in_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let directory = |name: &str, all: &[(&str, &[u8])]| files(&dir.path().join(name), all);
    let with = |source: &Source, firmware: Vec<PathBuf>, remove: &[&str], work: &str| {
        let remove = remove.iter().map(|path| (*path).to_owned()).collect();
        let profile = Profile { firmware, remove, ..Profile::default() };
        customised(source, &profile, &dir.path().join(work)).unwrap()
    };
    let first = directory("first", &[("bnx2/a.fw", b"a"), ("bnx2x/b.fw", b"b")]);
    std::os::unix::fs::symlink("a.fw", first.join("bnx2/link.fw")).unwrap();
    let made = with(&source, vec![first.clone(), first], &[], "one");
    assert!(listed(&made, "custom").contains("usr/lib/firmware/bnx2/a.fw"));
    let found = on_the_network(&made, dir.path());
    let firmware = |found: &BTreeMap<String, Vec<u8>>, name: &str| {
        found.get(&format!("lib/firmware/{name}")).map(|content| String::from_utf8(content.clone()).unwrap())
    };
    for (name, wanted) in [("bnx2/a.fw", "a"), ("bnx2/link.fw", "a.fw"), ("bnx2x/b.fw", "b")] {
        assert_eq!(firmware(&found, name).as_deref(), Some(wanted), "{name}");
    }
    assert!(found.contains_key(&format!("lib/modules/{OLD}/kernel/igb.ko")), "drivers stay");
    let has = |bytes: Vec<u8>| {
        bytes.windows(made.system.boot.firmware.len()).any(|w| w == made.system.boot.firmware)
    };
    assert!(!has(made.system.initramfs().unwrap()), "a disk's initramfs has none");
    assert!(has(made.system.network_initramfs().unwrap().unwrap()));

    // Modules that come later leave it, other firmware takes its place, and it goes with the root's.
    let more = directory("more", &[(&format!("usr/lib/modules/{OLD}/updates/igb.ko"), &module("depends="))]);
    let addition = Addition { from: From::Directory(more), to: String::new() };
    let second = vec![directory("second", &[("bnx2/a.fw", b"new")])];
    let profile = Profile { additions: vec![addition], firmware: second.clone(), ..Profile::default() };
    let newer = customised(&made, &profile, &dir.path().join("two")).unwrap();
    let found = on_the_network(&newer, dir.path());
    assert_eq!(firmware(&found, "bnx2/a.fw").as_deref(), Some("new"));
    assert_eq!(firmware(&found, "bnx2x/b.fw").as_deref(), Some("b"));
    let again = with(&newer, second, &["/lib/firmware"], "three");
    let found = on_the_network(&again, dir.path());
    assert_eq!(firmware(&found, "bnx2/a.fw").as_deref(), Some("new"));
    assert_eq!(firmware(&found, "bnx2x/b.fw"), None);

    let large = directory("large", &[]);
    fs::create_dir_all(&large).unwrap();
    fs::File::create(large.join("graphics.bin")).unwrap().set_len((32 << 20) + 1).unwrap();
    let made = with(&source, vec![large], &[], "large-work");
    let [warning] = made.warnings.as_slice() else { panic!("{:?}", made.warnings) };
    assert!(warning.contains("firmware: 33 MB are too much") && warning.contains("takes 32 MB"), "{warning}");
    assert!(made.system.boot.firmware.is_empty() && listed(&made, "custom").contains("graphics.bin"));
}
