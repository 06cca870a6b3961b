//! New contexts: from files (`config add`), or from a node that signs (`config new`).

use crate::{
    commands::events::duration,
    global::Global,
    output, private_file,
    session::{self, Session},
};
use anyhow::{Context as _, Result, anyhow, bail};
use api::{
    client,
    pki::Identity,
    proto::machine::GenerateClientConfigurationRequest,
    talosconfig::{Context, Talosconfig},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use config::Secret;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

#[derive(Debug, clap::Args)]
pub(crate) struct AddFlags {
    /// Name of the new context
    name: String,
    /// File with the certificate of the API's CA
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// File with the client certificate
    #[arg(long, value_name = "FILE")]
    crt: PathBuf,
    /// File with its private key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NewFlags {
    /// The file to write [default: the file of the client configuration]
    path: Option<PathBuf>,
    /// Roles of the new certificate
    #[arg(long, default_value = "os:admin", value_delimiter = ',')]
    roles: Vec<String>,
    /// How long it is valid
    #[arg(long, value_parser = duration, default_value = "8760h", value_name = "TIME")]
    crt_ttl: Duration,
}

/// Adds a context without endpoints; it becomes the current one if there was none.
pub(super) fn add(config: &mut Talosconfig, flags: &AddFlags) -> Result<()> {
    if config.contexts.contains_key(&flags.name) {
        bail!("context {:?} exists already; choose another name or `config remove` it", flags.name);
    }
    let read = |path: &Path| {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        anyhow::Ok(Secret::new(text))
    };
    let (ca, crt, key) = (read(&flags.ca)?, read(&flags.crt)?, read(&flags.key)?);
    api::pki::certificates("the CA", ca.expose_secret()).with_context(|| flags.ca.display().to_string())?;
    Identity::from_pem("the client certificate", crt.expose_secret(), &key)
        .with_context(|| format!("{} and {}", flags.crt.display(), flags.key.display()))?;
    let context = Context {
        ca: Some(STANDARD.encode(ca.expose_secret())),
        crt: Some(STANDARD.encode(crt.expose_secret())),
        key: Some(Secret::new(STANDARD.encode(key.expose_secret()))),
        ..Context::default()
    };
    config.contexts.insert(flags.name.clone(), context);
    if config.context.is_empty() {
        config.context.clone_from(&flags.name);
    }
    Ok(())
}

/// Lets the node sign a fresh certificate and writes a file with it.
pub(super) async fn new(global: &Global, flags: &NewFlags) -> Result<()> {
    let path = flags.path.clone().unwrap_or_else(|| session::config_path(global));
    if path.exists() {
        bail!("talosconfig file already exists: {:?}; name another one", path.display().to_string());
    }
    let session = Session::open(global).await?;
    let node = session.single_node("config new")?;
    let ttl = prost_types::Duration::try_from(flags.crt_ttl).context("--crt-ttl is too long")?;
    let request = GenerateClientConfigurationRequest { roles: flags.roles.clone(), crt_ttl: Some(ttl) };
    let request = client::to_node(request, node.as_deref());
    let response = session.client.machine().generate_client_configuration(request).await;
    let answer = response.map_err(|status| session.error(&status))?.into_inner().messages;
    let answer = answer.into_iter().next().context("the node sent an empty answer")?;
    let text = Secret::new(String::from_utf8(answer.talosconfig).context("the node sent no text")?);
    let config =
        Talosconfig::parse(text.expose_secret()).map_err(|e| anyhow!("read the node's answer: {e}"))?;
    let config = with_endpoints(config, &endpoints(global)?);
    private_file::write(&path, config.to_yaml().expose_secret())?;
    Ok(output::print(format!("created {}\n", path.display()))?)
}

/// Where this call went to: the node does not know by which address it is reached.
fn endpoints(global: &Global) -> Result<Vec<String>> {
    if !global.endpoints.is_empty() {
        return Ok(global.endpoints.clone());
    }
    let config = Talosconfig::load(&session::config_path(global))?;
    Ok(config.choose(global.context.as_deref())?.1.endpoints.clone())
}

/// The new file is of use at once.
fn with_endpoints(mut config: Talosconfig, endpoints: &[String]) -> Talosconfig {
    for context in config.contexts.values_mut().filter(|context| context.endpoints.is_empty()) {
        context.endpoints = endpoints.to_vec();
    }
    config
}
