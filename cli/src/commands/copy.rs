//! `copy`: a directory or file of the node with all that is in it.
//!
//! | task | in | out | ends |
//! |---|---|---|---|
//! | unpacking (blocking) | pieces of the archive | files | with the archive, or the first file that can not be written |
//!
//! Owns: where the archive goes. Source: crates/api/proto/machine/machine.proto (Copy) (the archive).

mod unpack;

use crate::{output, session::Session};
use anyhow::{Context, Result, anyhow};
use api::{client, proto::machine::CopyRequest};
use std::path::{Path, PathBuf};
use tokio::{sync::mpsc, task::spawn_blocking};

/// Pieces that may wait for the disk.
const QUEUE: usize = 64;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Absolute path on the node
    source: String,
    /// Directory to unpack into, or `-` for the tar.gz on stdout
    #[arg(value_name = "DIRECTORY")]
    target: PathBuf,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let node = session.single_node("copy")?;
    let request = client::to_nodes(CopyRequest { root_path: flags.source }, node.as_slice());
    let stream = session.client.machine().copy(request).await;
    if flags.target == Path::new("-") {
        return session.each(stream, |_, data| Ok(output::print(&data.bytes)?)).await;
    }
    let target = flags.target;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let unpacking = spawn_blocking(move || {
        std::fs::create_dir_all(&target).with_context(|| format!("create {}", target.display()))?;
        unpack::into_directory(unpack::Pieces::new(receiver), &target)
    });
    // A closed channel means that unpacking has failed: its error is the one that counts.
    let closed = || anyhow!("the archive could not be unpacked");
    let received =
        session.each_slowly(stream, async |data| sender.send(data.bytes).await.map_err(|_| closed()));
    let received = received.await;
    drop(sender);
    let unpacked = unpacking.await?;
    // A stream that broke leaves half an archive; what broke it says more than what is missing.
    match (received, unpacked) {
        (Err(error), Ok(_)) => Err(error),
        (Err(error), Err(unpacking)) if error.to_string() == closed().to_string() => Err(unpacking),
        (Err(error), Err(_)) => Err(error),
        (Ok(()), unpacked) => unpacked.map(|skipped| {
            skipped.iter().for_each(|line| session.global.part_failed.warn(line));
        }),
    }
}
