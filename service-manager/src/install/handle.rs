//! The handle of a node's installation: what it needs of the node, and the disk that was installed to.

use std::path::PathBuf;
use std::sync::Arc;

use runtime::Runtime;
use tokio::sync::watch;

use crate::order::Orders;
use crate::upgrade::Upgrades;
use crate::volumes::Volumes;

/// The installation of this node.
pub(crate) struct Installation {
    pub(super) runtime: Arc<Runtime>,
    pub(super) volumes: Arc<Volumes>,
    /// One changes the disk at a time.
    pub(super) upgrades: Arc<Upgrades>,
    pub(super) orders: Arc<Orders>,
    /// Counts block devices that came or went.
    pub(super) devices: watch::Sender<u64>,
    /// The disk that this machined has installed to.
    pub(super) target: watch::Sender<Option<PathBuf>>,
}

impl Installation {
    /// Of a node that this machined has not installed.
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        volumes: Arc<Volumes>,
        upgrades: Arc<Upgrades>,
        orders: Arc<Orders>,
        devices: watch::Sender<u64>,
    ) -> Self {
        Self { runtime, volumes, upgrades, orders, devices, target: watch::channel(None).0 }
    }

    /// The disk that this machined has installed to.
    pub(crate) fn target(&self) -> Option<PathBuf> {
        self.target.borrow().clone()
    }
}
