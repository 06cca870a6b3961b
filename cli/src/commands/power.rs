//! `reboot` and `shutdown`, with or without waiting for the end.

use super::{events::duration, track};
use crate::session::Session;
use anyhow::Result;
use api::proto::machine::{RebootRequest, ShutdownRequest, reboot_request};
use clap::{ArgAction, ValueEnum};
use std::time::Duration;

/// Flags of both.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Wait {
    /// Wait until it is done
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set)]
    wait: bool,
    /// How long to wait
    #[arg(long, default_value = "30m", value_parser = duration, value_name = "TIME")]
    timeout: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RebootFlags {
    /// How: `default` may use kexec, `powercycle` goes through the firmware, `force` skips the orderly end
    #[arg(short, long, value_enum, default_value_t = Mode::Default)]
    mode: Mode,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Default,
    Powercycle,
    Force,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShutdownFlags {
    /// Do not wait for Kubernetes to move the pods
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) async fn reboot(session: Session, flags: RebootFlags) -> Result<()> {
    let mode = match flags.mode {
        Mode::Default => reboot_request::Mode::Default,
        Mode::Powercycle => reboot_request::Mode::Powercycle,
        Mode::Force => reboot_request::Mode::Force,
    };
    let request = RebootRequest { mode: mode.into() };
    if flags.wait.wait {
        return track::run(session, track::Action::Reboot(request), flags.wait.timeout).await;
    }
    let response = session.client.machine().reboot(session.request(request)).await;
    session.answers(response, |r| r.messages).map(drop)
}

pub(crate) async fn shutdown(session: Session, flags: ShutdownFlags) -> Result<()> {
    let request = ShutdownRequest { force: flags.force };
    if flags.wait.wait {
        return track::run(session, track::Action::Shutdown(request), flags.wait.timeout).await;
    }
    let response = session.client.machine().shutdown(session.request(request)).await;
    session.answers(response, |r| r.messages).map(drop)
}
