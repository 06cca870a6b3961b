//! `cgroups`: the tree of control groups with what each may use and uses.
//!
//! Owns: which calls are made, and the names that pods and containers get. Does not: read the node's files one by one:
//! the tree comes as one archive.
//! Source: crates/api/proto/machine/machine.proto (Copy, Containers, Processes); the kernel's cgroup-v2.rst.

mod columns;
mod tree;
mod units;

use std::collections::HashMap;

use crate::{
    output::{self, Cell, Column, Table},
    session::Session,
};
use anyhow::{Context, Result, bail};
use api::{
    client,
    proto::{
        common::ContainerDriver,
        machine::{ContainersRequest, CopyRequest},
    },
};
use columns::{Names, Preset};
use tree::Group;

/// Where the kernel shows them.
const ROOT: &str = "/sys/fs/cgroup";
/// The group of all pods.
const PODS: &str = "kubepods";
/// Largest tree that is taken: some hundred pods are a few megabytes.
const MAX_BYTES: usize = 256 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// What to show of each group
    #[arg(long, value_enum, required_unless_present = "schema_file")]
    preset: Option<Preset>,
    /// Not supported: columns are those of the presets
    #[arg(long, hide = true, value_name = "FILE")]
    schema_file: Option<String>,
    /// Show pods and containers by their ids
    #[arg(long)]
    skip_cri_resolve: bool,
}

pub(crate) async fn run(session: &Session, flags: &Flags) -> Result<()> {
    let Some(preset) = flags.preset.filter(|_| flags.schema_file.is_none()) else {
        bail!("--schema-file is not supported: use one of the presets, `--preset memory` for example");
    };
    for node in session.each_node() {
        let root = tree::read(&archive(session, node.as_deref()).await?)
            .with_context(|| format!("read the control groups of {}", session.name_of(node.as_deref())))?;
        let mut names = Names::default();
        if root.children.contains_key(PODS) && !flags.skip_cri_resolve {
            names.containers = containers(session, node.as_deref()).await;
        }
        if preset == Preset::Process {
            names.processes = processes(session, node.as_deref()).await?;
        }
        if session.each_node().len() > 1 {
            output::print(format!("{}:\n", session.name_of(node.as_deref())))?;
        }
        output::print_table(&table(&root, preset, &names), session.global.output)?;
    }
    Ok(())
}

/// The tree as a tar.gz. Some of its files can only be written: what the archive could not hold is no error here.
async fn archive(session: &Session, node: Option<&str>) -> Result<Vec<u8>> {
    let request = client::to_node(CopyRequest { root_path: ROOT.to_owned() }, node);
    let stream = session.client.machine().copy(request).await.map_err(|status| session.error(&status))?;
    let (mut stream, mut bytes) = (stream.into_inner(), Vec::new());
    while let Some(part) = stream.message().await.map_err(|status| session.error(&status))? {
        bytes.extend(part.bytes);
        if bytes.len() > MAX_BYTES {
            bail!("{ROOT} of {} is larger than {MAX_BYTES} bytes", session.name_of(node));
        }
    }
    Ok(bytes)
}

/// Names of pods and containers by the ids in their groups' names. Without Kubernetes the ids stay.
async fn containers(session: &Session, node: Option<&str>) -> HashMap<String, String> {
    let request = ContainersRequest { namespace: "k8s.io".to_owned(), driver: ContainerDriver::Cri.into() };
    let answer = session.client.machine().containers(client::to_node(request, node)).await;
    let listed = match answer {
        Ok(answer) => answer.into_inner().messages,
        Err(status) => {
            session.global.part_failed.warn(format!("pods are shown by id: {}", session.error(&status)));
            return HashMap::new();
        }
    };
    let mut names = HashMap::new();
    for container in listed.into_iter().flat_map(|message| message.containers) {
        if container.id == container.pod_id {
            names.insert(format!("pod{}", container.uid), container.pod_id);
            names.insert(container.internal_id, "sandbox".to_owned());
        } else {
            names.insert(container.internal_id, container.name);
        }
    }
    names
}

/// Names of processes by their id.
async fn processes(session: &Session, node: Option<&str>) -> Result<HashMap<String, String>> {
    let answer = session.client.machine().processes(client::to_node((), node)).await;
    let answer = answer.map_err(|status| session.error(&status))?.into_inner();
    let all = answer.messages.into_iter().flat_map(|message| message.processes);
    Ok(all.map(|process| (process.pid.to_string(), process.command)).collect())
}

fn table(root: &Group, preset: Preset, names: &Names) -> Table {
    let columns = columns::of(preset);
    let key = |heading: &str| heading.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let headings = columns.iter().map(|column| Column::new(column.heading, key(column.heading)));
    let mut table = Table::of(std::iter::once(Column::new("NAME", "name")).chain(headings).collect());
    rows(&mut table, columns, names, &Place { group: root, parent: None, name: ".", head: "", tail: "" });
    table
}

/// One group in the tree.
struct Place<'a> {
    group: &'a Group,
    parent: Option<&'a Group>,
    name: &'a str,
    /// What stands before the name.
    head: &'a str,
    /// What stands before the names below it.
    tail: &'a str,
}

fn rows(table: &mut Table, columns: &[columns::Column], names: &Names, place: &Place<'_>) {
    let name = names.containers.get(place.name).map_or(place.name, String::as_str);
    let mut row = vec![Cell::new(format!("{}{name}", place.head), name)];
    row.extend(columns.iter().map(|column| (column.text)(place.group, place.parent, names).into()));
    table.push(row);
    let last = place.group.children.len().saturating_sub(1);
    for (at, (name, group)) in place.group.children.iter().enumerate() {
        let (corner, line) = if at == last { ("└──", "    ") } else { ("├──", "│   ") };
        let (head, tail) = (format!("{}{corner}", place.tail), format!("{}{line}", place.tail));
        rows(
            table,
            columns,
            names,
            &Place { group, parent: Some(place.group), name, head: &head, tail: &tail },
        );
    }
}

#[cfg(test)]
mod tests;
