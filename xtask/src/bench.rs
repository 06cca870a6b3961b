//! `xtask bench`: what Billet costs. `boot`: a boot, beside two other systems on the same kernel; `upgrade` and
//! `install`: bytes, memory and time; `image` and `flash`: making images and writing them; `luks`: opening volumes; `hostile`: clients
//! that mean harm; `network`: leases and routes; `build`: what a developer waits for; `kubernetes` and `cluster`: clusters on this machine.
//!
//! Order: build; for a boot boot the two peers and Billet in the exact machine ([`guest`]), each several times and once traced;
//! boot Billet once more with the host's own accelerator for its memory; write the report.
//! Owns: `target/bench/`: a report each (`boot.json`), the consoles, the traces.
//! Does not: judge. Figures are compared with the project's aims in the report, and a missed one is shown as missed.

mod billet;
mod build;
mod cluster;
mod document;
mod flash;
mod guest;
mod hostile;
mod image;
mod install;
mod klog;
mod kubeadm;
mod kubernetes;
mod luks;
mod measure;
mod memory;
mod network;
mod peers;
mod report;
mod schedule;
mod upgrade;
mod wait;

use std::path::Path;

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::build::{self as images, Artefacts, Purpose};
use crate::cache::Cache;
use crate::host::{self, Need};
use crate::inputs::{Freshness, Inputs};
use crate::kernel::{Debian, Provider as _};
use crate::place;
use crate::target::Architecture;
use peers::Parts;

/// Parameters that spare a kernel work. Where Billet's command line has one, its peers get it too, so that it makes no
/// difference in a ratio; what Billet's line has for hardening is Billet's own cost.
const SPARING: [&str; 1] = ["cryptomgr.notests"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Instructions from init to the API, against systemd and busybox on the same kernel; sizes; memory.
    Boot(BootOptions),
    /// How long a developer waits for a node, from nothing and after one changed line.
    Build,
    /// How long a control plane of three nodes takes, and what it bears, as root.
    Cluster(ClusterOptions),
    /// Rate of writing a disk image, against dd and bmaptool.
    Flash(BuildOptions),
    /// What hostile clients cost other clients, in full.
    Hostile,
    /// Time that images and customisations take to make.
    Image(BuildOptions),
    /// Rate of an installation from local layers, against the disk's own.
    Install(BuildOptions),
    /// Time and memory of a cluster on this machine, as root.
    Kubernetes(BuildOptions),
    /// Time and memory that opening a LUKS2 volume takes, against cryptsetup.
    Luks,
    /// What networkd costs beside other clients and with many routes, as root.
    Network,
    /// Bytes that an upgrade writes, and the memory that it takes.
    Upgrade(BuildOptions),
}

#[derive(Debug, clap::Args)]
struct BuildOptions {
    /// Measure what the last build made.
    #[arg(long)]
    no_build: bool,
}

#[derive(Debug, clap::Args)]
struct ClusterOptions {
    /// How often a node dies, and how often one is stopped.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[command(flatten)]
    build: BuildOptions,
}

#[derive(Debug, clap::Args)]
struct BootOptions {
    /// Plain runs of each system; the middle one counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    #[command(flatten)]
    build: BuildOptions,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let need = if matches!(options.what, What::Flash(_) | What::Luks) { Need::Test } else { Need::Run };
    host::ensure_packages(need)?;
    let directory = place::target().join("bench");
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    match &options.what {
        What::Boot(options) => boot(options, &directory),
        What::Build => build::measure(&directory),
        What::Cluster(options) => {
            host::ensure_cluster_packages()?;
            options.build.artefacts().and_then(|built| cluster::measure(&built, &directory, options.rounds))
        }
        What::Flash(options) => options.artefacts().and_then(|built| flash::measure(&built, &directory)),
        What::Hostile => hostile::measure(&directory),
        What::Image(options) => options.artefacts().and_then(|built| image::measure(&built, &directory)),
        What::Install(options) => options.artefacts().and_then(|_| install::measure(&directory)),
        What::Kubernetes(options) => {
            host::ensure_cluster_packages()?;
            options.artefacts().and_then(|built| kubernetes::measure(&built, &directory))
        }
        What::Luks => luks::measure(&directory),
        What::Network => {
            host::ensure_network_packages()?;
            network::measure(&directory)
        }
        What::Upgrade(options) => options.artefacts().and_then(|_| upgrade::measure(&directory)),
    }
}

impl BuildOptions {
    fn artefacts(&self) -> Result<Artefacts> {
        if self.no_build {
            return Artefacts::read(Architecture::Amd64);
        }
        images::build(Freshness::Day, None, Purpose::Release)
    }
}

fn boot(options: &BootOptions, directory: &Path) -> Result<()> {
    let artefacts = options.build.artefacts()?;
    let cache = Cache::open(&place::cache()?)?;
    let mut inputs = Inputs::open(&cache, Freshness::Day)?;
    let kernel = Debian.kernel(&mut inputs)?;
    let parts = Parts::collect(&cache, &kernel, directory)?;
    let spared = spared(&artefacts.cmdline);
    let busybox = measure::cost(&parts.busybox(&mut inputs, &spared)?, directory, options.runs)?;
    let systemd = measure::cost(&parts.systemd(&mut inputs, &spared)?, directory, options.runs)?;
    // Other builds may fetch packages from here on.
    drop(inputs);
    let billet = billet::measure(&artefacts, directory, options.runs)?;
    let memory = memory::measure(&artefacts, directory)?;
    let report =
        report::Report { artefacts: &artefacts, runs: options.runs, billet, systemd, busybox, memory };
    report.write(directory)
}

fn spared(command_line: &str) -> String {
    let words = command_line.split_whitespace();
    words.filter(|word| SPARING.iter().any(|name| word.starts_with(name))).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_sparing_parameters_go_to_the_peers() {
        assert_eq!(super::spared("panic=10 cryptomgr.notests=1 pti=on"), "cryptomgr.notests=1");
        assert_eq!(super::spared("panic=10 pti=on"), "");
    }
}
