//! `patch`: changes the configuration of nodes by JSON patch or strategic merge patch.

use super::machine_config::{self, ModeFlags};
use crate::{output, session::Session};
use anyhow::{Context as _, Result, bail};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// What to patch: `machineconfig` or `mc`
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Its id; there is only one
    #[arg(value_parser = ["v1alpha1"], hide = true)]
    id: Option<String>,
    /// The patch: JSON patch or strategic merge patch, `@FILE` names a file; may be given several times
    #[arg(short, long, value_name = "PATCH", allow_hyphen_values = true)]
    patch: Vec<String>,
    /// A file with patches
    #[arg(long, value_name = "FILE")]
    patch_file: Option<String>,
    #[command(flatten)]
    when: ModeFlags,
    /// For those who write it
    #[arg(long, hide = true)]
    namespace: Option<String>,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    machine_config::check_type(&flags.kind)?;
    let files = flags.patch_file.iter().map(|f| format!("@{f}"));
    let words: Vec<String> = flags.patch.iter().cloned().chain(files).collect();
    if words.is_empty() {
        bail!("either --patch or --patch-file should be defined");
    }
    let patches = machine_config::patches(&words)?;
    for node in session.each_node() {
        let name = session.name_of(node.as_deref()).to_owned();
        let old = machine_config::fetch(session, node.as_deref()).await.with_context(|| name.clone())?;
        let new = config::patch::apply(old.expose_secret(), &patches)
            .with_context(|| format!("{name}: failure applying patches to the machine config"))?;
        if machine_config::is_same(old.expose_secret(), &new) {
            output::print("Apply was skipped: no changes detected.\n")?;
            continue;
        }
        machine_config::send(session, node.as_deref(), &new, &flags.when)
            .await
            .with_context(|| name.clone())?;
        if !flags.when.is_dry_run() {
            output::print(format!("patched {} at the node {name}\n", flags.kind))?;
        }
    }
    Ok(())
}
