//! Approving a system that is about to be put on the disk, so that the volumes' TPM keys open in it as well.
//!
//! Order: before the new UKI is on the disk: at no moment is there a system that a volume stays closed for.
//! Does not: unseal or sign: the process of `opening` does.
//! Fails by: refusing the upgrade whose UKI firmware with Secure Boot would not start, and where nothing else opens the volume; a line in the log where something does.
//! Source: docs/decisions/0009.

use std::path::Path;
use std::sync::PoisonError;

use installer::device::Disk;
use installer::measured;
use installer::volumes::Volume;
use ondisk::gpt::Table;
use runtime::errors::chain;
use unlock::{KeyKind, SealedKey};

use super::handle::Volumes;
use super::opening::{self, Job, Request};
use super::tpm::{Approved, RESTART_FIRST};
use super::{place, specs};
use crate::secure_boot;
use crate::system_disk::partition_path;

/// Approves the system of this UKI for the encrypted volumes of a disk, and for the user's. Blocks.
pub(crate) fn approve(volumes: &Volumes, disk: &Path, table: &Table, uki: &[u8]) -> Result<(), String> {
    let _one_at_a_time = volumes.changing.lock().unwrap_or_else(PoisonError::into_inner);
    let pcr_11 = measured::pcr_11(uki).map_err(|error| chain(&error))?;
    for volume in specs::all(volumes) {
        let partition = match Volume::named(&volume) {
            Some(_) => table.by_name(&volume).map(|partition| partition_path(disk, partition.number)),
            // One that is there twice is not used.
            None => place::find(volumes, &volume).ok().flatten().map(|found| found.device()),
        };
        let Some(partition) = partition else { continue };
        if !has_tpm_key(&partition) {
            continue;
        }
        secure_boot::check_approved(&volumes.runtime.root, uki)?;
        let request = Request::new(Job::Approve(pcr_11), &volume, &partition, &[], &[]);
        let approved = opening::ask(&request)?.approved.unwrap_or_default();
        judge(&volume, &approved)?.into_iter().for_each(|line| volumes.runtime.journal.warn(&line));
    }
    Ok(())
}

fn has_tpm_key(partition: &Path) -> bool {
    let Ok(mut part) = Disk::open_shared(partition) else { return false };
    // What has no header is not encrypted.
    let Ok(found) = ondisk::luks2::read(&mut part) else { return false };
    let keys = found.header.metadata.tokens.keys().filter_map(|id| SealedKey::of(&found.header, id.0));
    keys.into_iter().any(|key| key.kind == KeyKind::Tpm)
}

/// Lines of warning; an error where the new system would stand before a closed volume.
fn judge(volume: &str, approved: &Approved) -> Result<Vec<String>, String> {
    let told = |(slot, why): &(u8, String)| {
        format!("{volume}: the tpm key in slot {slot} will not open in the new system: {why}")
    };
    let lines: Vec<String> = approved.failed.iter().map(told).collect();
    if lines.is_empty() || approved.has_others || !approved.slots.is_empty() {
        return Ok(lines);
    }
    // The start after this one has the key.
    if approved.failed.iter().all(|(_, why)| why.ends_with(RESTART_FIRST)) {
        return Err(format!("{}, then upgrade", lines.join("; ")));
    }
    Err(format!("{}; {volume} has no other key: add one, apply the config, then upgrade", lines.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_that_nothing_opens_is_refused() {
        let failed = vec![(2, "PCR 7 changed since the key was sealed".to_owned())];
        let alone = Approved { failed: failed.clone(), ..Approved::default() };
        assert_eq!(
            judge("STATE", &alone).unwrap_err(),
            "STATE: the tpm key in slot 2 will not open in the new system: PCR 7 changed since the key was sealed; \
             STATE has no other key: add one, apply the config, then upgrade"
        );
        let failed = vec![(0, format!("it came from outside: {RESTART_FIRST}"))];
        assert_eq!(
            judge("STATE", &Approved { failed, ..Approved::default() }).unwrap_err(),
            "STATE: the tpm key in slot 0 will not open in the new system: it came from outside: restart the machine first, \
             then upgrade"
        );
        for other in [Approved { has_others: true, ..alone.clone() }, Approved { slots: vec![0], ..alone }] {
            assert_eq!(judge("STATE", &other).unwrap().len(), 1);
        }
        assert_eq!(judge("STATE", &Approved { slots: vec![1], ..Approved::default() }), Ok(Vec::new()));
    }
}
