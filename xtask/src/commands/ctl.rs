//! `xtask ctl`: billetctl for the node that `run` started.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Error, Result};

use super::run::state::State;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Command and flags of billetctl.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Becomes billetctl; returns only if that failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let state = State::running()?.context("no node is running: start one with `cargo xtask run`")?;
    let words = &options.words;
    let error = Command::new(&state.client).arg("--talosconfig").arg(&state.talosconfig).args(words).exec();
    Err(Error::new(error).context(format!("start {}", state.client.display())))
}
