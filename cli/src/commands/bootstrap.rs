//! `bootstrap`: begin the cluster on one control plane node, anew or with a snapshot of etcd.
//!
//! Does not: judge whether the node may begin or recover; the node does.
//! Order: the snapshot is verified, then sent; the bootstrap that follows uses what the node got.

mod snapshot;

use anyhow::Result;
use api::{client, proto::machine::BootstrapRequest};
use snapshot::{Check, Snapshot};
use std::path::PathBuf;
use tokio::task::spawn_blocking;

use crate::session::Session;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Begin with the data of this snapshot of etcd, which `etcd snapshot` wrote; it is verified before it is sent
    #[arg(long, value_name = "FILE")]
    recover_from: Option<PathBuf>,
    /// With --recover-from: do not verify the file; a copy of etcd's database file has no digest
    #[arg(long, requires = "recover_from")]
    recover_skip_hash_check: bool,
}

/// A second node would begin a second cluster, so the request is for one.
pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let node = session.single_node("bootstrap")?;
    let Flags { recover_from, recover_skip_hash_check } = flags;
    let recover_etcd = recover_from.is_some();
    if let Some(path) = recover_from {
        let check = if recover_skip_hash_check { Check::NotEmpty } else { Check::Digest };
        let snapshot = spawn_blocking(move || Snapshot::open(&path, check)).await??;
        snapshot.send(session, node.as_deref()).await?;
    }
    let request = BootstrapRequest { recover_etcd, recover_skip_hash_check };
    let request = client::to_nodes(request, node.as_slice());
    let response = session.client.machine().bootstrap(request).await;
    session.answers(response, |r| r.messages).map(drop)
}
