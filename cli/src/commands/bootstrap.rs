//! `bootstrap`: begin the cluster on one control plane node.

use anyhow::Result;
use api::{client, proto::machine::BootstrapRequest};

use crate::session::Session;

/// A second node would begin a second cluster, so the request is for one.
pub(crate) async fn run(session: &Session) -> Result<()> {
    let node = session.single_node("bootstrap")?;
    let request = client::to_nodes(BootstrapRequest::default(), node.as_slice());
    let response = session.client.machine().bootstrap(request).await;
    session.answers(response, |r| r.messages).map(drop)
}
