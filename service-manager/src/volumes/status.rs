//! What machined knows of its volumes: for the API, and for whoever changes their keys.
//!
//! Owns: `VolumeStatuses`; what one that failed waits for; which keys the slots of an open volume are known to have.
//! Does not: outlive machined: the next one finds out anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ondisk::gpt::{Partition, Table};
use runtime::store::{Block, Spec, VOLUME_STATUS, VolumeStatus};
use tokio::sync::watch;
use unlock::Record;

use super::opening::Done;
use crate::block::pretty_size;
use crate::node::Node;
use crate::system_disk::partition_path;

/// The volumes of this node.
#[derive(Debug)]
pub struct Volumes {
    inner: Mutex<BTreeMap<String, Known>>,
    /// Held by whoever changes a LUKS2 header.
    pub(super) changing: Mutex<()>,
    /// Held by whoever makes, mounts or leaves the user's volumes.
    pub(super) bringing: Mutex<()>,
    /// Whether the user's volumes are used by now, and not yet left for good.
    pub(super) begun: watch::Sender<bool>,
    /// Counts volumes that were opened.
    pub(super) opened: watch::Sender<u64>,
    /// Counts attempts to use one that failed.
    pub(super) failed: watch::Sender<u64>,
}

#[derive(Clone, Default)]
struct Known {
    status: VolumeStatus,
    /// The partition of an encrypted volume that is open.
    partition: Option<PathBuf>,
    in_step: Option<Record>,
    /// What may help, where it cannot be used.
    awaits: Option<Awaits>,
}

/// What a volume that cannot be used waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaits {
    /// Another config, or a person.
    Config,
    /// A disk.
    Disk,
    /// A server that has its key.
    Server,
}

impl std::fmt::Debug for Known {
    /// Without keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.status.fmt(f)
    }
}

impl Default for Volumes {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            changing: Mutex::default(),
            bringing: Mutex::default(),
            begun: watch::channel(false).0,
            opened: watch::channel(0).0,
            failed: watch::channel(0).0,
        }
    }
}

/// An encrypted volume that is open.
pub(super) struct Open {
    /// Its partition.
    pub(super) partition: PathBuf,
    /// Keys that its slots are known to have.
    pub(super) in_step: Option<Record>,
}

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

impl Volumes {
    fn inner(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Told of each volume that is opened.
    pub(crate) fn openings(&self) -> watch::Receiver<u64> {
        self.opened.subscribe()
    }

    /// Has every volume brought in step anew, as when keys that had to suit the system before need not any more.
    pub(crate) fn bring_anew(&self) {
        self.inner().values_mut().for_each(|known| known.in_step = None);
        self.opened.send_modify(|count| *count += 1);
    }

    /// Keys that the slots of an open volume are known to have.
    pub(super) fn in_step(&self, volume: &str) -> Option<Record> {
        self.inner().get(volume)?.in_step.clone()
    }

    /// The volume, if it is encrypted and open.
    pub(super) fn open(&self, volume: &str) -> Option<Open> {
        let inner = self.inner();
        let known = inner.get(volume)?;
        Some(Open { partition: known.partition.clone()?, in_step: known.in_step.clone() })
    }

    /// Whether anything is known of it.
    pub(super) fn is_known(&self, volume: &str) -> bool {
        self.inner().contains_key(volume)
    }

    /// Every volume of which anything is known.
    pub(super) fn names(&self) -> Vec<String> {
        self.inner().keys().cloned().collect()
    }

    /// What is mounted of a volume that can be used, or handed out.
    pub(super) fn mount_location(&self, volume: &str) -> Option<PathBuf> {
        let inner = self.inner();
        let status = &inner.get(volume)?.status;
        status.error_message.is_empty().then(|| PathBuf::from(&status.mount_location))
    }

    /// What one that cannot be used waits for.
    pub(super) fn awaited(&self, volume: &str) -> Option<Awaits> {
        self.inner().get(volume)?.awaits
    }

    /// Whether a volume waits for this.
    pub(super) fn awaits(&self, what: Awaits) -> bool {
        self.inner().values().any(|known| known.awaits == Some(what))
    }

    /// Why it cannot be used.
    pub(super) fn problem(&self, volume: &str) -> Option<String> {
        let inner = self.inner();
        let error = &inner.get(volume)?.status.error_message;
        (!error.is_empty()).then(|| error.clone())
    }
}

/// A volume can be mounted.
pub(super) fn ready(node: &Node, volume: &str, place: &Place<'_>, encrypted: Option<&Encrypted<'_>>) {
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
    node.volumes.inner().insert(volume.to_owned(), known);
    publish(node);
    if encrypted.is_some() {
        node.volumes.opened.send_modify(|count| *count += 1);
    }
}

/// A volume cannot be used.
pub(super) fn failed(node: &Node, volume: &str, reason: &str) {
    failed_awaiting(node, volume, reason, Awaits::Config);
}

/// The same, with what may help.
pub(super) fn failed_awaiting(node: &Node, volume: &str, reason: &str, awaits: Awaits) {
    let status = VolumeStatus {
        phase: "failed",
        kind: "partition",
        error_message: reason.to_owned(),
        ..VolumeStatus::default()
    };
    node.volumes
        .inner()
        .insert(volume.to_owned(), Known { status, awaits: Some(awaits), ..Known::default() });
    publish(node);
    node.volumes.failed.send_modify(|count| *count += 1);
}

/// A volume went out of use.
pub(super) fn closed(node: &Node, volume: &str) {
    node.volumes.inner().remove(volume);
    publish(node);
}

/// The slots of an open volume were brought in step, as far as `done` says.
pub(super) fn synchronised(node: &Node, volume: &str, wanted: &Record, done: &Done) {
    if let Some(known) = node.volumes.inner().get_mut(volume) {
        apply(&mut known.status, done);
        known.status.configured_encryption_keys =
            wanted.keys.iter().map(|key| key.kind.name().to_string()).collect();
        known.in_step = Some(in_step(wanted, done));
    }
    publish(node);
}

/// The slots could not be looked at.
pub(super) fn not_synchronised(node: &Node, volume: &str, reason: &str) {
    if let Some(known) = node.volumes.inner().get_mut(volume) {
        known.status.encryption_failed_syncs = vec![reason.to_owned()];
    }
    publish(node);
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

fn publish(node: &Node) {
    let statuses = node
        .volumes
        .inner()
        .clone()
        .into_iter()
        .map(|(name, known)| (name, Spec::Block(Box::new(Block::VolumeStatus(known.status)))));
    if let Err(error) = node.runtime.store.replace(VOLUME_STATUS.writer, &VOLUME_STATUS, statuses.collect()) {
        node.runtime.journal.warn(&error.to_string());
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
        let node = crate::server::tests_node(dir.path().to_owned());
        failed(&node, "STATE", "no key matched");
        assert_eq!(node.volumes.problem("STATE").as_deref(), Some("no key matched"));
        assert!(node.volumes.open("STATE").is_none());
        let listed = node.runtime.store.list(&VOLUME_STATUS);
        assert_eq!(listed[0].metadata.id, "STATE");
        assert!(listed[0].spec.yaml().unwrap().contains("errorMessage: no key matched"));
        closed(&node, "STATE");
        assert!(node.runtime.store.list(&VOLUME_STATUS).is_empty());
    }
}
