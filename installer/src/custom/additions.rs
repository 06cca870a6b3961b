//! What is added: the files of folders, tar files and container images, and where they come from.
//!
//! Owns: reading each kind; finding that two sources want the same path to be different.
//! Does not: know the root that they are added to; read tar files (`unpack`).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use oci::archive::Archive;
use ondisk::Architecture;
use serde::Deserialize;

use super::lower::Lower;
use super::profile::{Addition, From};
use super::unpack::{Entries, image, tar_file};
use crate::Error;
use crate::system;
use crate::tree::{Entry, Node, Tree};

/// What lies in every OCI layout, and what `docker save` writes.
const LAYOUT: [&str; 2] = ["oci-layout", "index.json"];
const SAVED: &str = "manifest.json";

/// An image in that.
#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "Config")]
    _config: String,
    #[serde(rename = "Layers")]
    _layers: Vec<String>,
}

/// Entries of several sources.
pub(super) struct Additions {
    /// Of container images that are for several architectures.
    architecture: Architecture,
    entries: BTreeMap<String, (Entry, String)>,
    conflicts: Vec<String>,
}

impl Additions {
    /// None yet, for an image of this architecture.
    pub(super) fn for_image(architecture: Architecture) -> Self {
        Self { architecture, entries: BTreeMap::new(), conflicts: Vec::new() }
    }

    /// Reads a source.
    pub(super) fn read(&mut self, addition: &Addition) -> Result<(), Error> {
        let name = addition.from.path().display().to_string();
        let entries = match &addition.from {
            From::Folder(path) => no_image(path, folder(path)?)?,
            From::Stage(path) => stage(path)?,
            From::Tar(path) => no_image(path, tar_file(path)?)?,
            From::Image(path) => image(path, self.architecture)?,
            From::File(path) => one(path)?,
        };
        let to = addition.to.trim_matches('/');
        for (path, entry) in entries {
            let path = if to.is_empty() { path } else { format!("{to}/{path}") };
            self.put(&name, &path, entry)?;
        }
        Ok(())
    }

    /// Adds an entry of a source.
    pub(super) fn put(&mut self, source: &str, path: &str, entry: Entry) -> Result<(), Error> {
        if let Some((before, from)) = self.entries.get(path) {
            let both_folders = before.node == Node::Dir && entry.node == Node::Dir;
            if !both_folders && !same(before, &entry)? {
                self.conflicts.push(format!("/{path} is in {from} and, different, in {source}"));
            }
            return Ok(());
        }
        self.entries.insert(path.to_owned(), (entry, source.to_owned()));
        Ok(())
    }

    /// Refuses what would lie where the boot parts do.
    pub(super) fn without_boot_parts(self, lower: &Lower) -> Result<Self, Error> {
        let below = format!("{}/", system::FOLDER);
        let is_part = |(path, (entry, _)): &(&String, &(Entry, String))| {
            entry.node != Node::Dir && format!("{}/", lower.resolve_for(path, entry)).starts_with(&below)
        };
        match self.entries.iter().find(is_part) {
            Some((path, (_, source))) => {
                Err(Error::BootPart { path: path.clone(), source_name: source.clone() })
            }
            None => Ok(self),
        }
    }

    /// All entries, if no two of them contradict each other.
    pub(super) fn into_entries(self) -> Result<BTreeMap<String, (Entry, String)>, Error> {
        if self.conflicts.is_empty() {
            Ok(self.entries)
        } else {
            Err(Error::Conflicts { list: self.conflicts })
        }
    }
}

fn same(a: &Entry, b: &Entry) -> Result<bool, Error> {
    let is_file = |entry: &Entry| matches!(entry.node, Node::Bytes(_) | Node::File(_));
    if !(is_file(a) && is_file(b)) {
        return Ok(a == b);
    }
    Ok((a.mode, a.uid, a.gid) == (b.mode, b.uid, b.gid) && a.content()? == b.content()?)
}

fn folder(path: &Path) -> Result<Entries, Error> {
    let mut tree = Tree::new();
    tree.load("", path)?;
    Ok(tree.iter().map(|(path, entry)| (path.to_owned(), entry.clone())).collect())
}

/// One file under its own name.
fn one(path: &Path) -> Result<Entries, Error> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::Unsupported { path: path.to_owned() })?;
    let status = path.metadata().map_err(Error::read(path))?;
    if !status.is_file() {
        return Err(Error::Unsupported { path: path.to_owned() });
    }
    let mode = if status.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
    Ok([(name.to_owned(), Entry::new(mode, Node::File(path.to_owned())))].into())
}

/// The files, unless they are an image's blobs and documents, which nobody wants as files.
fn no_image(path: &Path, entries: Entries) -> Result<Entries, Error> {
    let layout = LAYOUT.iter().all(|name| entries.contains_key(*name));
    let saved = || -> Result<bool, Error> {
        match entries.get(SAVED) {
            Some(entry) => {
                let text = entry.content()?;
                let document: Option<Vec<Saved>> = serde_json::from_slice(&text).ok();
                Ok(document.is_some_and(|images| !images.is_empty()))
            }
            None => Ok(false),
        }
    };
    if layout || saved()? { Err(Error::ImageAsFiles { path: path.to_owned() }) } else { Ok(entries) }
}

/// A folder with its modes, a container image, or another tar file.
pub(super) fn of_any(path: &Path, architecture: Architecture) -> Result<Entries, Error> {
    match Archive::open(path) {
        Ok(archive) if archive.is_image() => image(path, architecture),
        _ if path.is_dir() => stage(path),
        _ => no_image(path, tar_file(path)?),
    }
}

/// What a container's build left: all of root, with its own modes.
fn stage(path: &Path) -> Result<Entries, Error> {
    let mut entries = folder(path)?;
    for (name, entry) in entries.iter_mut().filter(|(_, entry)| !matches!(entry.node, Node::Symlink(_))) {
        let host = path.join(name);
        let status = host.symlink_metadata().map_err(Error::read(&host))?;
        entry.mode = status.permissions().mode() & 0o7777;
    }
    Ok(entries)
}
