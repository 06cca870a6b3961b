//! `inspect`: how the node works inside.

use crate::{output, session::Session};
use anyhow::Result;
use api::{
    client,
    proto::inspect::{
        ControllerDependencyEdge, DependencyEdgeType, inspect_service_client::InspectServiceClient,
    },
};
use std::{collections::BTreeSet, fmt::Write};

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
    let edges: Vec<_> = answers.into_iter().flat_map(|(_, answer)| answer.edges).collect();
    Ok(output::print(graph(&edges, flags.with_resources))?)
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
    fn names_can_not_leave_their_quotes() {
        assert_eq!(id("a\"b\\"), "\"a\\\"b\\\\\"");
    }
}
