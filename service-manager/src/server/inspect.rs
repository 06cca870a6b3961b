//! `inspect.InspectService`: which controller reads and writes what, for the dependency graph.

use api::proto::inspect as proto;
use api::proto::inspect::inspect_service_server::InspectService;
use tonic::{Request, Response, Status};

use crate::controllers;
use crate::store::Definition;

/// Edge kinds by number: the two generations name them differently (spec/api-wire-facts.md §2.3).
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
        edges.extend(controller.outputs.iter().map(|output| edge(WRITES, output)));
        edges.extend(controller.inputs.iter().map(|input| edge(READS, input)));
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
        let wanted: usize = controllers::ALL.iter().map(|c| c.inputs.len() + c.outputs.len()).sum();
        assert_eq!(edges.len(), wanted);
    }
}
