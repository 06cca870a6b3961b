//! `inspect`: how the node works inside.

use super::get;
use crate::{output, session::Session};
use anyhow::Result;
use api::{
    client,
    proto::inspect::{
        ControllerDependencyEdge, DependencyEdgeType, inspect_service_client::InspectServiceClient,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};
use tonic::Code;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Which controller reads and writes which resources, as a Graphviz graph
    Dependencies(Flags),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Single resources too, not only their types
    #[arg(long)]
    with_resources: bool,
}

pub(crate) async fn run(session: &Session, command: Command) -> Result<()> {
    let Command::Dependencies(flags) = command;
    let node = session.single_node("inspect dependencies")?;
    let request = client::to_nodes((), node.as_slice());
    let mut client = InspectServiceClient::new(session.client.channel());
    let answers = session.answers(client.controller_runtime_dependencies(request).await, |r| r.messages)?;
    let mut edges: Vec<_> = answers.into_iter().flat_map(|(_, answer)| answer.edges).collect();
    if flags.with_resources {
        let found = resources(session, node.as_deref(), &edges).await?;
        edges = edges.iter().flat_map(|edge| with_resources(edge, &found)).collect();
    }
    Ok(output::print(graph(&edges, flags.with_resources))?)
}

/// Ids of resources and their owners, by namespace and type.
type Found = BTreeMap<(String, String), Vec<(String, String)>>;

/// The resources of every type that an edge names. A type that this role may not read has none.
async fn resources(
    session: &Session,
    node: Option<&str>,
    edges: &[ControllerDependencyEdge],
) -> Result<Found> {
    let types = edges.iter().map(|edge| (edge.resource_namespace.clone(), edge.resource_type.clone()));
    let mut found = Found::new();
    for (namespace, kind) in types.collect::<BTreeSet<_>>() {
        match get::list(session, node, namespace.clone(), kind.clone()).await {
            Ok(resources) => {
                let facts = resources.into_iter().filter_map(|resource| resource.metadata);
                let facts = facts.map(|metadata| (metadata.id, metadata.owner)).collect();
                found.insert((namespace, kind), facts);
            }
            Err(status) if status.code() == Code::PermissionDenied => {}
            Err(status) => return Err(session.error(&status)),
        }
    }
    Ok(found)
}

/// An edge for each resource of the type: one that the edge names, one that a shared writer owns, or else all. A type without
/// any stays as it is.
fn with_resources(edge: &ControllerDependencyEdge, found: &Found) -> Vec<ControllerDependencyEdge> {
    let key = (edge.resource_namespace.clone(), edge.resource_type.clone());
    let is_shared = edge.edge_type == i32::from(DependencyEdgeType::OutputShared);
    let counts = |(id, owner): &&(String, String)| {
        (edge.resource_id.is_empty() || edge.resource_id == *id)
            && (!is_shared || edge.controller_name == *owner)
    };
    let ids = found.get(&key).into_iter().flatten().filter(counts).map(|(id, _)| id);
    let edges: Vec<_> =
        ids.map(|id| ControllerDependencyEdge { resource_id: id.clone(), ..edge.clone() }).collect();
    if edges.is_empty() { vec![edge.clone()] } else { edges }
}

/// The graph in the dot language: controllers are boxes, types of resources are notes.
pub(super) fn graph(edges: &[ControllerDependencyEdge], with_resources: bool) -> String {
    let controllers: BTreeSet<_> = edges.iter().map(|e| e.controller_name.as_str()).collect();
    let resources: BTreeSet<_> = edges.iter().map(|e| resource(e, with_resources)).collect();
    let mut out = String::from("digraph {\n\trankdir=\"LR\";\n");
    for name in controllers {
        let _ = writeln!(
            out,
            "\t{}[fillcolor=\"azure2\",label={},shape=\"box\",style=\"rounded,filled\"];",
            id(name),
            id(name)
        );
    }
    for name in resources {
        let _ = writeln!(
            out,
            "\t{}[fillcolor=\"cornsilk\",label={},shape=\"note\",style=\"filled\"];",
            id(&name),
            id(&name)
        );
    }
    let lines: BTreeSet<_> = edges.iter().map(|e| line(e, &resource(e, with_resources))).collect();
    lines.iter().for_each(|line| out.push_str(line));
    out + "}\n"
}

/// What writes points to the resource, what reads is pointed to by it; a weak input is dotted.
fn line(edge: &ControllerDependencyEdge, resource: &str) -> String {
    let (controller, resource) = (id(&edge.controller_name), id(resource));
    match DependencyEdgeType::try_from(edge.edge_type).unwrap_or(DependencyEdgeType::InputWeak) {
        DependencyEdgeType::OutputExclusive => format!("\t{controller} -> {resource}[style=\"solid\"];\n"),
        DependencyEdgeType::OutputShared => format!("\t{controller} -> {resource}[style=\"bold\"];\n"),
        DependencyEdgeType::InputStrong => format!("\t{resource} -> {controller}[style=\"solid\"];\n"),
        DependencyEdgeType::InputWeak => format!("\t{resource} -> {controller}[style=\"dotted\"];\n"),
        DependencyEdgeType::InputDestroyReady => format!("\t{resource} -> {controller}[style=\"dashed\"];\n"),
    }
}

fn resource(edge: &ControllerDependencyEdge, with_resources: bool) -> String {
    if with_resources && !edge.resource_id.is_empty() {
        return format!("{}({}/{})", edge.resource_type, edge.resource_namespace, edge.resource_id);
    }
    edge.resource_type.clone()
}

/// A quoted name of the dot language.
fn id(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(controller: &str, kind: DependencyEdgeType, resource_id: &str) -> ControllerDependencyEdge {
        ControllerDependencyEdge {
            controller_name: controller.into(),
            edge_type: kind.into(),
            resource_namespace: "config".into(),
            resource_type: "MachineConfigs".into(),
            resource_id: resource_id.into(),
        }
    }

    #[test]
    fn readers_and_writers_have_their_arrows() {
        let edges = [
            edge("a", DependencyEdgeType::OutputExclusive, ""),
            edge("b", DependencyEdgeType::InputWeak, "v1alpha1"),
            edge("b", DependencyEdgeType::InputWeak, "other"),
        ];
        let text = graph(&edges, false);
        assert!(text.starts_with("digraph {\n") && text.ends_with("}\n"));
        assert!(text.contains("\t\"a\" -> \"MachineConfigs\"[style=\"solid\"];\n"));
        assert_eq!(text.matches("\"MachineConfigs\" -> \"b\"[style=\"dotted\"];").count(), 1, "{text}");
        assert!(graph(&edges, true).contains("\"MachineConfigs(config/v1alpha1)\" -> \"b\""));
    }

    #[test]
    fn each_resource_is_at_the_edges_of_its_type() {
        let key = ("config".to_owned(), "MachineConfigs".to_owned());
        let of = |id: &str, owner: &str| (id.to_owned(), owner.to_owned());
        let found = Found::from([(key, vec![of("v1alpha1", "a"), of("persistent", "b")])]);
        let ids = |edge: ControllerDependencyEdge| -> Vec<String> {
            with_resources(&edge, &found).into_iter().map(|edge| edge.resource_id).collect()
        };
        assert_eq!(ids(edge("x", DependencyEdgeType::InputWeak, "")), ["v1alpha1", "persistent"]);
        assert_eq!(ids(edge("x", DependencyEdgeType::InputStrong, "persistent")), ["persistent"]);
        assert_eq!(ids(edge("a", DependencyEdgeType::OutputShared, "")), ["v1alpha1"]);
        let none = ControllerDependencyEdge {
            resource_type: "Others".into(),
            ..edge("x", DependencyEdgeType::InputWeak, "")
        };
        assert_eq!(ids(none), [""]);
    }

    #[test]
    fn names_can_not_leave_their_quotes() {
        assert_eq!(id("a\"b\\"), "\"a\\\"b\\\\\"");
    }
}
