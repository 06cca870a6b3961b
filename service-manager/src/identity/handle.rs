//! The handle of the node API's identity: what its certificates are made of, and what apid and trustd serve with.

use std::sync::{Arc, OnceLock};

use kubernetes_node::KubernetesNode;
use runtime::Runtime;
use tokio::sync::{Notify, watch};

use crate::locked::Maintenance;
use crate::material::Material;
use crate::programs::Program;
use crate::readiness::Readiness;
use crate::volumes::Volumes;

type Slot = watch::Sender<Option<Arc<Material>>>;

/// What identity needs of the node.
pub(crate) struct Parts {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) volumes: Arc<Volumes>,
    /// How far the API is.
    pub(crate) readiness: watch::Sender<Readiness>,
    /// How the node waits for a config, if it does.
    pub(crate) maintenance: watch::Receiver<Maintenance>,
    /// Who knows the cluster's nodes, once it is there.
    pub(crate) kubernetes: Arc<OnceLock<KubernetesNode>>,
}

/// The identity of the node's API: the material of both programs, once there is any.
pub(crate) struct Identity {
    pub(super) runtime: Arc<Runtime>,
    pub(super) volumes: Arc<Volumes>,
    pub(super) readiness: watch::Sender<Readiness>,
    pub(super) maintenance: watch::Receiver<Maintenance>,
    pub(super) kubernetes: Arc<OnceLock<KubernetesNode>>,
    apid: Slot,
    pub(super) trustd: Slot,
    /// Told when others are wanted at once.
    pub(super) wanted: Notify,
}

impl Identity {
    /// Without material.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { runtime, volumes, readiness, maintenance, kubernetes } = parts;
        Self {
            runtime,
            volumes,
            readiness,
            maintenance,
            kubernetes,
            apid: watch::channel(None).0,
            trustd: watch::channel(None).0,
            wanted: Notify::new(),
        }
    }

    /// What a program serves with.
    pub(super) fn slot(&self, program: Program) -> &Slot {
        match program {
            Program::Apid => &self.apid,
            Program::Trustd => &self.trustd,
        }
    }

    /// What apid serves with, now and later.
    pub(crate) fn of_apid(&self) -> watch::Receiver<Option<Arc<Material>>> {
        self.apid.subscribe()
    }

    /// Has certificates be issued at once, whatever is left of the life of the present ones.
    pub(crate) fn want_others(&self) {
        self.wanted.notify_one();
    }
}
