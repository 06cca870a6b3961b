//! `upgrade`: another version is installed and started.
//!
//! Order: an archive of this machine's goes to each node first, which gives it a name; from then on it is an image like
//! any other.

use super::{image, power::Wait, track};
use crate::{
    output::{self, Table},
    session::{Maintenance, Session},
};
use anyhow::Result;
use api::proto::machine::{UpgradeRequest, upgrade_request::RebootMode as Wire};
use clap::{ArgAction, ValueEnum};
use jiff::Timestamp;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The installer's image: a name with its registry, or a file of this machine (an OCI layout or what `docker save`
    /// writes)
    #[arg(short, long, required = true)]
    image: String,
    /// Keep what is in EPHEMERAL, as every upgrade does; `--preserve=false` has the new system wipe it
    #[arg(short, long, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set)]
    preserve: Option<bool>,
    /// Install at the next start, before anything is mounted
    #[arg(short, long)]
    stage: bool,
    /// Without asking whether etcd is well
    #[arg(short, long)]
    force: bool,
    /// How to restart: a node goes through the firmware with either
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

/// The file that is meant; a name in a registry is none.
fn archive(image: &str) -> Option<PathBuf> {
    let looks_like_one = image.starts_with(['.', '/']) || image.ends_with(".tar");
    (looks_like_one && !image.contains('@')).then(|| PathBuf::from(image)).filter(|path| {
        // A path that is none is told by the open that follows; `host/path.tar` may be a repository.
        image.starts_with(['.', '/']) || path.is_file()
    })
}

pub(crate) async fn run(session: Session, flags: Flags) -> Result<()> {
    let reboot_mode = match flags.reboot_mode {
        RebootMode::Default => Wire::Default,
        RebootMode::Powercycle => Wire::Powercycle,
    };
    // A node in maintenance has no events to follow that a caller without certificate may see.
    let patience = flags.wait.patience().filter(|_| !flags.insecure);
    let image = match archive(&flags.image) {
        Some(path) => image::import(&session, &path).await?,
        None => flags.image,
    };
    let request = UpgradeRequest {
        image,
        preserve: flags.preserve == Some(true),
        stage: flags.stage,
        force: flags.force,
        reboot_mode: reboot_mode.into(),
        // Without the flag nothing is wiped: what talosctl sends then is the same.
        wipe_ephemeral: flags.preserve == Some(false),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_from_names() {
        for file in ["./installer.oci.tar", "/tmp/x", "../y.tar"] {
            assert_eq!(archive(file), Some(PathBuf::from(file)));
        }
        for name in ["registry.example.org/billet/installer:0.2.0", "r.example/a.tar", "r.example/a@sha256:0"]
        {
            assert_eq!(archive(name), None, "{name}");
        }
    }
}
