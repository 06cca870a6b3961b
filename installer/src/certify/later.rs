//! What a node does to its disk after the installation: the first boot's volumes, growing, resets.

use super::case::{Case, Rule, areas};
use super::host::{MemoryHost, formatted};
use super::model::System;
use super::nodes::{Node, Variant};
use super::{Fault, table};
use crate::device::{BlockDevice as _, Memory};
use crate::host::{Host as _, read_table};
use crate::install::{Contents, inspect};
use crate::layout::STATE_BYTES;
use crate::meta::ResetIntent;
use crate::upgrade::Slot;
use crate::volumes::{Did, EPHEMERAL_LEAST_BYTES, Volume, grow as grow_volume, provision};
use crate::{reset, silent};

const MIB: u64 = 1 << 20;

/// A disk with room for both volumes.
pub(super) fn roomy(variant: Variant<'_>) -> Variant<'_> {
    Variant { room_bytes: STATE_BYTES + EPHEMERAL_LEAST_BYTES + MIB, ..variant }
}

/// Of the GUIDs of new partitions.
pub(super) fn seed_of(variant: Variant<'_>) -> [u8; 32] {
    let mut seed = [9; 32];
    seed[..8].copy_from_slice(&variant.seed.to_le_bytes());
    seed
}

/// STATE and EPHEMERAL are made; where STATE comes lies an old file system.
pub(super) fn first_boot(variant: Variant<'_>) -> Result<Case, Fault> {
    let system = roomy(variant).system("v1");
    let mut node = Node::fresh(roomy(variant), &system)?;
    let behind = node.range("META")?.end;
    node.disk.write_at(behind, &formatted("OLD"))?;
    make_volumes(variant, &node, &system)
}

/// The same when the power went during an earlier change of the table.
pub(super) fn first_boot_primary_damaged(variant: Variant<'_>) -> Result<Case, Fault> {
    let system = roomy(variant).system("v1");
    let mut node = Node::fresh(roomy(variant), &system)?;
    node.damage_primary(variant)?;
    make_volumes(variant, &node, &system)
}

fn make_volumes(variant: Variant<'_>, node: &Node, system: &System) -> Result<Case, Fault> {
    let seed = seed_of(variant);
    let mut host = MemoryHost::new(node.disk.clone());
    for volume in [Volume::State, Volume::Ephemeral] {
        provision(&mut host, volume, &seed)?;
    }
    let kept = [node.range("EFI")?, node.range("ROOT-A")?, node.range("ROOT-B")?];
    let rule = Rule::always("v1", Slot::A)
        .keeping(kept)
        .demanding(move |disk, promises| next_boot(disk, promises, &seed).map_err(|error| error.to_string()));
    let rule = Rule { esp: false, ..rule };
    let after = {
        let mut host = MemoryHost::new(node.disk.clone());
        for volume in [Volume::State, Volume::Ephemeral] {
            provision(&mut host, volume, &seed)?;
        }
        host.disk.finish().1
    };
    Ok(Case::of(host.disk, areas(&after)?, &[system], rule))
}

/// The next boot ends with both volumes whole, and does not make one again that was promised.
fn next_boot(disk: &Memory, promises: &[&str], seed: &[u8; 32]) -> Result<(), Fault> {
    let mut host = MemoryHost::new(disk.clone());
    for volume in [Volume::State, Volume::Ephemeral] {
        let ready = provision(&mut host, volume, seed)?;
        let expected = formatted(volume.name());
        let mut start = vec![0; expected.len()];
        host.open(&ready.table, &ready.partition)?.read_at(0, &mut start)?;
        if start != expected {
            return Err(format!("{} is not whole", volume.name()).into());
        }
        if promises.contains(&volume.name()) && ready.did != Did::Nothing {
            return Err(format!("{} was made before, and was {:?} again", volume.name(), ready.did).into());
        }
    }
    Ok(())
}

/// EPHEMERAL follows a disk that has become larger.
pub(super) fn grow(variant: Variant<'_>) -> Result<Case, Fault> {
    let variant = roomy(variant);
    let system = variant.system("v1");
    let node = Node::fresh(variant, &system)?;
    let mut host = MemoryHost::new(node.disk);
    for volume in [Volume::State, Volume::Ephemeral] {
        provision(&mut host, volume, &seed_of(variant))?;
    }
    let (_, old) = host.disk.finish();
    let larger = old.enlarged(old.bytes() + 64 * MIB);
    let mut host = MemoryHost::new(larger.clone());
    let before = read_table(&mut host)?.table;
    grow_volume(&mut host, Volume::Ephemeral)?;
    host.disk.acknowledge("grow");
    let wanted = read_table(&mut host)?.table;
    let (first, last) = (MIB, old.bytes() - MIB);
    let rule =
        Rule::always("v1", Slot::A).keeping(std::iter::once(first..last)).demanding(move |disk, promises| {
            let found = table(disk)?;
            let is_old = found.partitions == before.partitions && promises.is_empty();
            if is_old || found == wanted {
                Ok(())
            } else {
                Err("the table is neither the old nor the new one".into())
            }
        });
    let areas = areas(&larger)?;
    Ok(Case::of(host.disk, areas, &[&system], Rule { esp: false, ..rule }))
}

pub(super) fn reset_all(variant: Variant<'_>) -> Result<Case, Fault> {
    reset_of(variant, &[])
}

pub(super) fn reset_state(variant: Variant<'_>) -> Result<Case, Fault> {
    reset_of(variant, &["STATE"])
}

pub(super) fn reset_ephemeral_and_meta(variant: Variant<'_>) -> Result<Case, Fault> {
    reset_of(variant, &["EPHEMERAL", "META"])
}

/// Before the promise the old system, or the reset resumes; after it what was to go is gone, at the latest after the
/// next boot.
fn reset_of(variant: Variant<'_>, names: &[&str]) -> Result<Case, Fault> {
    let system = variant.system("v1");
    let node = Node::installed(variant, &system)?;
    let partitions = names.iter().map(|name| (*name).to_owned()).collect();
    let intent = ResetIntent { partitions, then: "reboot".into() };
    let mut host = MemoryHost::new(node.disk.clone());
    reset::begin(&mut host, &intent)?;
    reset::run(&mut host, &intent, Some(Slot::A), &mut |_, told| silent(told))?;
    let whole = names.is_empty();
    let places = if whole { &["STATE", "EPHEMERAL", "ROOT-B"] } else { names };
    let places: Vec<_> = places.iter().map(|name| node.range(name)).collect::<Result<_, _>>()?;
    let mut rule = Rule::always("v1", Slot::A).demanding(move |disk, promises| {
        resumes(disk, &places, whole, !promises.is_empty()).map_err(|error| error.to_string())
    });
    if whole {
        // A disk whose table is gone starts nothing; the demand looks at what is left.
        rule.otherwise = Some(Box::new(|disk, promises| match (promises.is_empty(), table(disk)) {
            (false, Err(_)) => Ok(()),
            _ => Err("the table is there, but nothing starts".into()),
        }));
    }
    Ok(Case::of(host.disk, areas(&node.disk)?, &[&system], Rule { esp: false, ..rule }))
}

/// Goes on with a reset as the next boot would, and looks at what should be gone.
fn resumes(disk: &Memory, places: &[std::ops::Range<u64>], whole: bool, promised: bool) -> Result<(), Fault> {
    let mut host = MemoryHost::new(disk.clone());
    let gone = whole && read_table(&mut host).is_err();
    if !gone {
        match reset::pending(&mut host)? {
            Some(found) => drop(reset::run(&mut host, &found, None, &mut |_, told| silent(told))?),
            None if !promised => return Ok(()),
            None => {}
        }
    }
    let (_, mut disk) = host.disk.finish();
    let blank = Memory::new(disk.bytes(), disk.sector_bytes());
    for (at, _) in disk.blocks_unlike(&blank) {
        if places.iter().any(|place| place.contains(&at)) {
            return Err(format!("byte {at} should be wiped").into());
        }
    }
    if whole {
        let found = inspect(&mut disk)?.contents;
        if found != Contents::Nothing {
            return Err(format!("the disk holds {found}").into());
        }
    }
    Ok(())
}
