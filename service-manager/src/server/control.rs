//! Calls that change something: services, reboot, shutdown.

use runtime::sequencer::{self, Start};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::proto::machine as proto;
use runtime::events;
use runtime::services::{Operation, RequestError};
use tonic::Status;

use crate::node::Node;
use crate::order::Order;

/// How long a stop may take before the caller is told.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

pub(super) fn list(node: &Node) -> proto::ServiceListResponse {
    let services = node.runtime.services.records().iter().map(|(id, record)| record.to_proto(id)).collect();
    proto::ServiceListResponse { messages: vec![proto::ServiceList { metadata: None, services }] }
}

/// Does it and returns the sentence of the answer.
pub(super) async fn operate(node: &Node, id: &str, operation: Operation) -> Result<String, Status> {
    #[cfg(test)]
    runtime::request::testing::fault("unary", id);
    node.runtime.services.operate(id, operation, STOP_DEADLINE).await.map_err(|error| match error {
        RequestError::NotDefined(_) => Status::not_found(error.to_string()),
        RequestError::NotAllowed { .. } => Status::unimplemented(error.to_string()),
        RequestError::Deadline { .. } => Status::deadline_exceeded(error.to_string()),
    })?;
    let done = match operation {
        Operation::Start => "started",
        Operation::Stop => "stopped",
        Operation::Restart => "restarted",
    };
    Ok(format!("Service {id:?} {done}"))
}

/// Starts the reboot and returns who asked, for the events.
pub(super) fn reboot(node: &Arc<Node>, request: &proto::RebootRequest) -> Result<String, Status> {
    let mode = request.mode();
    if mode != proto::reboot_request::Mode::Default {
        node.runtime
            .journal
            .say(&format!("reboot mode {mode:?}: always through the firmware on this version"));
    }
    super::in_container::refuse(node)?;
    begin(node, Order::Reboot)
}

/// Starts the shutdown and returns who asked. Pods go elsewhere first, unless it is forced.
pub(super) fn shutdown(node: &Arc<Node>, request: &proto::ShutdownRequest) -> Result<String, Status> {
    super::in_container::refuse(node)?;
    node.drains.store(!request.force, Ordering::SeqCst);
    begin(node, Order::Shutdown).inspect_err(|_| node.drains.store(false, Ordering::SeqCst))
}

fn begin(node: &Arc<Node>, sequence: Order) -> Result<String, Status> {
    let actor_id = events::actor_id();
    node.runtime.journal.say(&format!("{} via API received, actor {actor_id}", sequence.name()));
    let start = Start { actor_id: actor_id.clone(), phase: 0, force: true };
    sequencer::start(node, sequence, start)
        .map_err(|locked| Status::failed_precondition(locked.to_string()))?;
    Ok(actor_id)
}
