//! What the commands share that change a machine's configuration.
//!
//! Owns: the flags that say when a change takes effect, fetching the configuration of a node, sending one, and
//! confirming it. Does not: change texts (`config::patch`), choose nodes.
//! Source: docs/users/config-lifecycle.md, docs/users/editing-config.md.

use crate::{commands::events::duration, global::Global, output, session::Session};
use anyhow::{Context as _, Result, anyhow, bail};
use api::{
    client,
    proto::{
        billet::machine_service_client::MachineServiceClient as ConfirmClient,
        cosi::resource as cosi,
        machine::{
            ApplyConfigurationRequest as Request, ApplyConfigurationResponse, ReadRequest,
            apply_configuration_request::Mode,
        },
    },
};
use config::{
    Secret,
    patch::{self, Patch},
};
use std::{fs, net::IpAddr, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// Type and namespace of the resources that hold configurations.
const RESOURCE: (&str, &str) = ("MachineConfigs.config.talos.dev", "config");
/// The one in force.
const IN_FORCE: &str = "v1alpha1";
/// The one that the next start of the machine takes, with what was staged.
const PERSISTENT: &str = "persistent";
/// Names by which people call it.
const NAMES: [&str; 4] = ["machineconfig", "machineconfigs", "mc", "machineconfigs.config.talos.dev"];
/// Pause between two attempts to reach a node that restarts.
const RETRY: Duration = Duration::from_secs(2);
/// How long one way to a node may take: another one may be the right one.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(15);

/// When a change takes effect.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ModeFlags {
    /// When the change takes effect: at once with a restart; auto restarts only where it must; no-reboot refuses what
    /// needs a restart; staged waits for the next one; try takes it back after --timeout
    #[arg(short, long, value_enum, default_value_t = When::Reboot, conflicts_with_all = ["immediate", "on_reboot"])]
    mode: When,
    /// As --mode no-reboot
    #[arg(long, conflicts_with = "on_reboot")]
    immediate: bool,
    /// As --mode staged
    #[arg(long, alias = "no-reboot")]
    on_reboot: bool,
    /// Show what would change and happen, change nothing
    #[arg(long)]
    dry_run: bool,
    /// With --mode try: when the change is taken back
    #[arg(long, value_parser = duration, default_value = "1m", value_name = "TIME")]
    timeout: Duration,
    /// Let the node take the change back by itself unless this command reaches it again within this time
    #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with = "dry_run")]
    confirm: Option<Duration>,
}

/// Values of `--mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum When {
    Auto,
    NoReboot,
    Reboot,
    Staged,
    Try,
    #[value(hide = true)]
    Interactive,
}

impl ModeFlags {
    /// The call that sends `text`.
    pub(crate) fn request(&self, text: &str) -> Result<Request> {
        let mode = match self.mode {
            _ if self.immediate => Mode::NoReboot,
            _ if self.on_reboot => Mode::Staged,
            When::Auto => Mode::Auto,
            When::NoReboot => Mode::NoReboot,
            When::Reboot => Mode::Reboot,
            When::Staged => Mode::Staged,
            When::Try => Mode::Try,
            When::Interactive => bail!(
                "there is no interactive mode; `billetctl gen config` writes a configuration and `billetctl edit mc` \
                 opens that of a node"
            ),
        };
        if self.confirm.is_some() && mode == Mode::Try {
            bail!("--mode try takes the change back in any case; --confirm is for the other modes");
        }
        let proto = |d: Duration| prost_types::Duration::try_from(d).context("the time is too long");
        Ok(Request {
            data: text.as_bytes().to_vec(),
            // The first generation's flags, for nodes that do not know modes.
            immediate: mode == Mode::NoReboot,
            on_reboot: mode == Mode::Staged,
            mode: mode.into(),
            dry_run: self.dry_run,
            try_mode_timeout: Some(proto(self.timeout)?),
            confirm_timeout: self.confirm.map(proto).transpose()?,
            ..Request::default()
        })
    }

    /// Whether the node takes the change back unless it is confirmed.
    pub(crate) fn wants_confirmation(&self) -> bool {
        self.confirm.is_some()
    }

    /// Whether a node would restart or be staged, as far as the flags say.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }
}

/// Refuses other types than the configuration.
pub(crate) fn check_type(name: &str) -> Result<()> {
    if NAMES.contains(&name.to_ascii_lowercase().as_str()) {
        return Ok(());
    }
    bail!("only the machineconfig resource can be edited; write `machineconfig` or `mc` instead of `{name}`")
}

/// The text of a file, or of `-`.
pub(crate) fn read_file(path: &str) -> Result<String> {
    if path == "-" {
        return std::io::read_to_string(std::io::stdin()).context("read the standard input");
    }
    fs::read_to_string(path).with_context(|| format!("read {path}"))
}

/// Reads patches as the flags give them: text, or `@` and a file's name.
pub(crate) fn patches(words: &[String]) -> Result<Vec<Patch>> {
    let mut all = Vec::new();
    for word in words {
        let loaded = match word.strip_prefix('@') {
            Some(file) => patch::load_patches(&read_file(file)?).with_context(|| file.to_owned())?,
            None => patch::load_patches(word).with_context(|| shortened(word))?,
        };
        all.extend(loaded);
    }
    Ok(all)
}

/// Registries and where their images are fetched instead, from words of the form HOST=URL.
pub(crate) fn registry_mirrors(words: &[String]) -> Result<Vec<(String, String)>> {
    let mirror = |word: &String| {
        let (host, url) = word.split_once('=').filter(|(h, u)| !h.is_empty() && u.contains("://")).with_context(|| {
            format!("invalid registry mirror spec: {word:?}; write HOST=URL, as registry.example.org=https://mirror.example.org")
        })?;
        Ok((host.to_owned(), url.to_owned()))
    };
    words.iter().map(mirror).collect()
}

fn shortened(word: &str) -> String {
    let start: String = word.chars().take_while(|c| *c != '\n').take(40).collect();
    if start.len() < word.len() { format!("patch `{start}…`") } else { format!("patch `{start}`") }
}

/// The configuration of a node as it was sent to it.
pub(crate) struct Fetched {
    /// The text.
    pub text: Secret,
    /// Which one it is.
    pub base: Base,
}

/// Which configuration of a node a change is made from.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    version: String,
    updated: Option<prost_types::Timestamp>,
}

/// A change that the node refused: another one came between.
#[derive(Debug)]
pub(crate) struct Outdated(anyhow::Error);

impl std::fmt::Display for Outdated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Outdated {}

/// The configuration of a node that a change of this kind is made from: what the next start takes, so that nothing is lost that
/// waits for it. What is tried is made from what is in force, and so is any change where the node keeps nothing.
pub(crate) async fn fetch(session: &Session, node: Option<&str>, flags: &ModeFlags) -> Result<Fetched> {
    let (kind, namespace) = RESOURCE;
    let get = async |id: &str| {
        let (namespace, r#type, id) = (namespace.into(), kind.into(), id.into());
        let request = cosi::GetRequest { namespace, r#type, id, ..Default::default() };
        session.client.state().get(client::to_node(request, node)).await
    };
    let answer = match flags.mode {
        When::Try => get(IN_FORCE).await,
        _ => match get(PERSISTENT).await {
            Err(status) if status.code() == tonic::Code::NotFound => get(IN_FORCE).await,
            answer => answer,
        },
    };
    let answer = answer.map_err(|status| session.error(&status)).context("get the machine configuration")?;
    let resource = answer.into_inner().resource.context("the node sent no machine configuration")?;
    let metadata = resource.metadata.unwrap_or_default();
    let spec = resource.spec.context("the node sent an empty machine configuration")?;
    let base = Base { version: metadata.version, updated: metadata.updated };
    if metadata.annotations.is_empty() {
        return Ok(Fetched { text: Secret::new(spec.yaml_spec), base });
    }
    // Nodes of the current generation wrap the document in a string, so that comments survive.
    let text: Secret = serde_saphyr::from_str(&spec.yaml_spec)
        .map_err(|_| anyhow!("the machine configuration of the node is not a text"))?;
    Ok(Fetched { text, base })
}

/// A node's answer to a change, in words for stderr.
pub(crate) fn report(session: &Session, response: ApplyConfigurationResponse) -> Result<Vec<Mode>> {
    let answers = session.answers(Ok(tonic::Response::new(response)), |r| r.messages)?;
    let several = answers.len() > 1;
    let mut modes = Vec::new();
    for (node, answer) in answers {
        modes.push(Mode::try_from(answer.mode).unwrap_or(Mode::Reboot));
        let prefix = if several { format!("{node}: ") } else { String::new() };
        for warning in &answer.warnings {
            // A node of an earlier version says so itself in front of the place.
            let warning = warning.strip_prefix("warning: ").unwrap_or(warning);
            output::note(&format!("{prefix}WARNING: {warning}"));
        }
        if !answer.mode_details.is_empty() {
            output::note(&format!("{prefix}{}", answer.mode_details.trim_end()));
        }
    }
    Ok(modes)
}

/// Sends `text` to one node, and confirms it if the flags ask for that. With a `base`, an [`Outdated`] error says that the
/// node has another configuration by now.
pub(crate) async fn send(
    session: &Session,
    node: Option<&str>,
    text: &str,
    flags: &ModeFlags,
    base: Option<&Base>,
) -> Result<()> {
    let mut request = flags.request(text)?;
    if let Some(base) = base {
        request.base_version.clone_from(&base.version);
        request.base_updated = base.updated;
    }
    let before = match flags.confirm {
        Some(_) => Some(boot_id(session, node).await?),
        None => None,
    };
    let response = session.client.machine().apply_configuration(client::to_node(request, node)).await;
    let response = match response {
        Err(status) if base.is_some() && status.code() == tonic::Code::Aborted => {
            return Err(Outdated(session.error(&status)).into());
        }
        response => response.map_err(|status| session.error(&status)),
    };
    let response = response.context("error applying new configuration")?;
    let modes = report(session, response.into_inner())?;
    match (flags.confirm, before) {
        (Some(_), _) if modes.contains(&Mode::Staged) => {
            eprintln!("the change waits for a restart; then keep it with `billetctl confirm-config`");
            Ok(())
        }
        (Some(time), Some(before)) => {
            let restarts = modes.contains(&Mode::Reboot);
            let ways = ways(session, node, text);
            confirm(session, &ways, time, restarts.then_some(before)).await
        }
        _ => Ok(()),
    }
}

/// A way to the node.
#[derive(Debug, Clone)]
struct Way {
    global: Global,
    node: Option<String>,
}

/// The way it was reached before the change, then each static address that the change gives it.
fn ways(session: &Session, node: Option<&str>, text: &str) -> Vec<Way> {
    let mut old = Way { global: session.global.clone(), node: node.map(str::to_owned) };
    if node.is_none() {
        // The endpoint itself is the node: another endpoint of the context is another node.
        old.global.endpoints = vec![session.client.endpoint().to_string()];
    }
    let direct = |address: String| {
        let global = Global { endpoints: vec![address], nodes: Vec::new(), ..session.global.clone() };
        Way { global, node: None }
    };
    let mut ways = vec![old];
    ways.extend(static_addresses(text).into_iter().map(direct));
    ways
}

/// Static addresses of a configuration's interfaces, without prefix lengths. Virtual addresses are of several nodes
/// and not among them.
fn static_addresses(text: &str) -> Vec<String> {
    let Ok(config) = config::parse(text) else { return Vec::new() };
    let interfaces = config.machine.network.interfaces.iter().filter(|interface| !interface.ignore);
    let mut addresses: Vec<String> = Vec::new();
    for text in interfaces.flat_map(|i| i.addresses.iter().chain(std::iter::once(&i.cidr))) {
        let Ok(address) = text.split('/').next().unwrap_or_default().parse::<IpAddr>() else { continue };
        let endpoint = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        if !address.is_loopback() && !addresses.contains(&endpoint) {
            addresses.push(endpoint);
        }
    }
    addresses
}

/// Reaches the node again, after its restart if it does one, and keeps the change.
async fn confirm(session: &Session, ways: &[Way], within: Duration, before: Option<String>) -> Result<()> {
    let deadline = Instant::now() + within;
    let name = ways.first().map_or_else(|| session.endpoint(), |way| session.name_of(way.node.as_deref()));
    loop {
        let mut errors = Vec::new();
        for way in ways {
            match timeout(ATTEMPT_DEADLINE, attempt(way, before.as_deref())).await {
                Ok(Ok(())) => {
                    eprintln!("{name}: confirmed");
                    return Ok(());
                }
                Ok(Err(error)) => errors.push(format!("{error:#}")),
                Err(_) => errors.push(format!(
                    "{}: no answer within {} s",
                    way.global.endpoints.join(", "),
                    ATTEMPT_DEADLINE.as_secs()
                )),
            }
        }
        if Instant::now() + RETRY > deadline {
            bail!(
                "{name} could not be reached within {} s to confirm the change; it goes back to its last confirmed \
                 configuration by itself\n{}",
                within.as_secs(),
                errors.join("\n")
            );
        }
        sleep(RETRY).await;
    }
}

async fn attempt(way: &Way, before: Option<&str>) -> Result<()> {
    // A new connection: after a restart the old one is dead, and a new address must be reachable anew.
    let session = Session::open(&way.global).await?;
    // No nodes by flag means those of the context: the endpoint itself is meant here.
    let node = way.node.as_deref();
    if before.is_some_and(|b| !b.is_empty())
        && boot_id(&session, node).await?.as_str() == before.unwrap_or_default()
    {
        bail!("the node has not restarted yet");
    }
    confirm_now(&session, node).await
}

/// Keeps the change that waits for it.
pub(crate) async fn confirm_now(session: &Session, node: Option<&str>) -> Result<()> {
    let mut service = ConfirmClient::new(session.client.channel());
    let answer = service.confirm_configuration(client::to_node((), node)).await;
    answer.map(|_| ()).map_err(|status| session.error(&status)).context("confirm the configuration")
}

/// What the kernel draws anew at each start.
async fn boot_id(session: &Session, node: Option<&str>) -> Result<String> {
    let request = ReadRequest { path: "/proc/sys/kernel/random/boot_id".into() };
    let failed = |status: &tonic::Status| session.error(status).context("read the boot id");
    let answer = session.client.machine().read(client::to_node(request, node)).await;
    let mut stream = answer.map_err(|status| failed(&status))?.into_inner();
    let mut text = Vec::new();
    while let Some(data) = stream.message().await.map_err(|status| failed(&status))? {
        text.extend_from_slice(&data.bytes);
    }
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Whether two texts mean the same configuration.
pub(crate) fn is_same(old: &str, new: &str) -> bool {
    old == new || patch::is_same(old, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_node_is_looked_for_where_the_change_puts_it() {
        let text = "version: v1alpha1\nmachine:\n  type: worker\n  token: aaaaaa.bbbbbbbbbbbbbbbb\n  network:\n    \
                    interfaces:\n      - interface: eth0\n        addresses: [10.0.0.9/24, 'fd00::9/64']\n        \
                    vip: { ip: 10.0.0.100 }\n      - interface: eth1\n        cidr: 10.1.0.9/24\n      \
                    - interface: lo\n        addresses: [127.0.0.2/8]\n      - interface: eth2\n        \
                    ignore: true\n        addresses: [10.2.0.9/24]\n";
        assert!(config::parse(text).is_ok());
        assert_eq!(static_addresses(text), ["10.0.0.9", "[fd00::9]", "10.1.0.9"]);
        assert!(static_addresses("no configuration").is_empty());
    }
}
