//! The handle of a node's volumes: STATE where it is mounted, and what is known of each volume.
//!
//! Owns: what is remembered, and who may change it when. `status` writes it.
//! Does not: outlive machined: the next one finds out anew.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runtime::Runtime;
use runtime::store::VolumeStatus;
use tokio::sync::watch;
use unlock::Record;

use super::state_files::State;
use crate::meta::Meta;
use crate::register::Register;

/// The volumes of this node.
pub struct Volumes {
    pub(super) runtime: Arc<Runtime>,
    pub(super) meta: Meta,
    pub(super) register: Arc<Register>,
    state: watch::Sender<Option<State>>,
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
pub(super) struct Known {
    pub(super) status: VolumeStatus,
    /// The partition of an encrypted volume that is open.
    pub(super) partition: Option<PathBuf>,
    pub(super) in_step: Option<Record>,
    /// What may help, where it cannot be used.
    pub(super) awaits: Option<Awaits>,
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

/// An encrypted volume that is open.
pub(super) struct Open {
    /// Its partition.
    pub(super) partition: PathBuf,
    /// Keys that its slots are known to have.
    pub(super) in_step: Option<Record>,
}

impl Volumes {
    /// Of a node of whose volumes nothing is known yet.
    pub(crate) fn new(runtime: Arc<Runtime>, meta: Meta, register: Arc<Register>) -> Self {
        Self {
            runtime,
            meta,
            register,
            state: watch::channel(None).0,
            inner: Mutex::default(),
            changing: Mutex::default(),
            bringing: Mutex::default(),
            begun: watch::channel(false).0,
            opened: watch::channel(0).0,
            failed: watch::channel(0).0,
        }
    }

    /// The mounted STATE.
    pub(crate) fn state(&self) -> Option<State> {
        self.state.borrow().clone()
    }

    /// The mounted STATE, as it comes and goes.
    pub(crate) fn states(&self) -> watch::Receiver<Option<State>> {
        self.state.subscribe()
    }

    /// STATE was mounted.
    pub(crate) fn set_state(&self, state: State) {
        self.state.send_replace(Some(state));
    }

    /// STATE goes out of use.
    pub(super) fn forget_state(&self) {
        self.state.send_replace(None);
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
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
