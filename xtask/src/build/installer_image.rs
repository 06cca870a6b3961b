//! The installer image of a system: what `upgrade --image` installs.
//!
//! Source: docs/formats/installer-image.md.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::system::System;
use oci::archive;
use oci::installer::{Contents, Facts};

use super::output::Output;
use crate::cache::KeyBuilder;
use crate::step::step;

/// The oldest version that can install what is built here. It grows only when an image needs something of the node
/// that installs it which older versions do not have.
const MINIMUM_FROM: &str = "0.1.0";

/// Whose images these are: the builder makes them for this architecture alone.
const ARCHITECTURE: &str = "amd64";

/// Writes `<prefix>installer.oci.tar`.
pub(super) fn make(
    output: &Output,
    prefix: &str,
    system: &System,
    layers: &Path,
    writers: &str,
) -> Result<PathBuf> {
    let name = format!("{prefix}installer.oci.tar");
    let manifest = system.manifest.to_json();
    let boot = system.boot.of_kernel().into_iter().chain(system.boot.of_base());
    let boot: Vec<(String, Vec<u8>)> = boot.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).collect();
    let mut key = KeyBuilder::new("installer image 1").part(writers).part(MINIMUM_FROM).part(&manifest);
    for (name, bytes) in &boot {
        key = key.part(name).part(bytes);
    }
    output.make(&name, &key.finish(), |path| {
        let facts = Facts { version: system.manifest.version.clone(), minimum_from: MINIMUM_FROM.to_owned() };
        let layers = system.manifest.layers.iter().map(|layer| layers.join(layer.file_name())).collect();
        let architecture = ARCHITECTURE.to_owned();
        let contents =
            Contents { architecture, facts, manifest: manifest.clone().into_bytes(), boot, layers };
        step(&format!("write {name}"), || {
            let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
            let mut out = BufWriter::new(file);
            archive::write(&mut out, &contents.image())?;
            out.flush().with_context(|| format!("write {}", path.display()))
        })
    })
}
