//! `reset`: the node forgets what it was.

use super::{power::Wait, track};
use crate::session::{Maintenance, Session};
use anyhow::Result;
use api::proto::machine::{ResetPartitionSpec, ResetRequest, reset_request::WipeMode as Wire};
use clap::{ArgAction, ValueEnum};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Cordon and drain the node first, and leave etcd
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set)]
    graceful: bool,
    /// Restart afterwards instead of turning the node off
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set)]
    reboot: bool,
    /// Only these partitions of the system disk: STATE, EPHEMERAL, META …
    #[arg(long, value_delimiter = ',', value_name = "LABEL")]
    system_labels_to_wipe: Vec<String>,
    /// Other disks to wipe
    #[arg(long, value_delimiter = ',', value_name = "DEVICE")]
    user_disks_to_wipe: Vec<String>,
    /// Which disks: all, system-disk or user-disks
    #[arg(long, value_enum, default_value_t = WipeMode::All)]
    wipe_mode: WipeMode,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    pub(crate) maintenance: Maintenance,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WipeMode {
    All,
    SystemDisk,
    UserDisks,
}

pub(crate) async fn run(session: Session, flags: Flags) -> Result<()> {
    // A node in maintenance has no events to follow that a caller without certificate may see.
    let patience = flags.wait.patience().filter(|_| !flags.maintenance.insecure);
    let request = request(flags);
    if let Some(patience) = patience {
        return track::run(session, track::Action::Reset(request), patience).await;
    }
    let response = session.client.machine().reset(session.request(request)).await;
    session.answers(response, |r| r.messages).map(drop)
}

fn request(flags: Flags) -> ResetRequest {
    let mode = match flags.wipe_mode {
        WipeMode::All => Wire::All,
        WipeMode::SystemDisk => Wire::SystemDisk,
        WipeMode::UserDisks => Wire::UserDisks,
    };
    let labels = flags.system_labels_to_wipe.into_iter();
    ResetRequest {
        graceful: flags.graceful,
        reboot: flags.reboot,
        system_partitions_to_wipe: labels.map(|label| ResetPartitionSpec { label, wipe: true }).collect(),
        user_disks_to_wipe: flags.user_disks_to_wipe,
        mode: mode.into(),
    }
}
