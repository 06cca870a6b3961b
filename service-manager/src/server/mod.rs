//! machined's API server, on a unix socket.
//!
//! Owns: the calls that exist. Everything else answers Unimplemented with a sentence.
//! Does not: authenticate; apid does and passes the caller's roles on as `talos-role`. Only apid and root are heard
//! (`callers`); trustd has nothing to ask here.
//! Source: crates/api/proto; every unary answer holds exactly one element, as clients of both generations expect.

// Numbers come from requests: a sum that overflows would end the program for everyone.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod absent;
mod answers;
mod archive;
mod callers;
mod capture;
mod client_configuration;
mod clocks;
mod cluster;
mod cluster_nodes;
mod configuration;
mod containers;
mod control;
mod cosi;
mod cosi_form;
mod cosi_watch;
mod disks;
mod etcd;
mod files;
mod generate;
mod images;
mod in_container;
mod inspect;
mod kubernetes;
mod lists;
mod locked;
mod machine;
mod meta;
mod netstat;
mod network;
mod pod_logs;
mod processors;
mod query;
pub mod reading;
mod reset;
mod resources;
mod selection;
mod statistics;
mod streams;
mod system;
mod upgrades;
mod usage;
pub(crate) mod walks;

use std::path::Path;
use std::sync::Arc;

use api::proto::billet::machine_service_server::MachineServiceServer as OwnServer;
use api::proto::cluster::cluster_service_server::ClusterServiceServer;
use api::proto::cosi::resource::state_server::StateServer;
use api::proto::health::health_server::HealthServer;
use api::proto::inspect::inspect_service_server::InspectServiceServer;
use api::proto::machine::debug_service_server::DebugServiceServer;
use api::proto::machine::image_service_server::ImageServiceServer;
use api::proto::machine::lifecycle_service_server::LifecycleServiceServer;
use api::proto::machine::lvm_service_server::LvmServiceServer;
use api::proto::machine::machine_service_server::MachineServiceServer;
use api::proto::machine::md_service_server::MdServiceServer;
use api::proto::network::network_service_server::NetworkServiceServer;
use api::proto::resource::resource_service_server::ResourceServiceServer;
use api::proto::securityapi::security_service_server::SecurityServiceServer;
use api::proto::storage::storage_service_server::StorageServiceServer;
use api::proto::time::time_service_server::TimeServiceServer;
use runtime::listeners::ListenError;
use runtime::request::{Report, Requests};
use tokio::net::UnixListener;

use crate::node::Node;
use crate::programs::{MACHINED_SOCKET, Program};

/// Largest message either way: what clients of both generations take.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// Opens the socket, or finds the one that an earlier machined opened.
pub fn open(node: &Arc<Node>) -> Result<(), ListenError> {
    let path = Path::new(MACHINED_SOCKET);
    let socket = node.runtime.listeners.unix("machine", path, Program::Apid.user())?;
    socket.set_nonblocking(true).map_err(|e| ListenError::Unix(MACHINED_SOCKET.to_owned(), e))?;
    // Set twice only when the sequence resumes: the first socket serves on.
    let _ = node.api_socket.set(socket);
    if let Err(error) = node.runtime.init.send(&handoff::ToInit::Ready, None) {
        node.runtime.journal.warn(&format!("tell init that the API socket listens: {error}"));
    }
    Ok(())
}

/// Serves the socket.
pub async fn serve(node: Arc<Node>) -> Result<(), String> {
    let socket = node.api_socket.get().ok_or("the API socket is not open")?;
    let socket = socket.try_clone().map_err(|e| format!("duplicate the API socket: {e}"))?;
    let listener = UnixListener::from_std(socket).map_err(|e| format!("watch the API socket: {e}"))?;
    serve_on(node, listener).await
}

/// Serves a listener, for tests too.
pub async fn serve_on(node: Arc<Node>, listener: UnixListener) -> Result<(), String> {
    let machine =
        MachineServiceServer::new(machine::Machine { node: node.clone(), walks: walks::Walks::default() });
    let state = StateServer::new(cosi::State { node: node.clone() });
    let lifecycle = node.clone();
    let own = OwnServer::new(configuration::Own { node: node.clone() });
    let resources = ResourceServiceServer::new(resources::Resources { node: node.clone() });
    let guard = locked::Guard(node.clone());
    let journal = node.runtime.journal.clone();
    let panics = journal.clone();
    let report: Report = Arc::new(move |line| panics.warn(line));
    tonic::transport::Server::builder()
        .layer(Requests(report))
        .layer(guard)
        .add_service(
            machine.max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES),
        )
        .add_service(own)
        .add_service(state.max_encoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(resources.max_encoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(StorageServiceServer::new(disks::Storage { node: node.clone() }))
        .add_service(NetworkServiceServer::new(network::Network { node: node.clone() }))
        .add_service(TimeServiceServer::new(clocks::Clocks { node: node.clone() }))
        .add_service(ImageServiceServer::new(images::Images { node: node.clone() }))
        .add_service(ClusterServiceServer::new(cluster::Cluster { node }))
        .add_service(InspectServiceServer::new(inspect::Inspect))
        .add_service(LifecycleServiceServer::new(upgrades::Lifecycle { node: lifecycle }))
        .add_service(DebugServiceServer::new(absent::Absent))
        .add_service(LvmServiceServer::new(absent::Absent))
        .add_service(MdServiceServer::new(absent::Absent))
        .add_service(HealthServer::new(absent::Absent))
        .add_service(SecurityServiceServer::new(absent::Absent))
        .serve_with_incoming(callers::admitted(listener, journal))
        .await
        .map_err(|e| format!("serve the API socket: {e}"))
}

#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod cosi_tests;
#[cfg(test)]
mod figures_tests;
#[cfg(test)]
mod panic_tests;
#[cfg(test)]
mod patch_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod typed_tests;
#[cfg(test)]
pub(crate) use tests::{
    cluster_config as tests_config, kernel_log as tests_kernel_log, node as tests_node,
    node_of as tests_node_of,
};
