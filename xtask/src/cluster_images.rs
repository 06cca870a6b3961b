//! Images that a cluster pulls, made here from the published source of their programs.
//!
//! Owns: the order in which they are made, and the file of each in the cache.
//! Does not: decide names and versions ([`releases`]), nor what is in an image ([`contents`]).
//! Order: Go of Debian -> modules or a source package -> programs -> packages' files -> one archive an image -> a registry, where one is named.
//! Fails by: naming the program or the image, and what to do where a person can do something.

mod contents;
mod golang;
mod modules;
mod packaged;
mod push;
pub(crate) mod releases;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::tree::Tree;
use oci::archive::{NewImage, write_runnable};

use crate::cache::{Cache, KeyBuilder};
use crate::image::paths::identify;
use crate::inputs::{Archive, Freshness};
use crate::step::step;
use contents::{ImageSpec, LayerBuilder};
use releases::{RELEASES, Release};

pub(crate) use push::Registry;

/// The archive of an image in its cache entry.
const ARCHIVE: &str = "image.oci.tar";
/// The machines that they are for.
const ARCHITECTURE: &str = "amd64";

/// An image in a file.
pub(crate) struct Made {
    /// Where it lies in a registry.
    pub(crate) repository: &'static str,
    pub(crate) tag: String,
    /// An OCI layout in a tar file.
    pub(crate) archive: PathBuf,
}

impl Made {
    /// What a configuration calls it, below this registry.
    pub(crate) fn name(&self, registry: &str) -> String {
        format!("{registry}/{}:{}", self.repository, self.tag)
    }
}

/// The file that is every program of Kubernetes: `FILE kubectl …`.
pub(crate) fn kubernetes(cache: &Cache, freshness: Freshness, release: &'static Release) -> Result<PathBuf> {
    LayerBuilder::open(cache, freshness, release)?.kubernetes_program()
}

/// The files of a kubelet's image, which are those of every other program of Kubernetes too.
pub(crate) fn kubelet_files(cache: &Cache, freshness: Freshness, release: &'static Release) -> Result<Tree> {
    LayerBuilder::open(cache, freshness, release)?.with_tools()
}

/// A server of buckets, for tests that put snapshots to one. It wants the newest Go.
pub(crate) fn bucket_server(cache: &Cache, freshness: Freshness) -> Result<PathBuf> {
    let newest = RELEASES.iter().find(|release| release.go.archive == Archive::Backports);
    let newest = newest.context("no release has Go of backports")?;
    LayerBuilder::open(cache, freshness, newest)?.bucket_server()
}

/// Every image of a release. What is in the cache is made once.
pub(crate) fn make(cache: &Cache, freshness: Freshness, release: &'static Release) -> Result<Vec<Made>> {
    let mut builder = LayerBuilder::open(cache, freshness, release)?;
    let images = contents::images(release);
    images.iter().map(|spec| one(cache, &mut builder, spec)).collect()
}

fn one(cache: &Cache, builder: &mut LayerBuilder<'_>, spec: &ImageSpec) -> Result<Made> {
    let name = format!("{}:{}", spec.repository, spec.tag);
    let mut work = || {
        let layers = spec.layers.iter().map(|layer| builder.layer(*layer)).collect::<Result<Vec<_>>>()?;
        let key = KeyBuilder::new("cluster image 1").part(contents::WRITER).part(&spec.tag);
        let key = spec.entrypoint.iter().chain(&spec.arguments).fold(key, |key, word| key.part(word));
        let key =
            layers.iter().try_fold(key.part("layers"), |key, tree| identify(tree, key.part("layer")))?;
        cache.entry("cluster-image", &key.finish(), |entry| {
            let layers = layers.iter().map(contents::of_tree).collect::<Result<_>>()?;
            let image = NewImage {
                architecture: ARCHITECTURE.to_owned(),
                tag: spec.tag.clone(),
                labels: Default::default(),
                layers,
            };
            step(&format!("write {name}"), || write(&entry.join(ARCHIVE), &image, spec))
        })
    };
    let entry = work().with_context(|| format!("make the image {name}"))?;
    Ok(Made { repository: spec.repository, tag: spec.tag.clone(), archive: entry.join(ARCHIVE) })
}

fn write(path: &Path, image: &NewImage, spec: &ImageSpec) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    write_runnable(&mut file, image, &spec.entrypoint, &spec.arguments)
        .with_context(|| format!("write {}", path.display()))
}

/// Size of an image's file in bytes.
pub(crate) fn bytes(made: &Made) -> Result<u64> {
    let status =
        fs::metadata(&made.archive).with_context(|| format!("inspect {}", made.archive.display()))?;
    Ok(status.len())
}
