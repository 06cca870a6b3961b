//! The key slots of open volumes, brought in step with every machine config that comes into force.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | the config, volumes that were opened | META's record of STATE, key slots, `VolumeStatuses` | with machined |
//!
//! Order: META's record first, so that the next boot tries the new keys; then the slots, new keys before old ones go.
//! Does not: change what opened the volume; encrypt or decrypt: a config that wants that was refused, or waits for a wipe.
//! Fails by: a line in the log and in the volume's status; the next config, or the next boot, tries again.
//! Source: docs/users/encryption.md.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use installer::device::Disk;
use installer::volumes::{EPHEMERAL, STATE};
use unlock::{Record, Refused};

use super::handle::{Open, Volumes};
use super::key::VolumeKey;
use super::mount::{VAR, is_mounted};
use super::opening::{self, Done, Job, Request};
use super::state_files::MOUNT_POINT;
use super::status::{self, Encrypted, Place};
use super::{encryption, make, mapping, record, told, wanted};
use crate::system_disk;

/// Keeps the slots in step.
pub(crate) async fn follow(volumes: Arc<Volumes>) {
    let (mut config, mut opened) = (volumes.runtime.config.subscribe(), volumes.opened.subscribe());
    // Both may be older than this task.
    config.mark_changed();
    let taker = volumes.clone();
    let _ = tokio::task::spawn_blocking(move || adopt(&taker)).await;
    loop {
        tokio::select! {
            changed = config.changed() => if changed.is_err() { return },
            changed = opened.changed() => if changed.is_err() { return },
        }
        let worker = volumes.clone();
        // Joined, so that two configs are not applied at once; a panic in there is logged by the runtime.
        let _ = tokio::task::spawn_blocking(move || bring_all(&worker)).await;
    }
}

/// Takes over what an earlier machined mounted.
fn adopt(volumes: &Volumes) {
    for (volume, target) in [(STATE, MOUNT_POINT), (EPHEMERAL, VAR)] {
        if !is_mounted(target) || volumes.is_known(volume) {
            continue;
        }
        let Ok(Some(disk)) = system_disk::find(&volumes.runtime) else { continue };
        let Some(partition) = disk.table.by_name(volume) else { continue };
        let wanted = volumes
            .runtime
            .config()
            .and_then(|config| wanted::of_system(&config, volume))
            .unwrap_or_default();
        let encrypted = Encrypted { wanted: &wanted, done: None, before: make::by_init(volumes, volume) };
        let is_open = mapping::is_there(volume, &disk.partition_path(partition));
        let encrypted = is_open.then_some(&encrypted);
        let place = Place { disk: &disk.path, table: &disk.table, partition, filesystem: "xfs" };
        status::ready(volumes, volume, &place, encrypted);
    }
}

fn bring_all(volumes: &Volumes) {
    for volume in volumes.names() {
        let Some(open) = volumes.open(&volume) else { continue };
        let Some(wanted) = encryption::in_force(volumes, &volume) else { continue };
        if open.in_step.as_ref() != Some(&wanted)
            && let Err(reason) = bring(volumes, &volume, &open, &wanted)
        {
            volumes.runtime.journal.warn(&format!("key slots of {volume}: {reason}"));
            status::not_synchronised(volumes, &volume, &reason);
        }
    }
}

fn bring(volumes: &Volumes, volume: &str, open: &Open, wanted: &Record) -> Result<(), String> {
    let _one_at_a_time = volumes.changing.lock().unwrap_or_else(PoisonError::into_inner);
    let keys = encryption::keys(wanted, &encryption::Own::of(volumes, wanted, volume), volume);
    if volume == STATE {
        let kept = record::read(volumes)?;
        record::keep(volumes, Some(wanted))?;
        if kept.as_ref() == Some(wanted)
            && let Some(done) = opened_by_init(volumes, &open.partition, wanted, &keys)
        {
            told::header(volumes, volume, &done);
            status::synchronised(volumes, volume, wanted, &done);
            return Ok(());
        }
    }
    let request = Request::new(Job::Synchronise, volume, &open.partition, &keys, &wanted.options);
    let done = opening::ask(&request)?;
    told::header(volumes, volume, &done);
    told::recovery_key(volumes, volume, wanted, &done, false);
    status::synchronised(volumes, volume, wanted, &done);
    Ok(())
}

/// What a process would find: init's key opened the only slot of an unharmed header, and is the only key that is
/// wanted, sealed as is wanted.
fn opened_by_init(
    volumes: &Volumes,
    partition: &Path,
    wanted: &Record,
    keys: &[Result<VolumeKey, Refused>],
) -> Option<Done> {
    let opened = volumes.runtime.boot.unlock.as_ref()?.opened.as_ref()?;
    let [key] = wanted.keys.as_slice() else { return None };
    let mut part = Disk::open_shared(partition).ok()?;
    let found = ondisk::luks2::read(&mut part).ok()?;
    let slots = found.header.metadata.keyslots.keys();
    let is_sealed_otherwise = |key: &VolumeKey| key.key(partition).is_bound_otherwise(&found.header);
    if keys.iter().flatten().any(is_sealed_otherwise) {
        return None;
    }
    let is_it = slots.map(|slot| slot.0).eq([opened.slot])
        && (key.slot, key.kind.name().to_string()) == (opened.slot, opened.kind.clone())
        && found.stale.is_none();
    let bindings = installer::encryption::bindings(&found.header);
    is_it.then(|| Done { slot: opened.slot, kind: opened.kind.clone(), bindings, ..Done::default() })
}
