//! billetctl: the command line client of a Billet node.
//!
//! Owns: commands, flags and output tables, those of talosctl's both generations at once.
//! Does not: have behaviour that the API lacks; each command is calls of `api::client` and a way to print answers.
//! Fails by: one error on stderr (what, where, what to do) and exit status 1.
//! Source: docs/users/commands.md.

mod args;
mod commands;
mod dispatch;
mod expiry;
mod global;
mod output;
mod private_file;
#[cfg(test)]
mod reference;
mod session;
mod state_directory;

use clap::Parser;
use std::{ffi::OsString, io, process::ExitCode};

/// Why a command line is no command.
#[derive(Debug)]
pub enum NotRun {
    /// Help or version was asked for; the text.
    Shown(String),
    /// It is not understood; the error.
    Refused(String),
}

/// What a command line means, program name first, without doing it: the command with its flags as Rust prints them.
///
/// # Errors
/// [`NotRun`] for everything that `billetctl` answers without a command.
pub fn understood(words: impl IntoIterator<Item = OsString>) -> Result<String, NotRun> {
    let args = args::Args::try_parse_from(words).map_err(|error| {
        let text = error.render().to_string();
        if error.use_stderr() { NotRun::Refused(text) } else { NotRun::Shown(text) }
    })?;
    args.understood().map(|args| format!("{:?}", args.command)).map_err(NotRun::Refused)
}

/// Does what the process's command line says.
pub fn run() -> ExitCode {
    let args = match args::Args::parse().understood() {
        Ok(args) => args,
        Err(text) => return fail(&anyhow::anyhow!(text)),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&anyhow::Error::new(error).context("start the runtime")),
    };
    let part_failed = args.global.part_failed.clone();
    match runtime.block_on(dispatch::run(args)) {
        Ok(()) if part_failed.is_set() => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", output::shown(&format!("{error:#}")));
    ExitCode::FAILURE
}

/// The reader of our output has seen enough (`billetctl logs … | head`).
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}
