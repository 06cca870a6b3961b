//! The operations that are certified, each on disks that differ by a seed.
//!
//! Owns: what is done, to which disk, and what must hold in every state of it.
//! Does not: how it is done; that is the installer's own code.

use std::ops::Range;

use ondisk::gpt::Copy;
use ondisk::{ReadAt as _, gpt, meta};

use super::Fault;
use super::bios;
use super::case::{Case, Rule, areas};
use super::encrypted;
use super::later::{
    first_boot, first_boot_primary_damaged, grow, reset_all, reset_ephemeral_and_meta, reset_state,
};
use super::model::{Judge, System, place};
use super::nodes::{Node, Variant, identity, values};
use crate::device::{BlockDevice, Memory, Part};
use crate::install;
use crate::silent;
use crate::upgrade::Slot;

/// Sector sizes of the disks.
const SECTORS: [u32; 2] = [512, 4096];

/// Of so many states that start nothing one is installed to again.
const INSTALLED_AGAIN: u32 = 50;

/// Makes the case of a disk.
type Make = fn(Variant<'_>) -> Result<Case, Fault>;

/// Every operation: its name in the report, which of its situations, how the case is made.
const OPERATIONS: [(&str, &str, Make); 40] = [
    ("install", "blank", install_blank),
    ("install", "over-billet", install_over),
    ("upgrade", "a-to-b", upgrade_a),
    ("upgrade", "b-to-a", upgrade_b),
    ("upgrade", "after-fallback", upgrade_after_fallback),
    ("upgrade", "same-version", upgrade_same),
    ("upgrade", "downgrade", downgrade),
    ("upgrade", "same-in-both", upgrade_same_in_both),
    ("upgrade", "same-again", upgrade_same_again),
    ("bless", "first-try", bless_first),
    ("bless", "second-try", bless_second),
    ("bless", "last-try", bless_last),
    ("rollback", "b-to-a", rollback_to_a),
    ("rollback", "a-to-b", rollback_to_b),
    ("rollback", "from-trial", rollback_from_trial),
    ("bios install", "blank", bios::install),
    ("bios upgrade", "a-to-b", bios::upgrade),
    ("bios upgrade", "after-fallback", bios::upgrade_after_fallback),
    ("bios bless", "second-try", bios::bless),
    ("bios rollback", "b-to-a", bios::rollback),
    ("meta", "new", meta_new),
    ("meta", "change", meta_change),
    ("meta", "first-copy-damaged", meta_first_damaged),
    ("meta", "second-copy-damaged", meta_second_damaged),
    ("first boot", "new", first_boot),
    ("first boot", "primary-damaged", first_boot_primary_damaged),
    ("grow", "larger-disk", grow),
    ("format encrypted", "new", encrypted::format),
    ("format encrypted", "sealed", encrypted::format_sealed),
    ("add key", "second", encrypted::add_key),
    ("add key", "sealed", encrypted::add_sealed),
    ("key rotation", "second-half", encrypted::rotation),
    ("key rotation", "to-sealed", encrypted::rotation_to_sealed),
    ("key rotation", "only-sealed-anew", encrypted::rotation_of_the_only_sealed),
    ("key rotation", "token", encrypted::token),
    ("header repair", "first-copy-damaged", encrypted::repair_first),
    ("header repair", "second-copy-damaged", encrypted::repair_second),
    ("reset", "whole-disk", reset_all),
    ("reset", "state", reset_state),
    ("reset", "ephemeral-and-meta", reset_ephemeral_and_meta),
];

/// How much is certified.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The disks of each operation differ by these seeds.
    pub seeds: Range<u64>,
    /// The boot loader on the disks; what it is matters only to those who boot a state.
    pub loader: Vec<u8>,
}

/// An operation on one disk, not recorded yet.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// The operation.
    pub operation: &'static str,
    /// Which of its situations.
    pub situation: &'static str,
    /// Sector size of the disk.
    pub sector_bytes: u32,
    /// Seed of the disk.
    pub seed: u64,
    make: Make,
}

impl Job {
    /// By this a person names it: `upgrade-b-to-a-512-7`.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { operation, situation, sector_bytes, seed, .. } = self;
        format!("{}-{situation}-{sector_bytes}-{seed}", operation.replace(' ', "-"))
    }

    /// Does the operation and records it.
    pub fn case(&self, loader: &[u8]) -> Result<Case, Fault> {
        let variant = Variant::new(self.sector_bytes, self.seed, loader);
        (self.make)(variant).map_err(|error| format!("{}: {error}", self.name()).into())
    }
}

/// All jobs of a scope, one seed after the other.
#[must_use]
pub fn jobs(scope: &Scope) -> Vec<Job> {
    let mut jobs = Vec::new();
    for seed in scope.seeds.clone() {
        for sector_bytes in SECTORS {
            // No BIOS starts a disk with other sectors.
            let is_possible =
                |operation: &str| sector_bytes == bios::SECTOR_BYTES || !operation.starts_with("bios ");
            let operations = OPERATIONS.into_iter().filter(|(operation, ..)| is_possible(operation));
            jobs.extend(operations.map(|(operation, situation, make)| Job {
                operation,
                situation,
                sector_bytes,
                seed,
                make,
            }));
        }
    }
    jobs
}

pub(super) fn install_blank(variant: Variant<'_>) -> Result<Case, Fault> {
    install_to(variant, &variant.blank(), &[], None)
}

fn install_over(variant: Variant<'_>) -> Result<Case, Fault> {
    let (old, older) = (variant.system("v1"), variant.system("v0"));
    let node = Node::installed(variant, &older)?.upgraded(&old)?;
    install_to(variant, &node.disk, &[&old, &older], Some(("v1", Slot::B)))
}

/// The old system, if there is one, the new one, or nothing that starts but a disk that can be installed to again.
fn install_to(
    variant: Variant<'_>,
    before: &Memory,
    old: &[&System],
    starts: Option<(&str, Slot)>,
) -> Result<Case, Fault> {
    let new = variant.system("v2");
    let loader = variant.loader_files();
    let spec = variant.spec(&new, &loader, true);
    let plan = install::plan(&mut before.clone(), identity(), &spec)?;
    let mut rule = match starts {
        Some(starts) => Rule::from_to(starts, ("v2", Slot::A)),
        None => Rule::always("v2", Slot::A),
    };
    rule = rule.demanding(both_copies_after_the_promise);
    rule.otherwise = Some(can_be_installed(variant.seed, variant.sector_bytes, variant.loader, &new));
    // Until the new table is there, the old ESP may lie under the first writes of the new one.
    rule.esp = starts.is_none();
    let after = {
        let mut disk = before.clone();
        install::apply(&mut disk, &plan, &spec, &mut new.source(), &mut silent)?;
        disk
    };
    let systems: Vec<&System> = old.iter().copied().chain([&new]).collect();
    Case::record(before, areas(&after)?, &systems, rule, |disk| {
        Ok(install::apply(disk, &plan, &spec, &mut new.source(), &mut silent)?)
    })
}

/// The installer takes the disk again: tried for one state in fifty, since the judge saw before that nothing starts.
fn can_be_installed(seed: u64, sector_bytes: u32, loader: &[u8], system: &System) -> super::Demand {
    let (loader, system, count) = (loader.to_vec(), system.clone(), std::cell::Cell::new(0_u32));
    Box::new(move |disk, promises| {
        if !promises.is_empty() {
            return Err("the installation was promised".into());
        }
        count.set(count.get() + 1);
        if count.get() % INSTALLED_AGAIN != 1 {
            return Ok(());
        }
        let variant = Variant::new(sector_bytes, seed, &loader);
        let files = variant.loader_files();
        let spec = variant.spec(&system, &files, true);
        let again = install::plan(disk, identity(), &spec).map_err(|error| error.to_string())?;
        install::apply(disk, &again, &spec, &mut system.source(), &mut silent)
            .map_err(|error| error.to_string())?;
        Judge::new(&[&system]).start(disk)?;
        Ok(())
    })
}

/// A promise is made with both copies of the table in place.
fn both_copies_after_the_promise(disk: &mut Memory, promises: &[&str]) -> Result<(), String> {
    if promises.is_empty() {
        return Ok(());
    }
    let geometry =
        gpt::Geometry::new(disk.sector_bytes(), disk.bytes()).map_err(|error| error.to_string())?;
    let found = gpt::read(disk, geometry).map_err(|error| error.to_string())?;
    if found.copy == Copy::Primary { Ok(()) } else { Err("the primary table is not there".into()) }
}

pub(super) fn upgrade_a(variant: Variant<'_>) -> Result<Case, Fault> {
    let old = variant.system("v1");
    upgrade(&Node::installed(variant, &old)?, &[&old], "v1", &variant.system("v2"))
}

fn upgrade_b(variant: Variant<'_>) -> Result<Case, Fault> {
    let (older, old) = (variant.system("v1"), variant.system("v2"));
    let node = Node::installed(variant, &older)?.upgraded(&old)?;
    upgrade(&node, &[&older, &old], "v2", &variant.system("v3"))
}

pub(super) fn upgrade_after_fallback(variant: Variant<'_>) -> Result<Case, Fault> {
    let (old, failed) = (variant.system("v1"), variant.system("v2"));
    let node = Node::installed(variant, &old)?.fallen_back(&failed)?;
    upgrade(&node, &[&old, &failed], "v1", &variant.system("v3"))
}

fn upgrade_same(variant: Variant<'_>) -> Result<Case, Fault> {
    let old = variant.system("v1");
    upgrade(&Node::installed(variant, &old)?, &[&old], "v1", &old)
}

/// The slot that is written holds the layers of the running system too. init took them from the first.
fn upgrade_same_in_both(variant: Variant<'_>) -> Result<Case, Fault> {
    let old = variant.system("v1");
    let mut node = Node::installed(variant, &old)?.upgraded(&old)?;
    node.running.slot = Slot::A;
    upgrade(&node, &[&old], "v1", &variant.system("v2"))
}

/// The slot that init looks at first gets the layers of the running system.
fn upgrade_same_again(variant: Variant<'_>) -> Result<Case, Fault> {
    let (older, old) = (variant.system("v0"), variant.system("v1"));
    let node = Node::installed(variant, &older)?.upgraded(&old)?;
    upgrade(&node, &[&older, &old], "v1", &old)
}

fn downgrade(variant: Variant<'_>) -> Result<Case, Fault> {
    let (older, old) = (variant.system("v1"), variant.system("v2"));
    let node = Node::installed(variant, &older)?.upgraded(&old)?;
    upgrade(&node, &[&older, &old], "v2", &older)
}

/// What an upgrade, a blessing and a rollback have no business with.
fn untouched(node: &Node, slots: &[Slot]) -> Result<Vec<Range<u64>>, Fault> {
    let mut kept = Vec::new();
    for name in slots.iter().map(|slot| slot.partition()).chain(["META", "STATE", "EPHEMERAL"]) {
        kept.push(node.range(name)?);
    }
    if node.table.by_name("BIOS").is_some() {
        kept.push(node.range("BIOS")?);
    }
    let end = node.disk.bytes();
    let (first, _) = place(&node.table, "EFI")?;
    let last = node.range("EPHEMERAL")?.end;
    kept.extend([0..first, last..end]);
    Ok(kept)
}

fn upgrade(node: &Node, systems: &[&System], runs: &str, new: &System) -> Result<Case, Fault> {
    let running = node.running;
    let target = running.slot.other();
    let mut rule = Rule::from_to((runs, running.slot), (&new.manifest.version, target));
    rule = rule.keeping(untouched(node, &[running.slot])?);
    if runs == new.manifest.version {
        // One content in both slots: the first one found is as good.
        rule.after.push((runs.to_owned(), running.slot));
    }
    let systems: Vec<&System> = systems.iter().copied().chain([new]).collect();
    Case::record(&node.disk, areas(&node.disk)?, &systems, rule, |disk| {
        let new_system = new.new_system();
        node.on(disk).upgrade(running, new_system, &mut new.source(), &mut silent)?;
        Ok(())
    })
}

fn bless_first(variant: Variant<'_>) -> Result<Case, Fault> {
    bless(variant, 0)
}

pub(super) fn bless_second(variant: Variant<'_>) -> Result<Case, Fault> {
    bless(variant, 1)
}

fn bless_last(variant: Variant<'_>) -> Result<Case, Fault> {
    bless(variant, 2)
}

fn bless(variant: Variant<'_>, more_starts: u32) -> Result<Case, Fault> {
    let (old, new) = (variant.system("v1"), variant.system("v2"));
    let mut node = Node::installed(variant, &old)?.on_trial(&new)?;
    for _ in 0..more_starts {
        node = node.count_start()?;
    }
    // With no start left the old system starts until the promise.
    let exhausted = node.running.entry.is_exhausted();
    let mut rule = Rule::always("v2", Slot::B);
    if exhausted {
        rule = Rule::from_to(("v1", Slot::A), ("v2", Slot::B));
    }
    let rule =
        rule.keeping(untouched(&node, &[Slot::A, Slot::B])?).demanding(kept_after_the_promise(&[&old, &new]));
    Case::record(&node.disk, areas(&node.disk)?, &[&old, &new], rule, |disk| {
        node.on(disk).bless(node.running.entry)?;
        Ok(())
    })
}

/// After the promise the entry that starts is not on trial.
fn kept_after_the_promise(
    systems: &[&System],
) -> impl Fn(&mut Memory, &[&str]) -> Result<(), String> + 'static {
    let systems: Vec<System> = systems.iter().map(|system| (*system).clone()).collect();
    move |disk, promises| {
        let started = Judge::new(&systems.iter().collect::<Vec<_>>()).start(disk)?;
        if !promises.is_empty() && started.entry.trial.is_some() {
            return Err(format!("{} is still on trial", started.entry));
        }
        Ok(())
    }
}

pub(super) fn rollback_to_a(variant: Variant<'_>) -> Result<Case, Fault> {
    let (old, new) = (variant.system("v1"), variant.system("v2"));
    let node = Node::installed(variant, &old)?.upgraded(&new)?;
    roll_back(&node, &[&old, &new], ("v2", "v1"))
}

fn rollback_to_b(variant: Variant<'_>) -> Result<Case, Fault> {
    let (older, old, new) = (variant.system("v1"), variant.system("v2"), variant.system("v3"));
    let node = Node::installed(variant, &older)?.upgraded(&old)?.upgraded(&new)?;
    roll_back(&node, &[&older, &old, &new], ("v3", "v2"))
}

fn rollback_from_trial(variant: Variant<'_>) -> Result<Case, Fault> {
    let (old, new) = (variant.system("v1"), variant.system("v2"));
    let node = Node::installed(variant, &old)?.on_trial(&new)?;
    roll_back(&node, &[&old, &new], ("v2", "v1"))
}

fn roll_back(node: &Node, systems: &[&System], (from, to): (&str, &str)) -> Result<Case, Fault> {
    let slot = node.running.slot;
    let rule = Rule::from_to((from, slot), (to, slot.other())).keeping(untouched(node, &[Slot::A, Slot::B])?);
    Case::record(&node.disk, areas(&node.disk)?, systems, rule, |disk| {
        node.on(disk).roll_back(node.running.entry)?;
        Ok(())
    })
}

fn meta_new(variant: Variant<'_>) -> Result<Case, Fault> {
    let system = variant.system("v1");
    write_meta(variant, &Node::fresh(variant, &system)?, &system)
}

fn meta_change(variant: Variant<'_>) -> Result<Case, Fault> {
    let system = variant.system("v1");
    write_meta(variant, &Node::installed(variant, &system)?, &system)
}

fn meta_first_damaged(variant: Variant<'_>) -> Result<Case, Fault> {
    meta_damaged(variant, 0)
}

fn meta_second_damaged(variant: Variant<'_>) -> Result<Case, Fault> {
    meta_damaged(variant, meta::COPY_BYTES)
}

fn meta_damaged(variant: Variant<'_>, copy: u64) -> Result<Case, Fault> {
    let system = variant.system("v1");
    let mut node = Node::installed(variant, &system)?;
    let at = node.range("META")?.start + copy + variant.numbers(4).below(meta::COPY_BYTES - 4096);
    let mut bytes = [0; 1];
    node.disk.read_at(at, &mut bytes)?;
    node.disk.write_at(at, &bytes.map(|byte| byte ^ 1))?;
    write_meta(variant, &node, &system)
}

/// The values are the old ones or the new ones, all of them; after the promise the new ones, in both copies.
fn write_meta(variant: Variant<'_>, node: &Node, system: &System) -> Result<Case, Fault> {
    let range = node.range("META")?;
    let (start, length) = (range.start, range.end - range.start);
    let mut part_of = node.disk.clone();
    let found = meta::read(&mut Part::new(&mut part_of, start, length));
    let (old, new) = (found.meta.clone(), values(&mut variant.numbers(5))?);
    let wanted = new.clone();
    let kept = [0..start, start + 2 * meta::COPY_BYTES..node.disk.bytes()];
    let rule = Rule::always("v1", Slot::A).keeping(kept).demanding(move |disk, promises| {
        let found = meta::read(&mut Part::new(disk, start, length));
        match (found.meta == new, found.meta == old, !promises.is_empty()) {
            (true, _, true) if found.faults != [None, None] => Err("a copy of META is damaged".into()),
            (true, _, _) | (_, true, false) => Ok(()),
            _ => Err(format!("META has neither what it should nor what it had: {:?}", found.faults)),
        }
    });
    Case::record(&node.disk, areas(&node.disk)?, &[system], rule, |disk| {
        let mut part = Part::new(&mut *disk, start, length);
        crate::meta::update(&mut part, |values| {
            *values = wanted;
            Ok(())
        })?;
        disk.acknowledge("META");
        Ok(())
    })
}
