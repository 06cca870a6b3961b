//! `cluster create`: from an installer image to a cluster that is well.
//!
//! Order: everything is checked, the image unpacked, nodes started with their configurations, clients told how to reach the
//! cluster, the cluster begun, its health waited for, the kubeconfig fetched.
//! Fails by: the step's error; what was made until then goes with `cluster destroy`.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use api::{
    client::{Client, Options},
    generate::{self, Bundle, Contract},
    proto::machine::BootstrapRequest,
    talosconfig::{Context, Talosconfig},
};
use cluster::{Cluster, network::Network, spec::NodeSpec};
use config::{MachineType, Mode, Secret, patch::Patch};
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::{
    clients::Clients,
    image, nameservers,
    places::{DEFAULT_NAME, Places, StateFlags},
};
use crate::{
    commands::{events::duration, health, kubeconfig, machine_config},
    global::Global,
    output,
    session::{self, Session},
};

/// From started nodes to a cluster that begins, on a machine that has much else to do.
const BOOTSTRAP_LIMIT: Duration = Duration::from_secs(300);
/// Between two attempts to begin.
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Name of the cluster, which its context and its nodes have too
    #[arg(long, default_value = DEFAULT_NAME, value_name = "NAME")]
    name: String,
    /// Control plane nodes, an odd number; several of them share an address, the network's last one
    #[arg(long, alias = "masters", default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=7))]
    controlplanes: u32,
    /// Workers
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    workers: u32,
    /// Network of the nodes; this machine has its first address
    #[arg(long, alias = "subnet", default_value = "10.5.0.0/24", value_name = "NETWORK", value_parser = network)]
    cidr: Network,
    /// Installer image, or directory with its parts [default: installer.oci.tar beside this program]
    #[arg(long, value_name = "PATH")]
    image: Option<PathBuf>,
    /// Version of Kubernetes [default: the node's own]
    #[arg(long, value_name = "VERSION")]
    kubernetes_version: Option<String>,
    /// Domain of the cluster's services
    #[arg(long, default_value = "cluster.local", value_name = "DOMAIN")]
    dns_domain: String,
    /// Fetch images of a registry elsewhere: HOST=URL
    #[arg(long, value_delimiter = ',', value_name = "HOST=URL")]
    registry_mirror: Vec<String>,
    /// Name servers of the nodes [default: those of this machine]
    #[arg(long, value_delimiter = ',', value_name = "ADDRESS")]
    nameservers: Vec<IpAddr>,
    /// Patch for all machines: JSON patch or strategic merge patch, `@FILE` names a file
    #[arg(long, value_name = "PATCH", allow_hyphen_values = true)]
    config_patch: Vec<String>,
    /// Patch for control plane machines
    #[arg(long, alias = "config-patch-controlplanes", value_name = "PATCH", allow_hyphen_values = true)]
    config_patch_control_plane: Vec<String>,
    /// Patch for workers
    #[arg(long, alias = "config-patch-workers", value_name = "PATCH", allow_hyphen_values = true)]
    config_patch_worker: Vec<String>,
    /// Wait until the cluster is well
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    wait: bool,
    /// How long to wait
    #[arg(long, default_value = "20m", value_parser = duration, value_name = "TIME")]
    wait_timeout: Duration,
    /// File to which the cluster's kubeconfig is added [default: first file of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "skip_kubeconfig")]
    kubeconfig: Option<PathBuf>,
    /// Do not fetch the kubeconfig
    #[arg(long)]
    skip_kubeconfig: bool,
    #[command(flatten)]
    state: StateFlags,
}

fn network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|error: cluster::Error| error.to_string())
}

pub(super) async fn run(global: &Global, flags: Flags) -> Result<()> {
    let places = flags.state.places()?;
    cluster::check(&places.clusters, &flags.name)?;
    let plan = Plan::new(&flags)?;
    let made = start(&flags, &places, &plan)?;
    let finished = finish(global, &flags, &made, &plan).await;
    finished.with_context(|| {
        format!(
            "the cluster {name} is there, but not ready; `billetctl cluster destroy --name {name}` removes it, and logs of its \
             nodes are in {directory}",
            name = flags.name,
            directory = made.directory().display()
        )
    })
}

/// What a cluster is to be, before anything of it is there.
struct Plan {
    nodes: Vec<NodeSpec>,
    talosconfig: Talosconfig,
    kubernetes: String,
}

impl Plan {
    fn new(flags: &Flags) -> Result<Self> {
        let control_planes =
            (0..flags.controlplanes).map(|number| node_address(flags, number)).collect::<Result<Vec<_>>>()?;
        let shared = shared_address(flags)?;
        let endpoint = shared.or_else(|| control_planes.first().copied());
        let kubernetes =
            format!("https://{}:6443", endpoint.context("a cluster without a control plane node")?);
        let wanted = generate::Cluster {
            name: flags.name.clone(),
            endpoint: kubernetes.clone(),
            contract: Contract::NEWEST,
            install_disk: "/dev/vda".into(),
            install_image: None,
            additional_sans: Vec::new(),
            dns_domain: flags.dns_domain.clone(),
            kubernetes_version: flags
                .kubernetes_version
                .as_deref()
                .map(|v| v.trim_start_matches('v').to_owned()),
            registry_mirrors: machine_config::registry_mirrors(&flags.registry_mirror)?,
            persist: true,
            discovery: false,
            kubespan: false,
        };
        wanted.check_name()?;
        let secrets = Bundle::generate()?;
        let mut talosconfig = wanted.talosconfig(&secrets)?;
        for context in talosconfig.contexts.values_mut() {
            context.endpoints = control_planes.iter().map(ToString::to_string).collect();
            context.nodes = control_planes.iter().take(1).map(ToString::to_string).collect();
        }
        let patches = Patches::new(flags, shared)?;
        let node = |number: u32| {
            let (machine_type, name) = match number.checked_sub(flags.controlplanes) {
                None => (MachineType::ControlPlane, format!("{}-controlplane-{}", flags.name, number + 1)),
                Some(worker) => (MachineType::Worker, format!("{}-worker-{}", flags.name, worker + 1)),
            };
            // Nodes of a kind have one configuration, whose warnings are told once.
            let is_first = number == 0 || number == flags.controlplanes;
            let generated = wanted.machine_config(&secrets, machine_type);
            let text = patches.apply(&generated, machine_type)?;
            for warning in check(&name, &text)?.difference(&check(&name, &generated)?).filter(|_| is_first) {
                output::note(&format!("{name}: {warning}"));
            }
            let address = node_address(flags, number)?;
            let is_control_plane = machine_type.is_control_plane();
            Ok(NodeSpec { name, address, is_control_plane, config: Some(text) })
        };
        let count = flags.controlplanes.saturating_add(flags.workers);
        let nodes = (0..count).map(node).collect::<Result<Vec<_>>>()?;
        Ok(Self { nodes, talosconfig, kubernetes })
    }
}

fn node_address(flags: &Flags, number: u32) -> Result<std::net::Ipv4Addr> {
    let text = || {
        format!(
            "{} has no address for {} nodes: choose a larger one with --cidr",
            flags.cidr.cidr(),
            number + 1
        )
    };
    flags.cidr.node(number).with_context(text)
}

/// The endpoint of a cluster with several control plane nodes: one of them has it at a time.
fn shared_address(flags: &Flags) -> Result<Option<std::net::Ipv4Addr>> {
    if flags.controlplanes == 1 {
        return Ok(None);
    }
    let count = flags.controlplanes.saturating_add(flags.workers);
    let address = flags.cidr.shared(count).with_context(|| {
        format!(
            "{} has no address that nodes could share: choose a larger one with --cidr",
            flags.cidr.cidr()
        )
    })?;
    Ok(Some(address))
}

struct Patches {
    all: Vec<Patch>,
    control_plane: Vec<Patch>,
    worker: Vec<Patch>,
}

impl Patches {
    fn new(flags: &Flags, shared: Option<std::net::Ipv4Addr>) -> Result<Self> {
        let servers = if flags.nameservers.is_empty() {
            nameservers::of_this_machine()?
        } else {
            flags.nameservers.clone()
        };
        let own = serde_json::json!({ "machine": { "network": { "nameservers": servers } } });
        let mut all = config::patch::load_patches(&own.to_string())?;
        all.extend(machine_config::patches(&flags.config_patch)?);
        let mut control_plane = Vec::new();
        if let Some(address) = shared {
            let card = serde_json::json!({ "interface": "eth0", "vip": { "ip": address } });
            let own = serde_json::json!({ "machine": { "network": { "interfaces": [card] } } });
            control_plane = config::patch::load_patches(&own.to_string())?;
        }
        control_plane.extend(machine_config::patches(&flags.config_patch_control_plane)?);
        Ok(Self { all, control_plane, worker: machine_config::patches(&flags.config_patch_worker)? })
    }

    fn apply(&self, text: &Secret, machine_type: MachineType) -> Result<Secret> {
        let special = if machine_type.is_control_plane() { &self.control_plane } else { &self.worker };
        let both: Vec<Patch> = self.all.iter().chain(special).cloned().collect();
        Ok(Secret::new(config::patch::apply(text.expose_secret(), &both)?))
    }
}

/// What a node would refuse is refused here; answers what it would warn of. Those warnings that a generated configuration has
/// by itself are of no use to whoever patches it.
fn check(node: &str, text: &Secret) -> Result<BTreeSet<String>> {
    let refused = |e: config::LoadError| anyhow::anyhow!("the configuration of {node} would be refused\n{e}");
    let loaded = config::load(text.expose_secret().as_bytes()).map_err(refused)?;
    let warnings = loaded.validate(Mode::Container).map_err(refused)?;
    Ok(loaded.warnings.iter().chain(&warnings).map(|warning| warning.message.clone()).collect())
}

fn start(flags: &Flags, places: &Places, plan: &Plan) -> Result<Cluster> {
    output::note("unpacking the image");
    let unpacked = places.image(&flags.name);
    let image = image::unpack(flags.image.as_deref(), &unpacked);
    let made = image.and_then(|image| {
        Ok(cluster::create(&places.clusters, &flags.name, flags.cidr, image, &plan.nodes, &mut output::note)?)
    });
    made.map_err(|error| match cluster::find(&places.clusters, &flags.name) {
        Ok(_) => {
            error.context(format!("`billetctl cluster destroy --name {}` removes what was made", flags.name))
        }
        Err(_) => {
            // Nothing else was made; what counts is why.
            let _ = std::fs::remove_dir_all(&unpacked);
            error
        }
    })
}

async fn finish(global: &Global, flags: &Flags, made: &Cluster, plan: &Plan) -> Result<()> {
    let mut clients = Clients::default();
    let talosconfig = session::config_path(global);
    let context = clients.add_talosconfig(made, &talosconfig, plan.talosconfig.clone())?;
    let (_, own) = plan.talosconfig.choose(None)?;
    output::note("beginning the cluster");
    let session = begin(global, own).await?;
    if flags.wait {
        let of = |is_control_plane: bool| {
            let nodes = made.nodes.iter().filter(|node| node.is_control_plane == is_control_plane);
            nodes.map(|node| node.address.to_string()).collect()
        };
        let flags = health::Flags::of(of(true), of(false), flags.wait_timeout);
        health::run(connect(global, own).await?, flags).await?;
    }
    let mut kubeconfig = None;
    if !flags.skip_kubeconfig {
        let target = kubeconfig::default_target(flags.kubeconfig.as_deref())?;
        let text = kubeconfig::fetch(&session).await?;
        clients.add_kubeconfig(made, &target, text.clone())?;
        kubeconfig::merge_into(&target, &text)?;
        kubeconfig = Some(target);
    }
    print_next_steps(flags, &talosconfig, &context, kubeconfig.as_deref(), plan);
    Ok(())
}

async fn connect(global: &Global, context: &Context) -> Result<Session> {
    let client = Client::connect(context, &Options::default()).await?;
    Ok(Session { client, global: global.clone() })
}

/// The API answers some time after its node has started, and a cluster can be begun some time after that.
async fn begin(global: &Global, context: &Context) -> Result<Session> {
    let end = Instant::now() + BOOTSTRAP_LIMIT;
    // The endpoint is the first node: without names of nodes its own status is the answer.
    let first = context.endpoints.iter().take(1).cloned().collect();
    let endpoint = Context { nodes: Vec::new(), endpoints: first, ..context.clone() };
    loop {
        let error = match try_to_begin(global, &endpoint).await {
            Ok(()) => return connect(global, context).await,
            Err(error) => error,
        };
        if Instant::now() > end {
            return Err(error).context("begin the cluster");
        }
        sleep(AGAIN).await;
    }
}

async fn try_to_begin(global: &Global, endpoint: &Context) -> Result<()> {
    let session = connect(global, endpoint).await?;
    match session.client.machine().bootstrap(BootstrapRequest::default()).await {
        Ok(_) => Ok(()),
        // Of an earlier attempt whose answer was lost.
        Err(status) if status.code() == Code::AlreadyExists => Ok(()),
        Err(status) => Err(session.error(&status)),
    }
}

fn print_next_steps(
    flags: &Flags,
    talosconfig: &Path,
    context: &str,
    kubeconfig: Option<&Path>,
    plan: &Plan,
) {
    output::note(&format!("\n  Kubernetes   {}", plan.kubernetes));
    output::note(&format!("  talosconfig  {}, context {context}", talosconfig.display()));
    if let Some(path) = kubeconfig {
        output::note(&format!("  kubeconfig   {}, context admin@{}", path.display(), flags.name));
        output::note("  try          kubectl get nodes");
    }
    output::note(&format!("  remove it    billetctl cluster destroy --name {}", flags.name));
}
