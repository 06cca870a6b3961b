//! Starting the node's services; [`crate::services`] says what they are.

use std::sync::Arc;
use std::time::Duration;

use runtime::sequencer::{TaskError, TaskFuture};

use super::status::{Stage, publish_stage};
use crate::late_services::may_wait;
use crate::node::Node;
use crate::readiness::API_READY_DEADLINE;
use crate::{long_lived, mounts, services, time};

/// How long all services may take.
const ALL_UP_DEADLINE: Duration = Duration::from_secs(15 * 60);

/// Starts everything that follows from resources.
pub fn start_controllers(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        long_lived::start(&node);
        let following = super::status::follow_services(node.clone());
        node.runtime.start_task("machine-status", "shows whether the machine is ready", following);
        mounts::publish_now(&node.runtime).map_err(|e| TaskError(format!("read the mount table: {e}")))
    })
}

/// Opens the API socket and serves it.
pub fn start_machined(node: Arc<Node>) -> TaskFuture {
    start(node, "machined")
}

/// Starts loopback and DHCP.
pub fn start_networkd(node: Arc<Node>) -> TaskFuture {
    start(node, "networkd")
}

/// Starts the clock's keeper.
pub fn start_timed(node: Arc<Node>) -> TaskFuture {
    start(node, time::ID)
}

/// Starts module loading for devices.
pub fn start_udevd(node: Arc<Node>) -> TaskFuture {
    start(node, "udevd")
}

/// Starts the API's front end.
pub fn start_apid(node: Arc<Node>) -> TaskFuture {
    start(node, "apid")
}

fn start(node: Arc<Node>, id: &'static str) -> TaskFuture {
    Box::pin(async move { services::start(&node, id).map_err(|error| TaskError(error.to_string())) })
}

/// Waits until the API has answered, or says what it waited for.
pub fn wait_for_api(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        // Its API comes with its cluster, and nothing of the cluster runs before the next phases.
        if node.runtime.config().is_some_and(|config| config::lacks_authority(&config)) {
            return Ok(());
        }
        let mut readiness = node.readiness.subscribe();
        let ready = readiness.wait_for(|readiness| readiness.announced);
        if tokio::time::timeout(API_READY_DEADLINE, ready).await.is_err() {
            let seconds = API_READY_DEADLINE.as_secs();
            node.runtime.journal.warn(&format!(
                "API not ready within {seconds} s (deadline waitForAPI); going on without it"
            ));
        }
        Ok(())
    })
}

/// Starts all services and waits for them.
pub fn start_all_services(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        services::define_all(&node).map_err(|error| TaskError(error.to_string()))?;
        let ids = node.runtime.services.ids();
        for id in &ids {
            node.runtime.services.start(id);
        }
        node.runtime.timeline.close();
        // A node without a time server is up all the same; what needs the time waits for it by itself. So is one that waits
        // for its cluster's bootstrap.
        let awaited: Vec<String> = ids.into_iter().filter(|id| !may_wait(&node.runtime.root, id)).collect();
        let late = node.runtime.services.wait_up(&awaited, ALL_UP_DEADLINE).await.err().unwrap_or_default();
        publish_stage(&node, "", &Stage::Running(late.clone()));
        if late.is_empty() {
            return Ok(());
        }
        let seconds = ALL_UP_DEADLINE.as_secs();
        Err(TaskError(format!("not up within {seconds} s (deadline startAllServices): {}", late.join(", "))))
    })
}
