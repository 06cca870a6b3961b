//! `xtask images`: the images that a cluster pulls, into the cache and, where one is named, into a registry on this machine.
//!
//! Does not: know what they are made of; `cluster_images` does, and tests of clusters call that.

use std::time::Instant;

use anyhow::Result;

use crate::cache::Cache;
use crate::cluster_images::releases::{RELEASES, Release};
use crate::cluster_images::{self, Made, Registry};
use crate::host::{self, Need};
use crate::inputs::Freshness;
use crate::place;
use crate::step::step;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Version of Kubernetes.
    #[arg(long, value_name = "VERSION", default_value = RELEASES[0].kubernetes)]
    kubernetes: String,
    /// Push them to this registry, which is one on this machine that asks for no password; without it, print their files.
    #[arg(long, value_name = "HOST:PORT")]
    push: Option<String>,
    /// Ask the mirror for newer packages.
    #[arg(long)]
    update: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let release = Release::find(&options.kubernetes)?;
    // A mistake in it is told before an hour's work, not behind it.
    let registry = options.push.as_deref().map(Registry::new).transpose()?;
    host::ensure_packages(Need::Build)?;
    let cache = Cache::open(&place::cache()?)?;
    let freshness = if options.update { Freshness::Now } else { Freshness::Day };
    let made = cluster_images::make(&cache, freshness, release)?;
    match (registry, &options.push) {
        (Some(registry), Some(name)) => push(registry, name, &made),
        _ => list(&made),
    }
}

fn push(mut registry: Registry, name: &str, made: &[Made]) -> Result<()> {
    for image in made {
        let began = Instant::now();
        let work = || registry.push(&image.archive, image.repository, &image.tag);
        let pushed = step(&format!("push {}:{}", image.repository, image.tag), work)?;
        let (mib, seconds) = (pushed.sent >> 20, began.elapsed().as_secs_f64());
        println!("{}@{}  {mib} MiB sent, {seconds:.1} s", image.name(name), pushed.digest);
    }
    Ok(())
}

fn list(made: &[Made]) -> Result<()> {
    for image in made {
        let mib = cluster_images::bytes(image)? >> 20;
        println!("{}:{}  {mib} MiB  {}", image.repository, image.tag, image.archive.display());
    }
    Ok(())
}
