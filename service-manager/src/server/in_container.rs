//! What a node that is a container refuses.

use tonic::Status;

use crate::container::NOT_SUPPORTED;
use crate::node::Node;

/// Refuses what only the runtime of a container can do.
pub(super) fn refuse(node: &Node) -> Result<(), Status> {
    if node.is_container() { Err(Status::failed_precondition(NOT_SUPPORTED)) } else { Ok(()) }
}
