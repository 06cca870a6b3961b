//! What the holders of shared addresses see of the node and its cluster.

use std::sync::{Arc, OnceLock};

use kubernetes_node::KubernetesNode;
use runtime::Runtime;

/// The node and its cluster.
pub(crate) struct Cluster {
    pub(super) runtime: Arc<Runtime>,
    /// Once it is there.
    pub(super) kubernetes: Arc<OnceLock<KubernetesNode>>,
}

impl Cluster {
    /// Of this node.
    pub(crate) fn new(runtime: Arc<Runtime>, kubernetes: Arc<OnceLock<KubernetesNode>>) -> Arc<Self> {
        Arc::new(Self { runtime, kubernetes })
    }
}
