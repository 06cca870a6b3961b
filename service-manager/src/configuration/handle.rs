//! The handle of a node's config: what it needs of the node, and what is remembered besides the config.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use runtime::Runtime;
use tokio::sync::watch;

use super::waiting::Pending;
use crate::install::Installation;
use crate::locked::Maintenance;
use crate::meta::Meta;
use crate::order::Orders;
use crate::readiness::Readiness;
use crate::register::Register;
use crate::volumes::Volumes;

/// What the node remembers about its config besides the config.
pub(crate) struct Configuration {
    pub(super) runtime: Arc<Runtime>,
    pub(super) meta: Meta,
    pub(super) register: Arc<Register>,
    pub(super) volumes: Arc<Volumes>,
    pub(super) install: Arc<Installation>,
    pub(super) orders: Arc<Orders>,
    /// How far the API is.
    pub(super) readiness: watch::Receiver<Readiness>,
    /// Counts looks for the machine config that found none.
    pub(crate) misses: watch::Sender<u64>,
    /// Disks that were there at the start have their drivers, and the kernel has looked at them.
    pub(crate) disks_settled: watch::Sender<bool>,
    /// Drivers of all devices that were there at the start are loaded.
    pub(crate) settled: watch::Sender<bool>,
    /// How the node waits for a config, if it does.
    pub(crate) maintenance: watch::Sender<Maintenance>,
    /// Held by whoever changes the config.
    pub(super) busy: tokio::sync::Mutex<()>,
    /// A config was applied that takes a restart.
    pub(super) rebooting: AtomicBool,
    pending: Mutex<Option<Pending>>,
    generation: AtomicU64,
}

/// What the config needs of the node.
pub(crate) struct Parts {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) meta: Meta,
    pub(crate) register: Arc<Register>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) install: Arc<Installation>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) readiness: watch::Receiver<Readiness>,
    pub(crate) maintenance: watch::Sender<Maintenance>,
}

impl Configuration {
    /// Of a node that has no config yet.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { runtime, meta, register, volumes, install, orders, readiness, maintenance } = parts;
        Self {
            runtime,
            meta,
            register,
            volumes,
            install,
            orders,
            readiness,
            misses: watch::channel(0).0,
            disks_settled: watch::channel(false).0,
            settled: watch::channel(false).0,
            maintenance,
            busy: tokio::sync::Mutex::new(()),
            rebooting: AtomicBool::new(false),
            pending: Mutex::new(None),
            generation: AtomicU64::new(0),
        }
    }

    /// The change that undoes itself, if one does.
    pub(super) fn pending(&self) -> Option<Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces what is pending; the clock of the old one sees that its generation is over.
    pub(super) fn set_pending(&self, pending: Option<Pending>) -> u64 {
        let mut slot = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = pending;
        self.generation.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Counts changes of that.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }
}
