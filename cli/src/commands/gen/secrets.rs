//! `gen secrets`: all secrets of a cluster in one file.

use super::files::{self, Target};
use crate::{args::Global, commands::machine_config};
use anyhow::{Context as _, Result};
use api::generate::{Bundle, Contract};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The file [default: secrets.yaml]; `-` for the standard output
    #[arg(long = "output-file", value_name = "FILE")]
    output_file: Option<String>,
    /// Take the secrets out of the configuration of a control plane node
    #[arg(long, alias = "from-controlplane-config", value_name = "FILE")]
    from_control_plane_config: Option<String>,
    /// Version whose configurations the secrets are for
    #[arg(long, value_name = "VERSION")]
    talos_version: Option<String>,
    /// Replace an existing file
    #[arg(short, long)]
    force: bool,
}

pub(super) fn run(global: &Global, flags: &Flags) -> Result<()> {
    if let Some(version) = &flags.talos_version {
        version.parse::<Contract>()?;
    }
    let name = flags.output_file.as_deref().or(global.output_word.as_deref()).unwrap_or("secrets.yaml");
    let target = if name == "-" { Target::Stdout } else { Target::File(PathBuf::from(name)) };
    if let Target::File(path) = &target {
        files::check_free([path.as_path()], flags.force)?;
    }
    let bundle = match &flags.from_control_plane_config {
        Some(file) => {
            Bundle::from_control_plane(&machine_config::read_file(file)?).with_context(|| file.clone())?
        }
        None => Bundle::generate()?,
    };
    files::put(&target, bundle.to_yaml().expose_secret())
}
