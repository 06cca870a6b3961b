//! `validate`: judges a configuration without a node.

use super::machine_config;
use crate::output;
use anyhow::{Context as _, Result, bail};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The configuration; `-` for the standard input
    #[arg(short, long, value_name = "FILE")]
    config: String,
    /// What the machine is
    #[arg(short, long, value_enum)]
    mode: Mode,
    /// Refuse what is only warned about
    #[arg(long)]
    strict: bool,
}

/// Kinds of machines.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Mode {
    /// With a disk to install to
    Metal,
    /// Made from an image
    Cloud,
    /// On somebody else's kernel
    Container,
}

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let file = &flags.config;
    let text = machine_config::read_file(file)?;
    let (mode, name) = match flags.mode {
        Mode::Metal => (config::Mode::Metal, "metal"),
        Mode::Cloud => (config::Mode::Cloud, "cloud"),
        Mode::Container => (config::Mode::Container, "container"),
    };
    let loaded = config::load(text.as_bytes()).with_context(|| format!("{file} is not valid"))?;
    let mut warnings = loaded.warnings.clone();
    warnings.extend(loaded.validate(mode).with_context(|| format!("{file} is not valid for {name} mode"))?);
    match loaded.lacks_authority() {
        Some(fault) if fault.severity == config::Severity::Error => {
            bail!("{file} is not valid for {name} mode: {fault}")
        }
        fault => warnings.extend(fault),
    }
    for warning in &warnings {
        eprintln!("{warning}");
    }
    if flags.strict && !warnings.is_empty() {
        bail!("{file} has {} warnings, which --strict refuses", warnings.len());
    }
    Ok(output::print(format!("{file} is valid for {name} mode\n"))?)
}
