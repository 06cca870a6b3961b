//! Customising a system: more layers on top of the ones that there are, which stay as they are.
//!
//! Owns: what a [`Profile`] asks for, one layer of removals and one of additions, the new root manifest.
//! Does not: unpack a layer: of those there are only the lists of names are read.
//! Order: read what is added with the places that it goes to in the root, refuse conflicts, then squash. The layer with
//! removals lies below the one with additions: a directory that is removed and given anew has nothing of the old one in it. A
//! kernel layer that takes the place of the old one lies above both.
//! Fails by: [`Error`], naming the source and the path.
//! Source: docs/users/customising.md; kernel Documentation/filesystems/overlayfs.rst on whiteouts.

mod additions;
mod below;
mod certificates;
mod extension;
mod firmware;
mod index;
mod kernel;
mod lower;
mod profile;
mod unpack;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ondisk::manifest::{Layer, RootManifest, is_own_layer};

use crate::bundle;
use crate::layer::{self, Spec, stack};
use crate::platform;
use crate::source::Source;
use crate::system::{self, System, command_line_of_image, names};
use crate::tree::{Entry, Node, Tree};
use crate::{Error, Progress};

use additions::{Additions, Sourced};
use kernel::Changed;
use lower::Lower;

pub use extension::INTERFACE;
pub use profile::{Addition, From, Profile};
pub use unpack::entries_of_tar;

/// Where a config lies that an image brings.
const CONFIG_PATH: &str = "usr/local/etc/billet/config.yaml";

/// Where the kernel looks for firmware.
const FIRMWARE_DIRECTORY: &str = "usr/lib/firmware";

/// zstd level of customisations: they shall be made in a second.
const ZSTD_LEVEL: u32 = 6;

/// The system with the profile's changes. New layers go to `work`, where those of the result are all found.
pub fn customise(
    source: &Source,
    profile: &Profile,
    work: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Source, Error> {
    if profile.extensions.is_empty() {
        return changed(source, profile, work, progress);
    }
    // Extensions are for one kernel, and the profile's own files may cover theirs.
    let (kernel, remove) = (profile.kernel.clone(), profile.remove.clone());
    let source = changed(source, &Profile { kernel, remove, ..Profile::default() }, work, progress)?;
    let source = extended(source, &profile.extensions, work, progress)?;
    let rest = Profile { kernel: None, remove: Vec::new(), extensions: Vec::new(), ..profile.clone() };
    changed(&source, &rest, work, progress)
}

/// Each extension as a layer with its name.
fn extended(
    mut source: Source,
    extensions: &[PathBuf],
    work: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Source, Error> {
    let release = source.system.manifest.kernel().and_then(|layer| layer.kernel_release.clone());
    let architecture = source.system.boot.architecture();
    let version = source.system.manifest.version.clone();
    let extensions = extension::read(extensions, &version, release.as_deref(), architecture)?;
    let lower = Lower::read(&source.system.manifest.layers, &source.layers)?;
    extension::check(&extensions, &lower, &source.system.manifest.layers)?;
    source.warnings.extend(extensions.iter().flat_map(extension::Extension::warnings));
    for extension in extensions {
        let lower = Lower::read(&source.system.manifest.layers, &source.layers)?;
        let mut additions = Additions::to(&lower);
        let index: Vec<_> = extension.index().collect();
        for (path, entry) in extension.entries.into_iter().chain(index) {
            additions.put(&extension.name, &path, entry)?;
        }
        let mut entries = additions.into_entries()?;
        let mut boot = source.system.boot.clone();
        kernel::change(&lower, &source, &[], None, &mut entries, &mut boot)?;
        let tree = placed(&lower, entries, &[])?;
        let mut layers = source.system.manifest.layers.clone();
        let spec = Spec { zstd_level: ZSTD_LEVEL, ..Spec::new(&extension.name, &extension.version) };
        put_on_top(&mut layers, layer::build(&tree, &spec, work, progress)?)?;
        let manifest = stack(&source.system.manifest.version, layers)?;
        source = source.with(System { manifest, boot });
    }
    Ok(source)
}

fn changed(
    source: &Source,
    profile: &Profile,
    work: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Source, Error> {
    let architecture = source.system.boot.architecture();
    let given = profile.kernel.as_ref().map(|given| given.read(architecture)).transpose()?;
    let mut boot = source.system.boot.clone();
    platform::check_arguments(&profile.kernel_arguments)?;
    if let Some(platform) = profile.platform {
        boot.command_line = platform.on(&boot.command_line);
    }
    boot.command_line = command_line_of_image(&boot.command_line, &profile.kernel_arguments)?;
    if let Some(path) = &profile.config_key {
        let text = fs::read_to_string(path).map_err(Error::read(path))?;
        let reason = |error: bundle::Error| Error::BadConfigKey { path: path.clone(), source: error };
        boot.config_key = Some(bundle::public_key_from_pem(&text).map_err(reason)?);
    }
    boot.authorities = certificates::appended(boot.authorities, &profile.certificates)?;
    let mut lower = Lower::read(&source.system.manifest.layers, &source.layers)?;
    let gone: Vec<String> = profile.remove.iter().map(|path| lower.resolve(path.trim_matches('/'))).collect();
    let mut additions = added(&lower, profile, &boot.command_line, source)?;
    let Changed { swapped, warning } =
        kernel::change(&lower, source, &gone, given, &mut additions, &mut boot)?;
    let too_much = firmware::add(&profile.firmware, &gone, &mut boot)?;
    let mut layers = source.system.manifest.layers.clone();
    let warned = absent(&lower, &profile.remove);
    if swapped.is_some() {
        layers.retain(|layer| !kernel::is_kernel(layer));
        lower = Lower::read(&layers, &source.layers)?;
    }
    let trees = [
        ("removed", removed(&lower, &profile.remove)?, None),
        ("custom", placed(&lower, additions, &gone)?, None),
    ];
    let warnings = warned.into_iter().chain(warning).chain(too_much);
    let swapped = swapped.map(|swapped| ("kernel", swapped.tree, swapped.release));
    gather(&layers, &source.layers, work)?;
    for (kind, tree, kernel_release) in trees.into_iter().chain(swapped) {
        if tree.iter().next().is_some() {
            let kernel_release = kernel_release.as_deref();
            let version = &source.system.manifest.version;
            let spec = Spec { zstd_level: ZSTD_LEVEL, kernel_release, ..Spec::new(kind, version) };
            put_on_top(&mut layers, layer::build(&tree, &spec, work, progress)?)?;
        }
    }
    let manifest: RootManifest = stack(&source.system.manifest.version, layers)?;
    let mut made = source.clone().with(System { manifest, boot });
    work.clone_into(&mut made.layers);
    made.warnings.extend(warnings);
    Ok(made)
}

/// A sentence for each path that is removed and is not there.
fn absent(lower: &Lower, paths: &[String]) -> Vec<String> {
    let is_there = |path: &str| lower.has(&lower.resolve(path.trim_matches('/')));
    let sentence = |path: &String| format!("remove: the image has no {path}, so nothing is removed there");
    paths.iter().filter(|path| !is_there(path)).map(sentence).collect()
}

/// Puts the kernel, which came beside the layers, into a layer of its own: a node makes its UKI of what lies there.
pub(crate) fn settle_kernel(mut source: Source) -> Result<Source, Error> {
    let warning = kernel::check_copied(&source)?;
    source.warnings.extend(warning);
    let mut tree = Tree::new();
    let path = format!("{}/{}", system::DIRECTORY, names::KERNEL);
    tree.bytes(&path, 0o644, source.system.boot.kernel.clone())?;
    let mut layers = source.system.manifest.layers.clone();
    let version = &source.system.manifest.version;
    let spec = Spec { zstd_level: 1, ..Spec::new("vmlinuz", version) };
    put_on_top(&mut layers, layer::build(&tree, &spec, &source.layers, &mut crate::silent)?)?;
    let manifest = stack(version, layers)?;
    let boot = source.system.boot.clone();
    Ok(source.with(System { manifest, boot }))
}

/// A whiteout for each path that is there.
fn removed(lower: &Lower, paths: &[String]) -> Result<Tree, Error> {
    let mut resolved = Vec::new();
    for path in paths {
        let place = lower.resolve(path.trim_matches('/'));
        let behind = lower.resolve_for(&place, &Entry::new(0o755, Node::Dir));
        if place.is_empty() || lower.is_needed(&place) || lower.is_needed(&behind) {
            return Err(Error::NotRemovable { path: path.clone() });
        }
        if lower.has(&place) {
            resolved.push(place);
        }
    }
    resolved.sort();
    resolved.dedup();
    let mut tree = Tree::new();
    let mut last: Option<String> = None;
    for path in resolved {
        // What lies in a directory that is removed is gone with it.
        if last.as_ref().is_some_and(|last| path.starts_with(&format!("{last}/"))) {
            continue;
        }
        lower.add_parents(&mut tree, &path)?;
        tree.insert(&path, Entry::new(0o600, Node::CharDevice(0, 0)))?;
        last = Some(path);
    }
    Ok(tree)
}

fn added(lower: &Lower, profile: &Profile, command_line: &str, source: &Source) -> Result<Sourced, Error> {
    let architecture = source.system.boot.architecture();
    let mut additions = Additions::to(lower);
    for addition in &profile.additions {
        additions.read(addition, architecture)?;
    }
    let mut additions = additions.without_boot_parts()?;
    for directory in &profile.firmware {
        let to = FIRMWARE_DIRECTORY.to_owned();
        additions.read(&Addition { from: From::Directory(directory.clone()), to }, architecture)?;
    }
    if let Some(path) = &profile.config {
        let text = fs::read(path).map_err(Error::read(path))?;
        additions.put(&path.display().to_string(), CONFIG_PATH, Entry::new(0o600, Node::Bytes(text)))?;
    }
    if !profile.certificates.is_empty() {
        let bundle = certificates::bundle(lower, &profile.certificates)?;
        additions.put("certificates", certificates::PATH, Entry::new(0o644, Node::Bytes(bundle)))?;
    }
    // A node makes its UKI of the parts in its layers: what the image starts with, an installed node starts with.
    if command_line != source.system.boot.command_line {
        let path = format!("{}/{}", system::DIRECTORY, names::COMMAND_LINE);
        let text = command_line.as_bytes().to_vec();
        additions.put("kernel arguments", &path, Entry::new(0o644, Node::Bytes(text)))?;
    }
    additions.into_entries()
}

/// The additions, which are by their places, as a layer above the others.
fn placed(lower: &Lower, additions: Sourced, gone: &[String]) -> Result<Tree, Error> {
    let gone: BTreeSet<&str> = gone.iter().map(String::as_str).collect();
    let is_gone = |path: &str| below::is_in(&gone, path);
    let mut tree = Tree::new();
    for (place, (entry, source)) in additions {
        let there = if is_gone(&place) { None } else { lower.entry(&place) };
        if let Some(reason) = there.and_then(|there| lower::clash(there, &entry)) {
            return Err(Error::Clash { path: place, source_name: source, reason });
        }
        if matches!(there, Some(lower::Kind::Directory(_))) && entry.node == Node::Dir {
            // It is there, with the mode that the image wants it to have.
            continue;
        }
        if !is_gone(&place) {
            lower.add_parents(&mut tree, &place)?;
        }
        tree.insert(&place, entry)?;
    }
    Ok(tree)
}

/// Has all layer files in one directory: those of before as links where that is possible.
fn gather(layers: &[Layer], from: &Path, to: &Path) -> Result<(), Error> {
    if from == to {
        return Ok(());
    }
    for layer in layers {
        let (from, to) = (from.join(layer.file_name()), to.join(layer.file_name()));
        if !to.exists() && fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).map_err(Error::write(&to))?;
        }
    }
    Ok(())
}

/// Puts a layer on top, under a name that is free. One of the same content goes: what lies below it shows through this
/// one as it did, and layer files are named by their content, so each can be there but once. An extension keeps its name.
fn put_on_top(layers: &mut Vec<Layer>, layer: Layer) -> Result<(), Error> {
    let same = layers.iter().position(|other| other.root_hash == layer.root_hash).map(|at| layers.remove(at));
    let layer = match same.filter(|same| !is_own_layer(&same.name)) {
        Some(there) if is_own_layer(&layer.name) => there,
        Some(there) => {
            let reason =
                format!("its files are those of the extension {}: leave one of the two out", there.name);
            return Err(Error::Extension { name: layer.name, reason });
        }
        None => Layer { name: free_name(layers, &layer.name), ..layer },
    };
    layers.push(layer);
    Ok(())
}

/// `custom`, `custom-2`, …
fn free_name(layers: &[Layer], kind: &str) -> String {
    let taken = |name: &String| layers.iter().any(|layer| layer.name == *name);
    let numbered = (2..).map(|number| format!("{kind}-{number}"));
    std::iter::once(kind.to_owned()).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
}
