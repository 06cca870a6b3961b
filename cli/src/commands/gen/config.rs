//! `gen config`: what a new cluster's machines and its administrator start with.
//!
//! Order: everything is made, patched and checked before the first file is written.
//! Source: docs/users/configuration.md, docs/users/commands.md.

use super::files::{self, Target};
use crate::{commands::machine_config, global::Global};
use anyhow::{Context as _, Result, bail};
use api::generate::{Bundle, Cluster, Contract, cluster_endpoint};
use config::{MachineType, Secret, patch::Patch};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The cluster's name
    name: String,
    /// Where its Kubernetes API will answer: https://HOST:PORT
    endpoint: String,
    /// Disk to install to
    #[arg(long, default_value = "/dev/sda", value_name = "DEVICE")]
    install_disk: String,
    /// Image of the installer [default: the node's own]
    #[arg(long, value_name = "IMAGE")]
    install_image: Option<String>,
    /// Additional names and addresses of the Kubernetes API
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    additional_sans: Vec<String>,
    /// Domain of the cluster's services
    #[arg(long, default_value = "cluster.local", value_name = "DOMAIN")]
    dns_domain: String,
    /// Form of the configurations
    #[arg(long, default_value = "v1alpha1", value_parser = ["v1alpha1"])]
    version: String,
    /// Version of the nodes, for clusters with older ones [default: the newest]
    #[arg(long, value_name = "VERSION")]
    talos_version: Option<String>,
    /// Version of Kubernetes [default: the node's own]
    #[arg(long, value_name = "VERSION")]
    kubernetes_version: Option<String>,
    /// Directory for the files; `--output` with one type of output is a file, `-` the standard output
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Which files: controlplane, worker, talosconfig, also init and join of the first generation [default: those of the
    /// version]
    #[arg(short = 't', long, value_delimiter = ',', value_enum, value_name = "TYPE")]
    output_types: Vec<Kind>,
    /// Fetch images of a registry elsewhere: HOST=URL
    #[arg(long, value_delimiter = ',', value_name = "HOST=URL")]
    registry_mirror: Vec<String>,
    /// Whether nodes keep their configuration
    #[arg(short, long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    persist: bool,
    /// Patch for all machines: JSON patch or strategic merge patch, `@FILE` names a file
    #[arg(long, value_name = "PATCH", allow_hyphen_values = true)]
    config_patch: Vec<String>,
    /// Patch for control plane machines
    #[arg(long, value_name = "PATCH", allow_hyphen_values = true)]
    config_patch_control_plane: Vec<String>,
    /// Patch for workers
    #[arg(long, value_name = "PATCH", allow_hyphen_values = true)]
    config_patch_worker: Vec<String>,
    /// Secrets of an existing cluster, as `gen secrets` writes them
    #[arg(long, value_name = "FILE")]
    with_secrets: Option<String>,
    /// Whether nodes find each other by the discovery service
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    with_cluster_discovery: bool,
    /// Whether nodes make a network of their own
    #[arg(long)]
    with_kubespan: bool,
    /// Not written here: see the configuration reference
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    with_docs: Option<bool>,
    /// Not written here: see the configuration reference
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    with_examples: Option<bool>,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
}

/// Files that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Init,
    Controlplane,
    Worker,
    Join,
    Talosconfig,
}

impl Kind {
    fn file(self) -> &'static str {
        match self {
            Self::Init => "init.yaml",
            Self::Controlplane => "controlplane.yaml",
            Self::Worker => "worker.yaml",
            Self::Join => "join.yaml",
            Self::Talosconfig => "talosconfig",
        }
    }

    fn machine_type(self) -> Option<MachineType> {
        match self {
            Self::Init => Some(MachineType::Init),
            Self::Controlplane => Some(MachineType::ControlPlane),
            Self::Worker | Self::Join => Some(MachineType::Worker),
            Self::Talosconfig => None,
        }
    }
}

pub(crate) fn run(global: &Global, flags: &Flags) -> Result<()> {
    let contract = flags.talos_version.as_deref().map_or(Ok(Contract::NEWEST), str::parse)?;
    let kinds = kinds(flags, contract);
    let targets = targets(global, flags, &kinds)?;
    let files = targets.iter().filter_map(|t| match t {
        Target::File(path) => Some(path.as_path()),
        Target::Stdout => None,
    });
    files::check_free(files, flags.force)?;
    let cluster = cluster(flags, contract)?;
    if [flags.with_docs, flags.with_examples].contains(&Some(true)) {
        eprintln!(
            "WARNING: comments and examples are not written; `docs/users/configuration.md` explains each field"
        );
    }
    let secrets = match &flags.with_secrets {
        Some(file) => Bundle::parse(&machine_config::read_file(file)?).with_context(|| file.clone())?,
        None => {
            eprintln!("generating PKI and tokens");
            Bundle::generate()?
        }
    };
    let patches = Patches::load(flags)?;
    let texts =
        kinds.iter().map(|kind| text(*kind, &cluster, &secrets, &patches)).collect::<Result<Vec<_>>>()?;
    for (target, text) in targets.iter().zip(&texts) {
        files::put(target, text.expose_secret())?;
    }
    Ok(())
}

fn kinds(flags: &Flags, contract: Contract) -> Vec<Kind> {
    if !flags.output_types.is_empty() {
        return flags.output_types.clone();
    }
    if contract.is_first_generation() {
        vec![Kind::Init, Kind::Controlplane, Kind::Join, Kind::Talosconfig]
    } else {
        vec![Kind::Controlplane, Kind::Worker, Kind::Talosconfig]
    }
}

fn targets(global: &Global, flags: &Flags, kinds: &[Kind]) -> Result<Vec<Target>> {
    let given = flags.output_dir.clone().or_else(|| global.output_word.as_ref().map(PathBuf::from));
    let output = given.unwrap_or_default();
    let is_directory = output.as_os_str().is_empty()
        || output.is_dir()
        || output.as_os_str().as_encoded_bytes().ends_with(b"/")
        || flags.output_dir.is_some();
    match (output.to_str(), kinds) {
        (Some("-"), [_]) => Ok(vec![Target::Stdout]),
        (Some("-"), _) => {
            bail!("only one type of output fits the standard output; choose it with --output-types")
        }
        (_, [_]) if !is_directory => Ok(vec![Target::File(output)]),
        _ => Ok(kinds.iter().map(|kind| Target::File(output.join(kind.file()))).collect()),
    }
}

fn cluster(flags: &Flags, contract: Contract) -> Result<Cluster> {
    let version = flags.kubernetes_version.as_deref().map(|v| v.strip_prefix('v').unwrap_or(v).to_owned());
    let cluster = Cluster {
        name: flags.name.clone(),
        endpoint: cluster_endpoint(&flags.endpoint)?,
        contract,
        install_disk: flags.install_disk.clone(),
        install_image: flags.install_image.clone(),
        additional_sans: flags.additional_sans.clone(),
        dns_domain: flags.dns_domain.clone(),
        kubernetes_version: version.filter(|v| !v.is_empty()),
        registry_mirrors: machine_config::registry_mirrors(&flags.registry_mirror)?,
        persist: flags.persist,
        discovery: flags.with_cluster_discovery,
        kubespan: flags.with_kubespan,
    };
    cluster.check_name()?;
    Ok(cluster)
}

struct Patches {
    all: Vec<Patch>,
    control_plane: Vec<Patch>,
    worker: Vec<Patch>,
}

impl Patches {
    fn load(flags: &Flags) -> Result<Self> {
        Ok(Self {
            all: machine_config::patches(&flags.config_patch)?,
            control_plane: machine_config::patches(&flags.config_patch_control_plane)?,
            worker: machine_config::patches(&flags.config_patch_worker)?,
        })
    }
}

fn text(kind: Kind, cluster: &Cluster, secrets: &Bundle, patches: &Patches) -> Result<Secret> {
    let Some(machine_type) = kind.machine_type() else { return Ok(cluster.talosconfig(secrets)?.to_yaml()) };
    let text = cluster.machine_config(secrets, machine_type);
    let special = if machine_type.is_control_plane() { &patches.control_plane } else { &patches.worker };
    let both: Vec<Patch> = patches.all.iter().chain(special).cloned().collect();
    let patched = config::patch::apply(text.expose_secret(), &both).with_context(|| kind.file())?;
    check(kind.file(), &patched)?;
    Ok(Secret::new(patched))
}

/// What a node would refuse is refused here.
fn check(file: &str, text: &str) -> Result<()> {
    let refused = |e: config::LoadError| anyhow::anyhow!("{file} would be refused\n{e}");
    let loaded = config::load(text.as_bytes()).map_err(refused)?;
    let warnings = loaded.validate(config::Mode::Cloud).map_err(refused)?;
    for warning in loaded.warnings.iter().chain(&warnings) {
        eprintln!("{file}: {warning}");
    }
    // Workers of the first generation have none.
    if let Some(fault) = loaded.lacks_authority() {
        eprintln!("{file}: {fault}");
    }
    Ok(())
}
