//! Layers through the cache: a tree is squashed once, whichever checkout asks.

use std::path::Path;

use anyhow::{Context, Result};
use installer::layer::{self, Spec};
use installer::tree::Tree;
use ondisk::manifest::Layer;

use super::output::Output;
use crate::cache::{Cache, KeyBuilder};
use crate::image::paths::identify;
use crate::place;
use crate::step::step;

/// A layer's description beside its file.
const DESCRIPTION: &str = "layer.json";

/// Code that decides how a tree becomes a file: a change of it changes the file.
const WRITERS: [&str; 15] = [
    "crates/ondisk/src/cpio.rs",
    "crates/ondisk/src/digest.rs",
    "crates/ondisk/src/fat",
    "crates/ondisk/src/field.rs",
    "crates/ondisk/src/gpt",
    "crates/ondisk/src/pe",
    "crates/ondisk/src/region.rs",
    "crates/ondisk/src/verity.rs",
    "installer/src/disk.rs",
    "installer/src/initramfs.rs",
    "installer/src/layer.rs",
    "installer/src/layout.rs",
    "installer/src/squashfs.rs",
    "installer/src/tree.rs",
    "installer/src/uki.rs",
];

/// Code that decides what is in a disk or an installer image besides.
const FORM_WRITERS: [&str; 3] =
    ["crates/oci/src/archive.rs", "crates/oci/src/installer", "installer/src/image"];

/// Crates that do so too.
const WRITER_CRATES: [&str; 4] = ["backhand", "zstd", "zstd-safe", "zstd-sys"];

pub(super) struct LayerStore<'a> {
    cache: &'a Cache,
    output: &'a Output,
    writers: String,
}

impl<'a> LayerStore<'a> {
    pub(super) fn open(cache: &'a Cache, output: &'a Output) -> Result<Self> {
        Ok(Self { cache, output, writers: writers()? })
    }

    /// The layer of a tree; its file lies in the directory of layers afterwards.
    pub(super) fn layer(&self, tree: &Tree, spec: &Spec<'_>) -> Result<Layer> {
        let key = KeyBuilder::new("layer 2").part(&self.writers).part(spec.name).part(spec.version);
        let key = key.part(spec.kernel_release.unwrap_or_default()).part(spec.zstd_level.to_string());
        let key = identify(tree, key)?.finish();
        let entry = self.cache.entry("layer", &key, |directory| {
            step(&format!("squash layer {}", spec.name), || squash(tree, spec, directory))
        })?;
        let path = entry.join(DESCRIPTION);
        let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let layer: Layer =
            serde_json::from_slice(&text).with_context(|| format!("parse {}", path.display()))?;
        self.output.copy(&format!("layers/{}", layer.file_name()), &entry.join(layer.file_name()))?;
        Ok(layer)
    }
}

fn squash(tree: &Tree, spec: &Spec<'_>, directory: &Path) -> Result<()> {
    let layer = layer::build(tree, spec, directory, &mut installer::silent)?;
    let text = serde_json::to_vec_pretty(&layer).context("serialise the layer's description")?;
    std::fs::write(directory.join(DESCRIPTION), text).context("write the layer's description")
}

/// A text that changes with the code that writes layers and initramfs segments.
pub(super) fn writers() -> Result<String> {
    text_of("writers 1", &WRITERS)
}

/// The same for disks and installer images.
pub(super) fn form_writers() -> Result<String> {
    Ok(writers()? + &text_of("form writers 1", &FORM_WRITERS)?)
}

fn text_of(recipe: &str, files: &[&str]) -> Result<String> {
    let root = place::repository();
    let mut key = KeyBuilder::new(recipe);
    for writer in files {
        let (mut tree, path) = (Tree::new(), root.join(writer));
        if path.is_dir() {
            tree.load("", &path)?;
        } else {
            tree.file(writer, 0o644, path)?;
        }
        key = identify(&tree, key)?;
    }
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("read Cargo.lock")?;
    for package in lock.split("\n\n") {
        if WRITER_CRATES.iter().any(|name| package.contains(&format!("name = \"{name}\"\n"))) {
            key = key.part(package);
        }
    }
    Ok(key.finish().short().to_owned())
}
