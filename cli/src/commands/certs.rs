//! `certs`: the node's certificates, and others in their place.
//!
//! Does not: know them; the node lists them as resources and makes others.

use anyhow::Result;
use api::proto::billet::{RenewCertificates, machine_service_client::MachineServiceClient};

use super::get;
use crate::{output, session::Session};

/// The type of resource that lists them.
const KIND: &str = "CertificateStatuses.secrets.billet.dev";

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make those anew that the node and its kubelet made, before their time
    Renew,
}

pub(crate) async fn run(session: Session, flags: Flags) -> Result<()> {
    match flags.action {
        None => get::run(session, get::Flags::all(KIND)).await,
        Some(Action::Renew) => renew(&session).await,
    }
}

async fn renew(session: &Session) -> Result<()> {
    let mut service = MachineServiceClient::new(session.client.channel());
    let answer = service.renew_certificates(session.request(())).await;
    let answers: Vec<(String, RenewCertificates)> = session.answers(answer, |r| r.messages)?;
    for (node, answer) in answers {
        for id in &answer.renewed {
            output::print(format!("{node}: {id} is another one\n").as_bytes())?;
        }
        for problem in &answer.failed {
            session.global.part_failed.warn(format!("{node}: {problem}"));
        }
    }
    Ok(())
}
