//! What becomes of volumes, for the API and for whoever changes their keys.
//!
//! Owns: `VolumeStatuses`, and what the handle remembers.

use std::path::Path;

use ondisk::gpt::{Partition, Table};
use runtime::store::{Block, Spec, VOLUME_STATUS, VolumeStatus};
use unlock::Record;

use super::handle::{Awaits, Known, Volumes};
use super::opening::Done;
use crate::block::pretty_size;
use crate::system_disk::partition_path;

/// Where a volume lies.
pub(super) struct Place<'a> {
    /// The node of its disk.
    pub(super) disk: &'a Path,
    pub(super) table: &'a Table,
    pub(super) partition: &'a Partition,
    /// What is on it: `xfs` or `none`.
    pub(super) filesystem: &'static str,
}

/// How an encrypted volume was opened.
pub(super) struct Encrypted<'a> {
    /// How it is to be.
    pub(super) wanted: &'a Record,
    /// What was done; `None`: it was open already.
    pub(super) done: Option<&'a Done>,
    /// Slot and kind of key of whoever opened it before.
    pub(super) before: Option<(u8, String)>,
}

/// A volume can be mounted.
pub(super) fn ready(volumes: &Volumes, volume: &str, place: &Place<'_>, encrypted: Option<&Encrypted<'_>>) {
    let Place { disk, table, partition, filesystem } = *place;
    let device = partition_path(disk, partition.number);
    let bytes = table.size_bytes(partition);
    let mount_location = match encrypted {
        Some(_) => super::mapping::path(volume),
        None => device.clone(),
    };
    let mut status = VolumeStatus {
        phase: "ready",
        kind: "partition",
        location: device.display().to_string(),
        mount_location: mount_location.display().to_string(),
        partition_uuid: partition.guid.to_string(),
        partition_index: partition.number,
        parent_location: disk.display().to_string(),
        size: bytes,
        pretty_size: pretty_size(bytes),
        filesystem,
        encryption_provider: "none",
        ..VolumeStatus::default()
    };
    let mut known = Known::default();
    if let Some(encrypted) = encrypted {
        status.encryption_provider = "luks2";
        status.configured_encryption_keys =
            encrypted.wanted.keys.iter().map(|key| key.kind.name().to_string()).collect();
        if let Some((slot, kind)) = &encrypted.before {
            (status.encryption_slot, status.encryption_key) = (Some(*slot), kind.clone());
        }
        known.partition = Some(device);
        if let Some(done) = encrypted.done {
            apply(&mut status, done);
            known.in_step = Some(in_step(encrypted.wanted, done));
        }
    }
    known.status = status;
    volumes.inner().insert(volume.to_owned(), known);
    publish(volumes);
    if encrypted.is_some() {
        volumes.opened.send_modify(|count| *count += 1);
    }
}

/// A volume cannot be used.
pub(super) fn failed(volumes: &Volumes, volume: &str, reason: &str) {
    failed_awaiting(volumes, volume, reason, Awaits::Config);
}

/// The same, with what may help.
pub(super) fn failed_awaiting(volumes: &Volumes, volume: &str, reason: &str, awaits: Awaits) {
    let status = VolumeStatus {
        phase: "failed",
        kind: "partition",
        error_message: reason.to_owned(),
        ..VolumeStatus::default()
    };
    volumes.inner().insert(volume.to_owned(), Known { status, awaits: Some(awaits), ..Known::default() });
    publish(volumes);
    volumes.failed.send_modify(|count| *count += 1);
}

/// A volume went out of use.
pub(super) fn closed(volumes: &Volumes, volume: &str) {
    volumes.inner().remove(volume);
    publish(volumes);
}

/// The slots of an open volume were brought in step, as far as `done` says.
pub(super) fn synchronised(volumes: &Volumes, volume: &str, wanted: &Record, done: &Done) {
    if let Some(known) = volumes.inner().get_mut(volume) {
        apply(&mut known.status, done);
        known.status.configured_encryption_keys =
            wanted.keys.iter().map(|key| key.kind.name().to_string()).collect();
        known.in_step = Some(in_step(wanted, done));
    }
    publish(volumes);
}

/// The slots could not be looked at.
pub(super) fn not_synchronised(volumes: &Volumes, volume: &str, reason: &str) {
    if let Some(known) = volumes.inner().get_mut(volume) {
        known.status.encryption_failed_syncs = vec![reason.to_owned()];
    }
    publish(volumes);
}

fn apply(status: &mut VolumeStatus, done: &Done) {
    (status.encryption_slot, status.encryption_key) = (Some(done.slot), done.kind.clone());
    status.encryption_failed_syncs = done.failed.iter().map(|(_, why)| why.clone()).collect();
}

/// What was wanted, without the slots that do not have it.
fn in_step(wanted: &Record, done: &Done) -> Record {
    let mut record = wanted.clone();
    record.keys.retain(|key| done.failed.iter().all(|(slot, _)| *slot != key.slot));
    record
}

fn publish(volumes: &Volumes) {
    let statuses = volumes
        .inner()
        .clone()
        .into_iter()
        .map(|(name, known)| (name, Spec::Block(Box::new(Block::VolumeStatus(known.status)))));
    if let Err(error) =
        volumes.runtime.store.replace(VOLUME_STATUS.writer, &VOLUME_STATUS, statuses.collect())
    {
        volumes.runtime.journal.warn(&error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use unlock::{Kind, RecordKey};

    use super::*;

    #[test]
    fn a_slot_that_failed_is_not_in_step() {
        let mut wanted = Record::default();
        wanted.keys = vec![
            RecordKey::new(0, Kind::NodeId),
            RecordKey::new(4, Kind::Recovery { recipients: Vec::new() }),
        ];
        let done = Done { failed: vec![(4, "not yet".into()), (7, "remove it".into())], ..Done::default() };
        let slots: Vec<u8> = in_step(&wanted, &done).keys.iter().map(|key| key.slot).collect();
        assert_eq!(slots, [0]);
    }

    #[test]
    fn what_is_wrong_is_published() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = crate::server::tests_node(dir.path().to_owned()).volumes.clone();
        failed(&volumes, "STATE", "no key matched");
        assert_eq!(volumes.problem("STATE").as_deref(), Some("no key matched"));
        assert!(volumes.open("STATE").is_none());
        let listed = volumes.runtime.store.list(&VOLUME_STATUS);
        assert_eq!(listed[0].metadata.id, "STATE");
        assert!(listed[0].spec.yaml().unwrap().contains("errorMessage: no key matched"));
        closed(&volumes, "STATE");
        assert!(volumes.runtime.store.list(&VOLUME_STATUS).is_empty());
    }
}
