//! `etcd`: the members of the cluster's etcd.

use anyhow::Result;
use api::proto::machine::EtcdMemberListRequest;
use clap::Subcommand;

use crate::output::{self, Table};
use crate::session::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Members, as the etcd of each node lists them
    #[command(alias = "member")]
    Members,
}

pub(crate) async fn run(session: &Session, command: Command) -> Result<()> {
    match command {
        Command::Members => members(session).await,
    }
}

async fn members(session: &Session) -> Result<()> {
    let request = session.request(EtcdMemberListRequest::default());
    let response = session.client.machine().etcd_member_list(request).await;
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("ID", "id"),
        ("HOSTNAME", "hostname"),
        ("PEER URLS", "peerUrls"),
        ("CLIENT URLS", "clientUrls"),
        ("LEARNER", "learner"),
    ]);
    for (node, list) in session.answers(response, |r| r.messages)? {
        for member in list.members {
            table.push(vec![
                node.as_str().into(),
                format!("{:016x}", member.id).into(),
                member.hostname.into(),
                output::Cell::new(member.peer_urls.join(","), member.peer_urls),
                output::Cell::new(member.client_urls.join(","), member.client_urls),
                output::Cell::new(member.is_learner.to_string(), member.is_learner),
            ]);
        }
    }
    output::print_table(&table, session.global.output)
}
