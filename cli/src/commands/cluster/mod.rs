//! `cluster`: clusters on this machine, whose nodes are containers.
//!
//! Owns: where clusters are kept, what is shown of them, what goes with them.
//! Does not: make networks and containers; the crate `cluster` does.
//! Order of `destroy`: nodes and network, then the entries of the client's files, then the unpacked image.

mod clients;
mod create;
mod image;
mod nameservers;
mod places;

use std::io;

use anyhow::{Context as _, Result};
use cluster::Cluster;

use crate::{
    global::Global,
    output::{self, Cell, Table},
};
use places::{DEFAULT_NAME, StateFlags};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a cluster and wait until it is well; needs root
    Create(Box<create::Flags>),
    /// End a cluster and remove everything of it; needs root
    Destroy(Named),
    /// What a cluster consists of; all clusters where no name is given
    Show(Show),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// Name of the cluster
    #[arg(long, default_value = DEFAULT_NAME, value_name = "NAME")]
    name: String,
    #[command(flatten)]
    state: StateFlags,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// Name of the cluster
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    state: StateFlags,
}

pub(crate) async fn run(global: &Global, command: Command) -> Result<()> {
    match command {
        Command::Create(flags) => create::run(global, *flags).await,
        Command::Destroy(flags) => destroy(&flags),
        Command::Show(flags) => show(global, &flags),
    }
}

fn destroy(flags: &Named) -> Result<()> {
    let places = flags.state.places()?;
    let cluster = cluster::find(&places.clusters, &flags.name)?;
    let clients = clients::Clients::of(&cluster);
    cluster.destroy(&mut output::note)?;
    clients.remove()?;
    match std::fs::remove_dir_all(places.image(&flags.name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context("remove the unpacked image")
        }
        _ => Ok(()),
    }
}

fn show(global: &Global, flags: &Show) -> Result<()> {
    let places = flags.state.places()?;
    let clusters = match &flags.name {
        Some(name) => vec![cluster::find(&places.clusters, name)?],
        None => cluster::all(&places.clusters)?,
    };
    let mut table = Table::new(&[
        ("CLUSTER", "cluster"),
        ("NODE", "node"),
        ("TYPE", "type"),
        ("IP", "ip"),
        ("STATE", "state"),
        ("LOG", "log"),
    ]);
    for cluster in &clusters {
        for node in &cluster.nodes {
            let kind = if node.is_control_plane { "controlplane" } else { "worker" };
            let log = cluster.log(&node.name).display().to_string();
            let cells = [
                &cluster.name,
                &node.name,
                kind,
                &node.address.to_string(),
                state(cluster, &node.name),
                &log,
            ];
            table.push(cells.map(|text| Cell::new(text, text)).to_vec());
        }
    }
    output::print_table(&table, global.output)
}

/// Only root may ask the runtime.
fn state(cluster: &Cluster, node: &str) -> &'static str {
    match cluster.is_running(node) {
        Ok(true) => "running",
        Ok(false) => "stopped",
        Err(_) => "unknown",
    }
}
