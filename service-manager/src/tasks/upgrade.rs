//! The task of an upgrade.

use runtime::sequencer::{TaskError, TaskFuture};
use std::sync::Arc;

use oci::registry::Patience;

use crate::node::Node;
use crate::upgrade::{self, Failure};

/// Puts the new system beside the running one.
pub fn upgrade(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let failed = |failure: Failure| TaskError(failure.to_string());
        let request = upgrade::next_request(&node).await.map_err(failed)?;
        let work = async {
            let prepared = upgrade::prepare(&node, &request.image, Patience::default()).await?;
            upgrade::install(&node, prepared, request.wipe_ephemeral, Box::new(|_: &str| {})).await
        };
        work.await.map_err(|failure| {
            upgrade::publish_failure(&node, &request.image, &failure);
            failed(failure)
        })
    })
}
