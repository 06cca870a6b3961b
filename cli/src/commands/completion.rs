//! `completion`: a script for the user's shell.

use crate::output;
use anyhow::Result;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(flags: &Flags, grammar: &mut clap::Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, grammar, "billetctl", &mut script);
    Ok(output::print(script)?)
}
