//! `xtask cluster`: a Kubernetes cluster on this machine, from the source in this repository.
//!
//! Order: host packages; the image; with `--offline` the images that the cluster pulls, and a registry with them; then
//! `billetctl cluster create`, as root. `xtask cluster destroy` ends both.
//! Does not: know how clusters are made; billetctl does.

pub(crate) mod registry;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::build::{self, Artefacts, Purpose};
use crate::cluster_images::releases::RELEASES;
use crate::command::Cmd;
use crate::host;
use crate::inputs::Freshness;
use crate::place;
use crate::step::note;
use crate::target::Architecture;

/// The cluster's name; its network is the default of billetctl.
const NAME: &str = "billet";
/// This machine, as nodes see it.
const HOST: &str = "10.5.0.1";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    /// Number of workers.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    workers: u32,
    /// Pull nothing from outside: make the images of Kubernetes here, which takes up to 20 minutes the first time.
    #[arg(long)]
    offline: bool,
    /// Take what the last build made.
    #[arg(long)]
    no_build: bool,
    /// Additional flags of `billetctl cluster create`, behind `--`.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

#[derive(Debug, Clone, Copy, clap::Subcommand)]
enum Action {
    /// End the cluster and remove everything of it.
    Destroy,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    match options.action {
        Some(Action::Destroy) => destroy(),
        None => create(options),
    }
}

fn create(options: &Options) -> Result<()> {
    host::ensure_cluster_packages()?;
    let artefacts = if options.no_build {
        Artefacts::read(Architecture::Amd64)?
    } else {
        build::build(Freshness::Day, None, Purpose::Release)?
    };
    let root = place::repository();
    let client = root.join(&artefacts.billetctl);
    let workers = options.workers.to_string();
    let mut command = as_root(&client, "network namespaces and containers")?
        .args(["cluster", "create", "--name", NAME, "--workers", &workers])
        .args([Path::new("--image"), &root.join(&artefacts.production.installer)])
        .args([Path::new("--state"), &place::cluster_directory().join("state")])
        .args([Path::new("--talosconfig"), &place::cluster_directory().join("talosconfig")])
        .args([Path::new("--kubeconfig"), &kubeconfig()]);
    std::fs::create_dir_all(place::cluster_directory())
        .with_context(|| format!("create {}", place::cluster_directory().display()))?;
    let mut kubectl = PathBuf::from("kubectl");
    if options.offline {
        let [release, ..] = &RELEASES;
        let made = registry::start(release, HOST)?;
        kubectl = made.kubectl;
        let mirror = format!("*=http://{}", made.address);
        command = command.args(["--kubernetes-version", release.kubernetes, "--registry-mirror", &mirror]);
    }
    let created = command.args(&options.flags).show()?;
    own_files()?;
    if !created {
        bail!("no cluster that is well; `cargo xtask cluster destroy` removes what there is");
    }
    println!("\n  try          {} --kubeconfig {} get pods -A", shown(&kubectl), shown(&kubeconfig()));
    println!(
        "  and          {} --talosconfig {} service",
        shown(&client),
        shown(&place::cluster_directory().join("talosconfig"))
    );
    println!("  remove it    cargo xtask cluster destroy");
    Ok(())
}

fn destroy() -> Result<()> {
    registry::end()?;
    let state = place::cluster_directory().join("state");
    if !state.join("clusters").join(NAME).is_dir() {
        note("there is no cluster");
        return Ok(());
    }
    let client = place::repository().join(&Artefacts::read(Architecture::Amd64)?.billetctl);
    let command = as_root(&client, "ending containers")?.args(["cluster", "destroy", "--name", NAME]);
    if !command.args([Path::new("--state"), &state]).show()? {
        bail!("something of the cluster is left; the message above names it");
    }
    std::fs::remove_dir_all(place::cluster_directory())
        .with_context(|| format!("remove {}", place::cluster_directory().display()))
}

/// A program as root: as it is, or through sudo, after saying why.
fn as_root(program: &Path, why: &str) -> Result<Cmd> {
    if rustix::process::geteuid().is_root() {
        return Ok(Cmd::new(program));
    }
    note(&format!("{why} need root: starting {} through sudo", program.display()));
    Ok(host::sudo()?.arg(program))
}

/// What root wrote for this user is this user's. The state stays root's: it has the secrets of nodes.
fn own_files() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = format!("{}:{}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let files = [place::cluster_directory().join("talosconfig"), kubeconfig()];
    let mut written = files.iter().filter(|path| path.exists());
    written.try_for_each(|path| host::sudo()?.args(["chown", &owner]).arg(path).run())
}

fn kubeconfig() -> PathBuf {
    place::cluster_directory().join("kubeconfig")
}

/// A path as it is typed here.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}
