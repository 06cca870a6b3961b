//! Installing the machine.

use runtime::sequencer::{TaskError, TaskFuture};
use std::sync::Arc;

use super::status::{Stage, publish_stage};
use crate::node::Node;
use crate::{configuration, install};

/// Chooses a disk, plans, prints the plan, and does it.
pub fn install(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        publish_stage(&node, "", &Stage::Installing);
        install::run(&node.install).await.map_err(|failure| TaskError(failure.to_string()))
    })
}

/// Makes STATE and keeps the config on it.
pub fn save_config(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move { configuration::keep_on_installed(&node.configuration).await.map_err(TaskError) })
}
