//! `patch`: changes the configuration of nodes by JSON patch or strategic merge patch.

use super::machine_config::{self, ModeFlags, Outdated};
use crate::{output, session::Session};
use anyhow::{Context as _, Result, bail};
use config::patch::Patch;

/// How often a patch is made anew because another change came between.
const ATTEMPTS: usize = 8;

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
        let mut attempt = 1;
        let changed = loop {
            match patch_one(session, node.as_deref(), &name, &patches, &flags.when).await {
                Err(error) if error.is::<Outdated>() && attempt < ATTEMPTS => attempt += 1,
                ended => break ended?,
            }
        };
        if !changed {
            output::print("Apply was skipped: no changes detected.\n")?;
        } else if !flags.when.is_dry_run() {
            output::print(format!("patched {} at the node {name}\n", flags.kind))?;
        }
    }
    Ok(())
}

/// Patches what one node has now; whether that changes anything.
async fn patch_one(
    session: &Session,
    node: Option<&str>,
    name: &str,
    patches: &[Patch],
    when: &ModeFlags,
) -> Result<bool> {
    let old = machine_config::fetch(session, node, when).await.with_context(|| name.to_owned())?;
    let text = old.text.expose_secret();
    let new = config::patch::apply(text, patches)
        .with_context(|| format!("{name}: failure applying patches to the machine config"))?;
    if machine_config::is_same(text, &new) {
        return Ok(false);
    }
    machine_config::send(session, node, &new, when, Some(&old.base))
        .await
        .with_context(|| name.to_owned())?;
    Ok(true)
}
