//! What is added: the files of folders, tar files and container images, and where they come from.
//!
//! Owns: reading each kind; finding that two sources want the same path to be different.
//! Does not: know the root that they are added to; read tar files (`unpack`).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use oci::archive::Archive;
use ondisk::Architecture;

use super::profile::{Addition, From};
use super::unpack::{Entries, image, tar_file};
use crate::Error;
use crate::tree::{Entry, Node, Tree};

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
            From::Folder(path) => folder(path)?,
            From::Stage(path) => stage(path)?,
            From::Tar(path) => tar_file(path)?,
            From::Image(path) => image(path, self.architecture)?,
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

/// A folder with its modes, a container image, or another tar file.
pub(super) fn of_any(path: &Path, architecture: Architecture) -> Result<Entries, Error> {
    if path.is_dir() {
        return stage(path);
    }
    match Archive::open(path) {
        Ok(archive) if archive.is_image() => image(path, architecture),
        _ => tar_file(path),
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
