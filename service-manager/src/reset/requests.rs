//! The request for a reset, between the API and the sequence; with what carries it out.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use installer::meta::ResetIntent;
use runtime::Runtime;

use crate::meta::Meta;
use crate::volumes::Volumes;

/// What a reset wipes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Of the system disk.
    pub(crate) system: Option<ResetIntent>,
    /// Other disks, wholly.
    pub(crate) user_disks: Vec<PathBuf>,
    /// `reboot` or `shutdown`.
    pub(crate) then: String,
    /// The node leaves its cluster first, and is wiped only once it has.
    pub(crate) leaves: bool,
}

impl Request {
    /// Whether etcd's data goes, which lies on EPHEMERAL.
    pub(crate) fn wipes_etcd(&self) -> bool {
        let wipes = |system: &ResetIntent| {
            system.partitions.is_empty() || system.partitions.iter().any(|name| name == "EPHEMERAL")
        };
        self.system.as_ref().is_some_and(wipes)
    }
}

/// The resets of this node.
pub(crate) struct Resets {
    pub(super) runtime: Arc<Runtime>,
    pub(super) meta: Meta,
    pub(super) volumes: Arc<Volumes>,
    /// The one that was asked for, while its sequence runs.
    requested: Mutex<Option<Request>>,
}

impl Resets {
    /// Without a request.
    pub(crate) fn new(runtime: Arc<Runtime>, meta: Meta, volumes: Arc<Volumes>) -> Self {
        Self { runtime, meta, volumes, requested: Mutex::default() }
    }

    /// A reset begins.
    pub(crate) fn put(&self, request: Request) {
        *self.requested.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
    }

    /// The one that runs.
    pub(crate) fn get(&self) -> Option<Request> {
        self.requested.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
