//! Connecting to nodes and calling them.
//!
//! | task | in | out | ends |
//! |---|---|---|---|
//! | tonic's connection | calls of [`Client`] | answers | when the last clone of the channel is dropped |
//!
//! Owns: choosing an endpoint, the headers that name the nodes a call is for, sorting answers by node, and turning
//! transport errors into sentences that say what to do. Does not: print, retry, or read files.
//! Source: docs/users/endpoint.md; crates/api/testdata/wire.txt.

mod connect;
mod endpoint;
mod reply;
mod watched;

pub use connect::{CONNECT_DEADLINE, Client, ConnectError, Options};
pub use endpoint::{DEFAULT_PORT, Endpoint, EndpointError};
pub use reply::{NodeError, NodeMessage, Reply, node_error, sort};

use tonic::{Request, metadata::MetadataValue};

/// Header that fans a call out to nodes; their answers carry metadata.
pub const NODES: &str = "nodes";
/// Header that sends a call to one node, whose answer comes back as it is.
pub const NODE: &str = "node";

/// A call that fans out to `nodes`; to the endpoint itself if there are none.
pub fn to_nodes<T>(message: T, nodes: &[String]) -> Request<T> {
    let mut request = Request::new(message);
    for value in nodes.iter().filter_map(|n| MetadataValue::try_from(n.as_str()).ok()) {
        request.metadata_mut().append(NODES, value);
    }
    request
}

/// A call to one node; to the endpoint itself without one.
pub fn to_node<T>(message: T, node: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(value) = node.and_then(|n| MetadataValue::try_from(n).ok()) {
        request.metadata_mut().insert(NODE, value);
    }
    request
}
