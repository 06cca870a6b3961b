//! The model of the loader against the loader: OVMF and systemd-boot start states of the power-cut certificate.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use installer::certify::{self, Case, Judge, Node, Rule, Scope, Started, System, Variant};
use installer::device::{BlockDevice as _, Memory, Recorder, Tears};
use installer::upgrade::Slot;
use ondisk::Digest;
use ondisk::ReadAt as _;
use qemu_tests::settings::{Random, rounds, seed};
use qemu_tests::write_log::WriteLog;
use qemu_tests::{loader, paths};

/// How many seeds of disks the states are taken from.
const SEEDS: u64 = 4;

/// A state to start, and what the model says that it starts.
struct Pick {
    name: String,
    disk: Memory,
    started: Started,
}

/// The table and the ESP of a disk, as a digest: what the loader's choice can depend on.
fn digest(disk: &Memory) -> Digest {
    let mut memory = disk.clone();
    let table = certify::table(&mut memory).unwrap();
    let (start, length) = certify::place(&table, "EFI").unwrap();
    let blank = Memory::new(disk.bytes(), disk.sector_bytes());
    let mut sum = Digest::sha256(&[b"esp"]);
    for (at, block) in disk.blocks_unlike(&blank).filter(|(at, _)| *at < start + length) {
        sum = Digest::sha256(&[sum.as_bytes(), &at.to_le_bytes(), block]);
    }
    sum
}

/// States with different ESPs, chosen at random among those that start something, as many from each job as the others.
fn picks(count: usize, loader: Vec<u8>, random: &mut Random) -> Vec<Pick> {
    let scope = Scope { seeds: 1..1 + SEEDS, loader };
    let changes_esp = |job: &certify::Job| matches!(job.operation, "upgrade" | "bless" | "rollback");
    let mut jobs: Vec<certify::Job> = certify::jobs(&scope).into_iter().filter(changes_esp).collect();
    for at in (1..jobs.len()).rev() {
        jobs.swap(at, random.below(at + 1));
    }
    let (mut picks, mut seen) = (Vec::new(), BTreeSet::new());
    // Two rounds: one state of each job, then as many as are still wanted.
    for most in [1, count.div_ceil(jobs.len() / 2)] {
        for job in &jobs {
            if picks.len() >= count {
                return picks;
            }
            of_job(job, most.min(count - picks.len()), &scope, random, &mut seen, &mut picks);
        }
    }
    picks
}

fn of_job(
    job: &certify::Job,
    most: usize,
    scope: &Scope,
    random: &mut Random,
    seen: &mut BTreeSet<String>,
    picks: &mut Vec<Pick>,
) {
    let case = job.case(&scope.loader).unwrap();
    let mut judge = case.judge();
    let states = case.each_state(Tears::Few, |_, _| ControlFlow::Continue(()));
    let numbers: BTreeSet<usize> = (0..most * 6).map(|_| 1 + random.below(states)).collect();
    let mut left = most;
    case.each_state(Tears::Few, |number, mut state| {
        if !numbers.contains(&number) {
            return ControlFlow::Continue(());
        }
        let started = judge.start(&mut state.disk).unwrap();
        if seen.insert(format!("{:?}", digest(&state.disk))) {
            let name = format!("{} state {number}: {}", job.name(), case.describe(&state));
            picks.push(Pick { name, disk: state.disk, started });
            left -= 1;
        }
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
}

/// Starts a state for real: the payload is the model's, the counter is one lower, everything else is as it was.
///
/// Machines that run at the same time have names of their own: by these their consoles are told apart.
fn agrees(pick: &Pick, machine: &str, image: &std::path::Path) {
    pick.disk.save(image).unwrap();
    let sectors = pick.disk.sector_bytes();
    let place = certify::place(&certify::table(&mut pick.disk.clone()).unwrap(), "EFI").unwrap();
    let mut expected = loader::entries(image, sectors, place).unwrap();
    let said =
        loader::start(machine, image, sectors).unwrap_or_else(|error| panic!("{}: {error:#}", pick.name));
    let generation = pick.started.entry.generation;
    assert_eq!(
        (said.version.as_str(), said.generation()),
        (pick.started.version.as_str(), Some(generation)),
        "{}: the loader chose {said:?}, the model {}",
        pick.name,
        pick.started
    );
    for entry in expected.iter_mut().filter(|entry| entry.generation == generation) {
        *entry = entry.started();
    }
    assert_eq!(loader::entries(image, sectors, place).unwrap(), expected, "{}", pick.name);
}

#[test]
fn the_loader_chooses_what_the_model_chooses() {
    let seed = seed();
    eprintln!("BILLET_SEED={seed} repeats this run");
    let count = usize::try_from(rounds(6, 200)).unwrap();
    let picks = picks(count, loader::systemd_boot().unwrap(), &mut Random::new(seed));
    assert!(picks.len() >= count, "only {} different states", picks.len());
    let dir = paths::temporary_dir().unwrap();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = |worker: usize| {
        let machine = format!("loader-{worker}");
        let image = dir.path().join(&machine);
        let index = || next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        while let Some(pick) = picks.get(index()) {
            eprintln!("{machine}: {}", pick.name);
            agrees(pick, &machine, &image);
        }
    };
    std::thread::scope(|threads| {
        for worker in 0..if count > 10 { 2 } else { 1 } {
            threads.spawn(move || work(worker));
        }
    });
    let kept: BTreeSet<bool> = picks.iter().map(|pick| pick.started.entry.trial.is_some()).collect();
    assert_eq!(kept.len(), 2, "systems on trial and kept ones");
    eprintln!("{} different ESPs: the loader chose what the model chose", picks.len());
}

/// What the loader itself writes, cut anywhere: the old system or the new one starts.
#[test]
#[ignore = "long run"]
fn a_power_cut_while_the_loader_counts_leaves_something_to_start() {
    let loader_file = loader::systemd_boot().unwrap();
    let variant = Variant::new(512, 1, &loader_file);
    let (old, new) = (variant.system("v1"), variant.system("v2"));
    let mut node = Node::installed(variant, &old).unwrap().upgrade_only(&new).unwrap();
    let dir = paths::temporary_dir().unwrap();
    let [image, log] = ["disk", "log"].map(|name| dir.path().join(name));
    // +3, +2-1, +1-2: each start is recorded, and the next one begins with what it left.
    for left in [2, 1, 0] {
        node.disk.save(&image).unwrap();
        let said = loader::start_recorded("loader-writes", &image, &log).unwrap();
        assert_eq!((said.version.as_str(), said.generation()), ("v2", Some(2)));
        let case = recorded(&node, &[&old, &new], &WriteLog::read(&log).unwrap());
        // The fourth start is the old system's.
        let next = if left > 0 { ("v2", Slot::B) } else { ("v1", Slot::A) };
        let started = case.judge().start(&mut case.after.clone()).unwrap();
        assert_eq!((started.version.as_str(), started.slot), next);
        directories_are_as_long_as_before(&case);
        let mut bad = Vec::new();
        let mut judge: Judge = case.judge();
        let states = case.each_state(Tears::Each, |number, mut state| {
            if let Err(why) = case.check(&mut judge, &mut state) {
                bad.push(format!("{number}: {}: {why}", case.describe(&state)));
            }
            ControlFlow::Continue(())
        });
        eprintln!("{left} starts left: {states} states, {} bad; then starts {started}", bad.len());
        assert!(bad.is_empty(), "{} of {states}: {:#?}", bad.len(), &bad[..bad.len().min(5)]);
        assert!(states > 5, "the loader wrote nothing");
        node.disk = case.after.clone();
        let place = node.range("EFI").unwrap();
        let found = loader::entries(&image, 512, (place.start, place.end - place.start)).unwrap();
        let trial = found.iter().find(|entry| entry.generation == 2).unwrap().trial.unwrap();
        assert_eq!((trial.left, trial.done), (left, 3 - left));
    }
    let said = loader::start("loader-falls-back", &image, 512).unwrap();
    assert_eq!((said.version.as_str(), said.generation()), ("v1", Some(1)));
}

/// Firmware found room for the new name: of the allocation tables only the flags in entry 1 may change. To make a
/// directory longer is what it does not do safely.
fn directories_are_as_long_as_before(case: &Case) {
    let (_, tables) = case.areas.iter().find(|(name, _)| name == "EFI tables").unwrap();
    let copy = usize::try_from((tables.end - tables.start) / 2).unwrap();
    let read = |disk: &Memory| {
        let mut bytes = vec![0; 2 * copy];
        disk.clone().read_at(tables.start, &mut bytes).unwrap();
        bytes
    };
    let (before, after) = (read(&case.recording.before), read(&case.after));
    let entries = before.chunks(4).zip(after.chunks(4)).enumerate();
    let changed: Vec<usize> = entries.filter(|(_, (a, b))| a != b).map(|(n, _)| n % (copy / 4)).collect();
    assert!(changed.iter().all(|entry| *entry == 1), "firmware changed these entries: {changed:?}");
}

/// What a log says, done again on the disk before.
fn recorded(node: &Node, systems: &[&System], log: &WriteLog) -> Case {
    let mut recorder = Recorder::new(node.disk.clone());
    log.repeat(&mut recorder).unwrap();
    let rule = Rule::from_to(("v1", Slot::A), ("v2", Slot::B));
    Case::of(recorder, certify::areas(&node.disk).unwrap(), systems, rule)
}
