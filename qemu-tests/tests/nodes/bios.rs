//! docs/users/installing.md on a machine without UEFI: SeaBIOS, GRUB, and the model of GRUB's choice against GRUB.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use installer::certify::{self, Job, Scope, Started};
use installer::device::{Disk, Memory, Tears};
use installer::esp::Esp;
use ondisk::Digest;
use qemu_tests::credentials::{Credentials, HOSTNAME};
use qemu_tests::emulated::NO_TIMER_CHECK;
use qemu_tests::installer_image::{Parts, Registry};
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::settings::{Random, rounds, seed};
use qemu_tests::{Bus, Drive, TestNode, Transport, grub, paths};

/// Everything that an installed disk has, and a little of EPHEMERAL; nearly all of it is a hole.
const DISK_BYTES: u64 = 4 << 30;
const INSTALL_LIMIT: Duration = Duration::from_secs(120);
const UPGRADE_LIMIT: Duration = Duration::from_secs(120);
const FALLBACK_LIMIT: Duration = Duration::from_secs(180);

/// Where a GPT begins with its partitions; the sector of the environment block is the only one that GRUB may change.
const SECTOR: usize = 512;

/// A state to start, and what the model says that it starts.
struct Pick {
    name: String,
    disk: Memory,
    started: Started,
}

/// States of the operations on disks with GRUB, chosen at random, as many from each.
fn picks(each: usize, random: &mut Random) -> Vec<Pick> {
    let scope = Scope { seeds: 1..2, loader: b"no loader".to_vec() };
    let ours = |job: &Job| job.operation.starts_with("bios ") && job.operation != "bios install";
    let mut picks = Vec::new();
    for job in certify::jobs(&scope).into_iter().filter(ours) {
        let case = job.case(&scope.loader).unwrap();
        let mut judge = case.judge();
        let states = case.each_state(Tears::Few, |_, _| ControlFlow::Continue(()));
        // The last one is where the operation is through.
        let chosen: BTreeSet<usize> = (1..each).map(|_| 1 + random.below(states)).chain([states]).collect();
        case.each_state(Tears::Few, |number, mut state| {
            if chosen.contains(&number) {
                let started = judge.start(&mut state.disk).unwrap();
                let name = format!("{} state {number}: {}", job.name(), case.describe(&state));
                picks.push(Pick { name, disk: state.disk, started });
            }
            ControlFlow::Continue(())
        });
    }
    picks
}

/// Sectors in which two images differ.
fn changed(before: &Memory, image: &Path) -> Vec<u64> {
    let after = std::fs::read(image).unwrap();
    let mut whole = vec![0; after.len()];
    ondisk::ReadAt::read_at(&mut before.clone(), 0, &mut whole).unwrap();
    let pairs = whole.chunks(SECTOR).zip(after.chunks(SECTOR)).enumerate();
    pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| at as u64).collect()
}

/// Starts a state for real: GRUB chooses what the model chooses, counts it if it is on trial, and writes nothing else.
fn agrees(pick: &mut Pick, image: &Path) {
    grub::put(&mut pick.disk).unwrap();
    pick.disk.save(image).unwrap();
    let said = grub::start("grub", image).unwrap_or_else(|error| panic!("{}: {error:#}", pick.name));
    let entry = pick.started.entry;
    assert_eq!(said, entry.generation, "{}: the model chose {}", pick.name, pick.started);
    let table = certify::table(&mut pick.disk.clone()).unwrap();
    let (start, length) = certify::place(&table, "EFI").unwrap();
    let mut disk = Disk::open_shared(image).unwrap();
    let entries = Esp::new(&mut disk, start, length).entries().unwrap();
    let sectors = changed(&pick.disk, image);
    match entry.trial.is_some() && !entry.is_exhausted() {
        true => {
            assert!(entries.contains(&entry.started()), "{}: {entries:?}", pick.name);
            assert_eq!(sectors.len(), 1, "{}: GRUB wrote to sectors {sectors:?}", pick.name);
        }
        false => assert!(sectors.is_empty(), "{}: GRUB wrote to sectors {sectors:?}", pick.name),
    }
}

#[test]
fn grub_chooses_what_the_model_chooses() {
    let each = usize::try_from(rounds(4, 50)).unwrap();
    let mut random = Random::new(seed());
    let directory = paths::temporary_dir().unwrap();
    let image = directory.path().join("disk.img");
    let (mut trials, mut contents) = (0, BTreeSet::new());
    for mut pick in picks(each, &mut random) {
        trials += usize::from(pick.started.entry.trial.is_some());
        contents.insert(Digest::sha256(&[pick.started.to_string().as_bytes()]).to_string());
        agrees(&mut pick, &image);
    }
    assert!(trials > 0 && contents.len() > 3, "{trials} trials, {} different outcomes", contents.len());
}

/// Three starts of a trial, then the kept one, again and again.
#[test]
#[ignore = "long run"]
fn grub_gives_a_trial_three_starts() {
    let scope = Scope { seeds: 2..3, loader: b"no loader".to_vec() };
    let is_upgrade = |job: &Job| job.name() == "bios-upgrade-a-to-b-512-2";
    let job = certify::jobs(&scope).into_iter().find(is_upgrade).unwrap();
    let mut disk = job.case(&scope.loader).unwrap().after;
    grub::put(&mut disk).unwrap();
    let directory = paths::temporary_dir().unwrap();
    let image = directory.path().join("disk.img");
    disk.save(&image).unwrap();
    let started: Vec<u32> = (0..5).map(|_| grub::start("grub-trial", &image).unwrap()).collect();
    assert_eq!(started, [2, 2, 2, 1, 1]);
}

/// The config with the test registry and what an emulated processor needs, since GRUB starts the UKI's command line alone.
fn config(credentials: &Credentials, registry: &Registry) -> String {
    let text = credentials.machine_config().unwrap();
    let text = text.replacen("machine:\n", &format!("machine:\n{}", registry.machine_section()), 1);
    let line = text.lines().find(|line| line.trim_start() == "disk: /dev/sda").unwrap();
    let indent = " ".repeat(line.len() - line.trim_start().len());
    text.replacen(line, &format!("{line}\n{indent}extraKernelArgs: [{NO_TIMER_CHECK}]"), 1)
}

/// Installs from maintenance mode on a machine without UEFI.
fn install(disk: &Path, credentials: Credentials, config: &str) -> Credentials {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(disk).unwrap();
    file.set_len(DISK_BYTES).unwrap();
    let image = disk.to_path_buf();
    let node = TestNode::builder("bios-install")
        .installs()
        .source("")
        .no_config()
        .credentials(credentials)
        .machine(move |vm, _| Ok(vm.drive(Drive::writable(&image, Bus::Sata)).reboot_ends()))
        .start()
        .unwrap();
    node.wait_maintenance().unwrap();
    let applied = node.apply_in_maintenance(config).unwrap();
    assert!(applied.success, "{}", applied.stderr);
    for line in [
        "install plan:   2 BIOS",
        "BIOS: GRUB",
        "installed Billet ",
        "no EFI variables",
        "the machine config is kept on STATE of /dev/sda",
    ] {
        node.vm().expect(line, INSTALL_LIMIT).unwrap();
    }
    node.vm().wait_exit(INSTALL_LIMIT).unwrap();
    node.credentials().clone()
}

fn start(name: &str, disk: &Path, credentials: Credentials) -> TestNode {
    let node = TestNode::builder(name)
        .transport(Transport::Bios)
        .disk(disk)
        .no_config()
        .credentials(credentials)
        .start()
        .unwrap();
    node.vm().expect(&format!("{}000001", grub::STARTING), BOOT_LIMIT).unwrap();
    node.vm().expect("root from /dev/sda3 (ROOT-A)", BOOT_LIMIT).unwrap();
    node.vm().expect("machine config: taken from STATE", BOOT_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    node
}

#[test]
fn a_machine_without_uefi_is_installed_upgraded_and_falls_back() {
    let directory = paths::temporary_dir().unwrap();
    let disk = directory.path().join("disk.img");
    let registry = Registry::start().unwrap();
    let credentials = Credentials::generate().unwrap();
    let config = config(&credentials, &registry);
    let credentials = install(&disk, credentials, &config);
    let node = start("bios-installed", &disk, credentials);
    assert!(node.admin().ok(&["read", "/system/state/config.yaml"]).unwrap().contains(HOSTNAME));
    if rounds(0, 1) == 1 {
        upgrades(&node, &registry);
    }
}

/// To a system that panics, which is left after three starts, then to one that is kept, and back.
fn upgrades(node: &TestNode, registry: &Registry) {
    let upgrade = |image: &str| {
        let words = ["upgrade", "--wait=false", "--image", image];
        node.admin().ok_within(&words, UPGRADE_LIMIT).unwrap();
    };
    let mut parts = Parts::of_build().unwrap();
    *parts.boot_part("init.cpio.zst").unwrap() = Vec::new();
    upgrade(&registry.keep("0.2.0", &parts.image("0.2.0")).unwrap());
    for start in 1..=3 {
        let line = format!("Billet: entry 000002 is on trial, start {start}");
        node.vm().expect(&line, UPGRADE_LIMIT).unwrap();
        node.vm().expect("Kernel panic", UPGRADE_LIMIT).unwrap();
    }
    node.vm().expect(&format!("{}000001", grub::STARTING), FALLBACK_LIMIT).unwrap();
    node.vm().expect("is back after 3 start(s) of 0.2.0", FALLBACK_LIMIT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    upgrade(&registry.keep("0.3.0", &Parts::of_build().unwrap().image("0.3.0")).unwrap());
    node.vm().expect("Billet: entry 000003 is on trial, start 1", UPGRADE_LIMIT).unwrap();
    let kept = "version 0.3.0 proved itself and is kept as billet-000003.efi";
    node.vm().expect(kept, UPGRADE_LIMIT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    node.admin().ok(&["rollback"]).unwrap();
    node.vm().expect(&format!("{}000004", grub::STARTING), BOOT_LIMIT * 2).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
}
