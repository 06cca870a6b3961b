//! `inspect.InspectService`: which controller reads and writes what, for the dependency graph.
//!
//! Does not: name types that no client can read; `inspect dependencies --with-resources` lists every type that is named.

use api::proto::inspect as proto;
use api::proto::inspect::inspect_service_server::InspectService;
use runtime::store::Definition;
use tonic::{Request, Response, Status};

use crate::controllers;

/// Edge kinds by number: the two generations name them differently (crates/api/proto/inspect/inspect.proto).
const WRITES: i32 = 0;
const READS: i32 = 2;

/// The service.
pub(crate) struct Inspect;

#[tonic::async_trait]
impl InspectService for Inspect {
    async fn controller_runtime_dependencies(
        &self,
        _request: Request<()>,
    ) -> Result<Response<proto::ControllerRuntimeDependenciesResponse>, Status> {
        let answer = proto::ControllerRuntimeDependency { metadata: None, edges: edges() };
        Ok(Response::new(proto::ControllerRuntimeDependenciesResponse { messages: vec![answer] }))
    }
}

fn edges() -> Vec<proto::ControllerDependencyEdge> {
    let mut edges = Vec::new();
    for controller in controllers::ALL {
        let edge = |kind: i32, to: &'static Definition| proto::ControllerDependencyEdge {
            controller_name: controller.name.to_owned(),
            edge_type: kind,
            resource_namespace: to.namespace.to_owned(),
            resource_type: to.kind.to_owned(),
            resource_id: String::new(),
        };
        // A client looks each type up, and an internal one is not registered.
        let public = |kind: &&&'static Definition| !kind.internal;
        edges.extend(controller.outputs.iter().filter(public).map(|output| edge(WRITES, output)));
        edges.extend(controller.inputs.iter().filter(public).map(|input| edge(READS, input)));
    }
    edges.sort_by(|a, b| (&a.controller_name, &a.resource_type).cmp(&(&b.controller_name, &b.resource_type)));
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_a_controller_reads_or_writes_is_an_edge() {
        let edges = edges();
        let has = |name: &str, kind: i32, to: &str| {
            edges.iter().any(|e| e.controller_name == name && e.edge_type == kind && e.resource_type == to)
        };
        assert!(has("network.HostnameController", WRITES, "HostnameStatuses.net.talos.dev"));
        assert!(has("network.HostnameController", READS, "MachineConfigs.config.talos.dev"));
        let all = controllers::ALL.iter().flat_map(|c| c.inputs.iter().chain(c.outputs));
        assert_eq!(edges.len(), all.filter(|kind| !kind.internal).count());
    }

    /// By the calls of `inspect dependencies --with-resources`: the edges, then a list of each type that they name.
    #[tokio::test]
    async fn inspect_dependencies_with_resources_names_registered_types_only() {
        use api::proto::cosi::resource as cosi;
        use api::proto::cosi::resource::state_client::StateClient;
        use api::proto::inspect::inspect_service_client::InspectServiceClient;
        let f = crate::server::tests::fixture().await;
        let answer = InspectServiceClient::new(f.channel.clone()).controller_runtime_dependencies(()).await;
        let edges = answer.unwrap().into_inner().messages.remove(0).edges;
        assert!(!edges.is_empty());
        let mut state = StateClient::new(f.channel.clone());
        for edge in edges {
            let mut request = tonic::Request::new(cosi::ListRequest {
                namespace: edge.resource_namespace,
                r#type: edge.resource_type.clone(),
                options: None,
            });
            request.metadata_mut().insert("talos-role", "os:admin".parse().unwrap());
            let listed = state.list(request).await;
            assert!(listed.is_ok(), "{}: {:?}", edge.resource_type, listed.err());
        }
    }
}
