//! Disks that start without UEFI: the same operations where GRUB is the loader.
//!
//! Owns: stand-ins for GRUB's images, GRUB's count as it is written to the ESP, and what such a disk must have besides: code
//! that leads to a whole core image, a script for every UKI.
//! Does not: model GRUB's choice anew: with its count an ESP's entries are ordered as for systemd-boot ([`super::model`]).

use std::sync::OnceLock;

use ondisk::ReadAt as _;

use super::Fault;
use super::case::Case;
use super::jobs;
use super::model::{place, table};
use super::nodes::{Node, Variant};
use crate::device::{BlockDevice as _, Memory};
use crate::entries::{Entry, TRIES, Trial};
use crate::esp::Esp;
use crate::grub::{Counted, Parts};

/// How an environment block begins.
const SIGNATURE: &[u8] = b"# GRUB Environment Block\n";

/// Sector size of these disks.
pub(super) const SECTOR_BYTES: u32 = 512;

/// Images with the fields that count, and no code: no state of a certificate is started with them.
#[must_use]
pub(super) fn stand_in() -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    PARTS.get_or_init(|| {
        let (mut boot, mut core) = (vec![0x11; 512], vec![0; 512]);
        boot[0x5C..0x64].copy_from_slice(&1_u64.to_le_bytes());
        boot[0x66..0x68].copy_from_slice(&[0xEB, 0x05]);
        boot[510..].copy_from_slice(&[0x55, 0xAA]);
        core[508..].copy_from_slice(&[9, 0, 0x20, 0x08]);
        core.extend([0x22; 9 * 512 - 100]);
        Parts { boot, core }
    })
}

fn with_grub(variant: Variant<'_>) -> Variant<'_> {
    Variant { grub: Some(stand_in()), ..variant }
}

pub(super) fn install(variant: Variant<'_>) -> Result<Case, Fault> {
    let variant = with_grub(variant);
    let mut case = jobs::install_blank(variant)?;
    let before = case.rule.demand.take();
    case.rule.demand = Some(Box::new(move |disk, promises| {
        before.as_ref().map_or(Ok(()), |demand| demand(disk, promises))?;
        code_leads_to_grub(disk, !promises.is_empty())
    }));
    Ok(case)
}

/// Code in the first sector never leads to half a core image, and after the promise it is there.
fn code_leads_to_grub(disk: &mut Memory, promised: bool) -> Result<(), String> {
    let mut code = [0; ondisk::grub::CODE_BYTES];
    disk.read_at(0, &mut code).map_err(|error| error.to_string())?;
    if code.iter().all(|byte| *byte == 0) {
        return if promised { Err("the BIOS finds no code".into()) } else { Ok(()) };
    }
    let table = table(disk)?;
    let bios = table.by_name("BIOS").ok_or("there is code and no partition BIOS")?;
    let parts = stand_in();
    let wanted = parts.boot_code(&table, bios).map_err(|error| error.to_string())?;
    let core = parts.core_image(&table, bios).map_err(|error| error.to_string())?;
    let mut found = vec![0; core.len()];
    disk.read_at(table.offset_bytes(bios), &mut found).map_err(|error| error.to_string())?;
    if wanted == code && found == core { Ok(()) } else { Err("the code leads to no whole core image".into()) }
}

pub(super) fn upgrade(variant: Variant<'_>) -> Result<Case, Fault> {
    jobs::upgrade_a(with_grub(variant))
}

pub(super) fn upgrade_after_fallback(variant: Variant<'_>) -> Result<Case, Fault> {
    jobs::upgrade_after_fallback(with_grub(variant))
}

pub(super) fn bless(variant: Variant<'_>) -> Result<Case, Fault> {
    jobs::bless_second(with_grub(variant))
}

pub(super) fn rollback(variant: Variant<'_>) -> Result<Case, Fault> {
    jobs::rollback_to_a(with_grub(variant))
}

/// What GRUB does before it starts an entry on trial: it writes its number and how often it was started.
pub(super) fn count(node: &mut Node) -> Result<Entry, Fault> {
    let (start, length) = place(&node.table, "EFI")?;
    let counted = Esp::new(&mut node.disk, start, length).counted()?.unwrap_or_default();
    let generation = node.running.entry.generation;
    let starts = if counted.generation == generation { counted.starts + 1 } else { 1 };
    let values = format!("generation={generation:06}\nstarts={starts}\n");
    let at = block(&node.disk, start, length)?;
    let mut sector = [0; 512];
    node.disk.read_at(at, &mut sector)?;
    let room = sector.get_mut(SIGNATURE.len()..SIGNATURE.len() + values.len());
    room.ok_or("no room for the values")?.copy_from_slice(values.as_bytes());
    node.disk.write_at(at, &sector)?;
    // The name stays as it is.
    let named = Entry { trial: Some(Trial { left: TRIES, done: 0 }), ..node.running.entry };
    Ok(Counted { generation, starts }.applied_to(named))
}

/// Where the environment block lies.
fn block(disk: &Memory, start: u64, length: u64) -> Result<u64, Fault> {
    let mut disk = disk.clone();
    let mut sector = [0; 512];
    for at in (start..start + length).step_by(512) {
        disk.read_at(at, &mut sector)?;
        if sector.starts_with(SIGNATURE) {
            return Ok(at);
        }
    }
    Err("the ESP has no environment block".into())
}
