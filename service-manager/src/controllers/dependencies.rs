//! Who reads and writes which resources: the data of `billetctl inspect dependencies`.
//!
//! Source: crates/api/proto/inspect/inspect.proto (`InspectService`).

use runtime::store;

use super::ALL;

/// How a controller depends on a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// It alone writes resources of the type.
    Output,
    /// It runs again when one changes.
    Input,
}

/// One edge of the graph.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The controller's name.
    pub controller: &'static str,
    /// Which way.
    pub edge: Edge,
    /// Namespace of the type.
    pub namespace: &'static str,
    /// The type.
    pub kind: &'static str,
}

/// Every edge, sorted: the controllers' declared ones, and each type's writer where that is no controller of
/// [`super::ALL`] but a service or a task. Internal types are left out, and those that nothing writes.
pub fn dependencies() -> Vec<Dependency> {
    let inputs = ALL
        .iter()
        .flat_map(|controller| controller.inputs.iter().map(|kind| (controller.name, Edge::Input, *kind)));
    let written = store::ALL.iter().filter(|kind| !kind.writer.is_empty());
    let outputs = written.map(|kind| (kind.writer, Edge::Output, *kind));
    let mut edges: Vec<Dependency> = inputs
        .chain(outputs)
        .filter(|(_, _, kind)| !kind.internal)
        .map(|(controller, edge, kind)| Dependency {
            controller,
            edge,
            namespace: kind.namespace,
            kind: kind.kind,
        })
        .collect();
    edges.sort();
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_and_every_public_type_is_in_the_graph() {
        let edges = dependencies();
        for controller in ALL {
            for kind in controller.inputs.iter().filter(|kind| !kind.internal) {
                assert!(edges.iter().any(|edge| {
                    (edge.controller, edge.edge, edge.kind) == (controller.name, Edge::Input, kind.kind)
                }));
            }
        }
        for kind in store::ALL {
            let writers = edges.iter().filter(|edge| edge.edge == Edge::Output && edge.kind == kind.kind);
            assert_eq!(
                writers.count(),
                usize::from(!kind.internal && !kind.writer.is_empty()),
                "{}",
                kind.kind
            );
        }
    }
}
