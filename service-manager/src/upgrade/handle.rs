//! The handle of a node's upgrades: the request under way, and who may change the disk now.

use std::sync::{Arc, Mutex, PoisonError};

use runtime::Runtime;
use tokio::sync::watch;

use super::failure::Failure;
use crate::flight_recorder::FlightRecorder;
use crate::locked::Maintenance;
use crate::meta::Meta;
use crate::order::Orders;
use crate::readiness::Readiness;
use crate::upgrade_record::{self, Record};
use crate::volumes::Volumes;

/// What a client asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// The image's reference.
    pub(crate) image: String,
    /// Whether the new system wipes EPHEMERAL at its first start.
    pub(crate) wipe_ephemeral: bool,
}

/// The node's upgrades.
pub(crate) struct Upgrades {
    pub(super) runtime: Arc<Runtime>,
    pub(super) meta: Meta,
    pub(super) volumes: Arc<Volumes>,
    pub(super) flight_recorder: FlightRecorder,
    pub(super) orders: Arc<Orders>,
    /// How far the API is.
    pub(super) readiness: watch::Receiver<Readiness>,
    /// How the node waits for a config, if it does.
    pub(super) maintenance: watch::Receiver<Maintenance>,
    /// Handed from the call that asked to the sequence that does it.
    request: Mutex<Option<Request>>,
    /// Held by whoever changes the disk: one at a time.
    busy: tokio::sync::Mutex<()>,
    /// Held by an image that comes over the API.
    pub(super) importing: Arc<tokio::sync::Mutex<()>>,
}

/// What upgrades need of the node.
pub(crate) struct Parts {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) meta: Meta,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) flight_recorder: FlightRecorder,
    pub(crate) orders: Arc<Orders>,
    pub(crate) readiness: watch::Receiver<Readiness>,
    pub(crate) maintenance: watch::Receiver<Maintenance>,
}

impl Upgrades {
    /// Without a request.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { runtime, meta, volumes, flight_recorder, orders, readiness, maintenance } = parts;
        Self {
            runtime,
            meta,
            volumes,
            flight_recorder,
            orders,
            readiness,
            maintenance,
            request: Mutex::default(),
            busy: tokio::sync::Mutex::default(),
            importing: Arc::default(),
        }
    }

    /// Leaves a request for the sequence.
    pub(crate) fn ask(&self, request: Request) {
        *self.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
    }

    /// Keeps others from changing the disk while the answer lives; `None` while another caller does.
    pub(crate) fn try_begin(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        self.busy.try_lock().ok()
    }

    /// Keeps a record in META; durable when this returns.
    pub(super) async fn keep(&self, record: &Record) -> Result<(), Failure> {
        upgrade_record::keep(&self.meta, record).await.map_err(|error| Failure::Outside(error.to_string()))
    }

    /// The request that was left.
    pub(super) fn take(&self) -> Option<Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
