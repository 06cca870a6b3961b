//! The task of an upgrade.

use runtime::sequencer::{TaskError, TaskFuture};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kubernetes_node::etcd;
use oci::registry::Patience;

use crate::node::Node;
use crate::upgrade::{self, Failure};

/// Puts the new system beside the running one.
pub fn upgrade(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let failed = |failure: Failure| TaskError(failure.to_string());
        let request = upgrade::next_request(&node.upgrades).await.map_err(failed)?;
        let work = async {
            let prepared = upgrade::prepare(&node.runtime, &request.image, Patience::default()).await?;
            if request.wipe_ephemeral {
                leave_etcd(&node).await?;
            }
            upgrade::install(&node.upgrades, prepared, request.wipe_ephemeral, Box::new(|_: &str| {})).await
        };
        work.await.map_err(|failure| {
            if let Some(kubernetes) = node.kubernetes.get() {
                kubernetes.stay();
            }
            upgrade::publish_failure(&node.runtime, &request.image, &failure);
            failed(failure)
        })
    })
}

/// A member of etcd whose data is going to be wiped leaves its cluster before anything is written. Where the upgrade fails then, or
/// the system of before starts again, the node has no data of the member that left, and joins anew.
async fn leave_etcd(node: &Node) -> Result<(), Failure> {
    if !etcd::is_member(&node.runtime.root) {
        return Ok(());
    }
    let early = || {
        Failure::Refused("--preserve=false: etcd is not defined yet, so it cannot leave its cluster".into())
    };
    let kubernetes = node.kubernetes.get().ok_or_else(early)?;
    if node.drains.swap(false, Ordering::SeqCst) {
        kubernetes.drain().await;
    }
    let refused = |error| Failure::Refused(format!("--preserve=false: failed to leave cluster: {error}"));
    kubernetes.leave_etcd().await.map_err(refused)
}
