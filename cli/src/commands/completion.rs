//! `completion`: a script for the user's shell.

use crate::{args::Args, output};
use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut Args::command(), "billetctl", &mut script);
    Ok(output::print(script)?)
}
