//! `apply-config`: sends a configuration to nodes, also to one that waits for its first.

use super::machine_config::{self, ModeFlags};
use crate::{
    global::Global,
    session::{Maintenance, Session},
};
use anyhow::{Context as _, Result, bail};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// `machineconfig`, for those who write it
    #[arg(value_parser = ["machineconfig", "config", "mc"], hide = true)]
    subject: Option<String>,
    /// The configuration; `-` for the standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    #[command(flatten)]
    maintenance: Maintenance,
    #[command(flatten)]
    when: ModeFlags,
    /// Patch to apply first: JSON patch or strategic merge patch, `@FILE` names a file
    #[arg(short = 'p', long, value_name = "PATCH", allow_hyphen_values = true)]
    config_patch: Vec<String>,
    /// Not supported
    #[arg(long, hide = true)]
    interactive: bool,
}

pub(crate) async fn run(global: &Global, flags: Flags) -> Result<()> {
    if flags.interactive {
        bail!("there is no interactive mode; `billetctl gen config` writes a configuration");
    }
    let file =
        flags.file.as_deref().context("no filename supplied for configuration; give one with --file")?;
    let text = machine_config::read_file(file)
        .with_context(|| format!("failed to read configuration from {file:?}"))?;
    let patches = machine_config::patches(&flags.config_patch)?;
    let text = config::patch::apply(&text, &patches).with_context(|| file.to_owned())?;
    if text.trim().is_empty() {
        bail!("no configuration data read from {file:?}");
    }
    if flags.maintenance.insecure && flags.when.wants_confirmation() {
        bail!(
            "--confirm needs a configuration to return to, and a node that waits for its first has none; nothing was \
             sent. Leave --confirm out; later changes can be confirmed"
        );
    }
    let session = Session::open_maybe_insecure(global, &flags.maintenance).await?;
    if flags.maintenance.insecure {
        let request = flags.when.request(&text)?;
        let response = session.client.machine().apply_configuration(request).await;
        let response = response.map_err(|s| session.error(&s)).context("error applying new configuration")?;
        return machine_config::report(&session, response.into_inner()).map(|_| ());
    }
    let mut failed = Vec::new();
    let nodes = session.each_node();
    for node in &nodes {
        let name = session.name_of(node.as_deref());
        match machine_config::send(&session, node.as_deref(), &text, &flags.when, None).await {
            Ok(()) if nodes.len() > 1 && !flags.when.is_dry_run() => eprintln!("{name}: applied"),
            Ok(()) => {}
            // One node's fault does not keep the others from their configuration.
            Err(error) => {
                failed.push(if nodes.len() > 1 { format!("{name}: {error:#}") } else { format!("{error:#}") })
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

/// `confirm-config`: keeps a change that was applied with `--confirm`.
pub(crate) async fn confirm(session: &Session) -> Result<()> {
    for node in session.each_node() {
        machine_config::confirm_now(session, node.as_deref()).await?;
        eprintln!("{}: confirmed", session.name_of(node.as_deref()));
    }
    Ok(())
}
