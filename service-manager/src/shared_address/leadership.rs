//! The holder of a shared address does not lead etcd where another member can.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`pass_on`] | etcd's members | which member leads | when the node has the address no longer |
//!
//! Order: a holder that dies and led etcd takes the address with it for an election of etcd, and etcd prolongs all leases by its
//! own timeout after that: four to six seconds. Without that it is the lease alone.
//! Fails by: a line once a reason; it is tried again, and the address does not depend on it.
//! Source: docs/decisions/0035-the-holder-does-not-lead-etcd.md.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::Cluster;

/// Between two looks at who leads.
const PERIOD: Duration = Duration::from_secs(5);

/// Has another member lead each time that this node's does.
pub(super) async fn pass_on(cluster: Arc<Cluster>) {
    let mut said = String::new();
    loop {
        let passed = match cluster.kubernetes.get() {
            Some(kubernetes) => kubernetes.pass_etcd_leadership_on().await,
            None => Ok(None),
        };
        match passed {
            Ok(successor) => {
                said.clear();
                if let Some(name) = successor {
                    let line = format!("vip: {name} leads etcd from now on: this node has a shared address");
                    cluster.runtime.journal.say(&line);
                }
            }
            Err(error) => {
                let text = error.to_string();
                if text != said {
                    cluster.runtime.journal.warn(&format!("vip: pass etcd's leadership on: {text}"));
                }
                said = text;
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}
