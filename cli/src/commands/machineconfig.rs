//! `machineconfig`: configurations as files.

use super::{r#gen, machine_config};
use crate::{args::Global, output};
use anyhow::{Context as _, Result, bail};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// As `gen config`
    #[command(alias = "generate")]
    Gen(Box<r#gen::ConfigFlags>),
    /// Patch a file
    Patch(PatchFlags),
}

#[derive(Debug, clap::Args)]
pub(crate) struct PatchFlags {
    /// The configuration; `-` for the standard input
    file: String,
    /// The patch: JSON patch or strategic merge patch, `@FILE` names a file; may be given several times
    #[arg(short, long, value_name = "PATCH", required = true, allow_hyphen_values = true)]
    patch: Vec<String>,
}

pub(crate) fn run(global: &Global, command: Command) -> Result<()> {
    match command {
        Command::Gen(flags) => r#gen::run_config(global, &flags),
        Command::Patch(flags) => patch(global, &flags),
    }
}

fn patch(global: &Global, flags: &PatchFlags) -> Result<()> {
    let text = machine_config::read_file(&flags.file)?;
    let patches = machine_config::patches(&flags.patch)?;
    let patched = config::patch::apply(&text, &patches).with_context(|| flags.file.clone())?;
    if let Err(faults) = config::load(patched.as_bytes()) {
        bail!("the patched configuration would be refused\n{faults}");
    }
    match global.output_word.as_deref() {
        None | Some("-") => Ok(output::print(patched)?),
        Some(file) => r#gen::write_private(file.as_ref(), &patched),
    }
}
