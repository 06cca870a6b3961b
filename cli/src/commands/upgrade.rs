//! `upgrade`: another version is installed and started.

use super::{power::Wait, track};
use crate::{
    output::{self, Table},
    session::{Maintenance, Session},
};
use anyhow::Result;
use api::proto::machine::{UpgradeRequest, upgrade_request::RebootMode as Wire};
use clap::{ArgAction, ValueEnum};
use jiff::Timestamp;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The installer's image
    #[arg(short, long, required = true)]
    image: String,
    /// Keep what is in EPHEMERAL
    #[arg(short, long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true, action = ArgAction::Set)]
    preserve: bool,
    /// Install at the next start, before anything is mounted
    #[arg(short, long)]
    stage: bool,
    /// Without asking whether etcd and the cluster are well
    #[arg(short, long)]
    force: bool,
    /// How to restart: `powercycle` goes through the firmware
    #[arg(short = 'm', long, value_enum, default_value_t = RebootMode::Default)]
    reboot_mode: RebootMode,
    #[command(flatten)]
    wait: Wait,
    /// For a node in maintenance: no client certificate, and its own is not checked
    #[arg(long)]
    insecure: bool,
    /// With --insecure: the fingerprint that the node prints on its console
    #[arg(long, value_delimiter = ',', value_name = "FINGERPRINT", requires = "insecure")]
    cert_fingerprint: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RebootMode {
    Default,
    Powercycle,
}

impl Flags {
    /// `-i` is the image here.
    pub(crate) fn maintenance(&self) -> Maintenance {
        Maintenance { insecure: self.insecure, cert_fingerprint: self.cert_fingerprint.clone() }
    }
}

pub(crate) async fn run(session: Session, flags: Flags) -> Result<()> {
    let reboot_mode = match flags.reboot_mode {
        RebootMode::Default => Wire::Default,
        RebootMode::Powercycle => Wire::Powercycle,
    };
    // A node in maintenance has no events to follow that a caller without certificate may see.
    let patience = flags.wait.patience().filter(|_| !flags.insecure);
    let request = UpgradeRequest {
        image: flags.image,
        preserve: flags.preserve,
        stage: flags.stage,
        force: flags.force,
        reboot_mode: reboot_mode.into(),
    };
    if let Some(patience) = patience {
        return track::run(session, track::Action::Upgrade(request), patience).await;
    }
    let answers =
        session.answers(session.client.machine().upgrade(session.request(request)).await, |r| r.messages)?;
    let mut table = Table::new(&[("NODE", "node"), ("ACK", "ack"), ("STARTED", "started")]);
    for (node, answer) in answers {
        table.push(vec![node.into(), answer.ack.into(), Timestamp::now().to_string().into()]);
    }
    output::print_table(&table, session.global.output)
}
