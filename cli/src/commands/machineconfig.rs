//! `machineconfig`: configurations as files.

use super::{r#gen, machine_config};
use crate::{global::Global, output, private_file};
use anyhow::{Context as _, Result, bail};
use config::Secret;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// As `gen config`
    #[command(alias = "generate")]
    Gen(Box<r#gen::ConfigFlags>),
    /// Patch a file
    Patch(PatchFlags),
    /// Write a configuration in its other form: sections of the v1alpha1 document as documents, or documents as sections.
    /// What has no counterpart stays as it is and is named; comments are lost
    Rewrite(RewriteFlags),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RewriteFlags {
    /// The configuration; `-` for the standard input
    file: String,
    /// The form that is wanted: documents, as v1.14 has them, or sections of the v1alpha1 document
    #[arg(long, value_enum, value_name = "FORM")]
    to: Form,
}

/// Forms of a configuration.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Form {
    /// Documents, as v1.14 has them
    Documents,
    /// Sections of the v1alpha1 document, as generations before have them
    V1alpha1,
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
        Command::Rewrite(flags) => rewrite(global, &flags),
    }
}

fn patch(global: &Global, flags: &PatchFlags) -> Result<()> {
    let text = machine_config::read_file(&flags.file)?;
    let patches = machine_config::patches(&flags.patch)?;
    let patched = config::patch::apply(&text, &patches).with_context(|| flags.file.clone())?;
    if let Err(faults) = config::load(patched.as_bytes()) {
        bail!("the patched configuration would be refused\n{faults}");
    }
    put(global, &patched)
}

fn rewrite(global: &Global, flags: &RewriteFlags) -> Result<()> {
    let text = Secret::new(machine_config::read_file(&flags.file)?);
    let form = match flags.to {
        Form::Documents => config::rewrite::Form::Documents,
        Form::V1alpha1 => config::rewrite::Form::V1alpha1,
    };
    let rewritten = config::rewrite::rewrite(text.expose_secret().as_bytes(), form);
    let rewritten = rewritten.with_context(|| flags.file.clone())?;
    for kept in &rewritten.kept {
        output::note(&kept.to_string());
    }
    put(global, rewritten.text.expose_secret())
}

/// Writes a configuration where `--output` says.
fn put(global: &Global, text: &str) -> Result<()> {
    match global.output_word.as_deref() {
        None | Some("-") => Ok(output::print(text)?),
        Some(file) => private_file::write(file.as_ref(), text),
    }
}
