//! Whether clients that come to a shared address would be served on this node.
//!
//! Owns: how often the API server may fail before the address goes elsewhere.

use std::time::Duration;

use kubernetes_node::{KubernetesNode, OwnApiServer, kubelet};
use runtime::services::machine::State;
use tokio::time::Instant;

use super::cluster::Cluster;

/// Between two looks at the API server.
const PERIOD: Duration = Duration::from_secs(1);
/// In a row, before the address goes.
const MAX_FAILURES: u32 = 3;

/// What is known of the API server.
#[derive(Default)]
pub(super) struct Serving {
    server: OwnApiServer,
    /// When it was last asked.
    looked: Option<Instant>,
    /// How often in a row it did not serve.
    failures: u32,
}

impl Serving {
    /// Whether the kubelet runs and, on a control plane node, the API server serves; why not.
    pub(super) async fn look(
        &mut self,
        cluster: &Cluster,
        kubernetes: &KubernetesNode,
    ) -> Result<(), String> {
        let kubelet = cluster.runtime.services.record(kubelet::ID);
        if kubelet.is_none_or(|record| record.state != State::Running) {
            return Err("the kubelet does not run".to_owned());
        }
        if !is_control_plane(cluster) {
            return Ok(());
        }
        if self.looked.is_none_or(|looked| looked.elapsed() >= PERIOD) {
            let is_first = self.looked.replace(Instant::now()).is_none();
            match self.server.is_ready(kubernetes).await {
                Ok(()) => self.failures = 0,
                // Before it has served once, nothing is expected of it.
                Err(_) if is_first => self.failures = MAX_FAILURES,
                Err(_) => self.failures = self.failures.saturating_add(1),
            }
        }
        if self.failures < MAX_FAILURES { Ok(()) } else { Err("the API server does not serve".into()) }
    }
}

/// Whether this node runs the control plane.
pub(super) fn is_control_plane(cluster: &Cluster) -> bool {
    cluster.runtime.config().is_some_and(|config| config.machine.machine_type.is_control_plane())
}
