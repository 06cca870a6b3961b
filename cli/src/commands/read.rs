//! `read`: the content of a file, as it is.

use crate::session::Session;
use anyhow::Result;
use api::{client, proto::machine::ReadRequest};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Absolute path of a regular file
    path: String,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let node = session.single_node("read")?;
    let request = client::to_nodes(ReadRequest { path: flags.path }, node.as_slice());
    session.copy_to_stdout(session.client.machine().read(request).await).await
}
