//! `reboot`, `shutdown` and `rollback`, with or without waiting for the end.

use super::{events::duration, track};
use crate::session::Session;
use anyhow::Result;
use api::proto::machine::{RebootRequest, RollbackRequest, ShutdownRequest, reboot_request};
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
    /// Show the kernel's log while waiting; means --wait
    #[arg(long)]
    debug: bool,
}

impl Wait {
    /// Whether to wait, and how; `None` to go on at once.
    pub(super) fn patience(&self) -> Option<track::Patience> {
        let wanted = self.wait || self.debug;
        wanted.then_some(track::Patience { timeout: self.timeout, debug: self.debug })
    }
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
    if let Some(patience) = flags.wait.patience() {
        return track::run(session, track::Action::Reboot(request), patience).await;
    }
    let response = session.client.machine().reboot(session.request(request)).await;
    session.answers(response, |r| r.messages).map(drop)
}

pub(crate) async fn shutdown(session: Session, flags: ShutdownFlags) -> Result<()> {
    let request = ShutdownRequest { force: flags.force };
    if let Some(patience) = flags.wait.patience() {
        return track::run(session, track::Action::Shutdown(request), patience).await;
    }
    let response = session.client.machine().shutdown(session.request(request)).await;
    session.answers(response, |r| r.messages).map(drop)
}

pub(crate) async fn rollback(session: &Session) -> Result<()> {
    let response = session.client.machine().rollback(session.request(RollbackRequest {})).await;
    session.answers(response, |r| r.messages).map(drop)
}
