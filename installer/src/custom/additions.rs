//! What is added: the files of directories, tar files and container images, and where they come from.
//!
//! Owns: reading each kind; where links of the root lead each path; finding that two sources want the same place to be
//! different.
//! Does not: ask what is there in the root; read tar files (`unpack`).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use oci::archive::{self, Archive};
use ondisk::Architecture;

use super::lower::Lower;
use super::profile::{Addition, From};
use super::unpack::{Entries, image, tar_file};
use crate::Error;
use crate::system;
use crate::tree::{Entry, Node, Tree};

/// Entries with their sources.
pub(super) type Sourced = BTreeMap<String, (Entry, String)>;

/// Entries of several sources.
pub(super) struct Additions<'l> {
    /// The root that they are added to.
    lower: &'l Lower,
    /// By the paths that they were given.
    entries: Sourced,
    /// The path of each, by the place that it leads to in the root.
    places: BTreeMap<String, String>,
    conflicts: Vec<String>,
}

impl<'l> Additions<'l> {
    /// None yet, for an image with this root.
    pub(super) fn to(lower: &'l Lower) -> Self {
        Self { lower, entries: BTreeMap::new(), places: BTreeMap::new(), conflicts: Vec::new() }
    }

    /// Reads a source. `architecture`: of container images that are for several.
    pub(super) fn read(&mut self, addition: &Addition, architecture: Architecture) -> Result<(), Error> {
        let name = addition.from.path().display().to_string();
        let entries = match &addition.from {
            From::Directory(path) => no_image(path, directory(path)?)?,
            From::Stage(path) => stage(path)?,
            From::Tar(path) => no_image(path, tar_file(path)?)?,
            From::Image(path) => image(path, architecture)?,
            From::File(path) => one(path)?,
        };
        let to = addition.to.trim_matches('/');
        for (path, entry) in entries {
            let path = if to.is_empty() { path } else { format!("{to}/{path}") };
            self.put(&name, &path, entry)?;
        }
        Ok(())
    }

    /// Adds an entry of a source. What is there already, at this path or by another one that leads to the same place, stays.
    pub(super) fn put(&mut self, source: &str, path: &str, entry: Entry) -> Result<(), Error> {
        let place = self.lower.resolve_for(path, &entry);
        // The same path may lead elsewhere: a directory goes to where a link of the root leads, a file in place of the link.
        let there = [Some(path), self.places.get(&place).map(String::as_str)].into_iter().flatten();
        let there = there.filter_map(|path| self.entries.get_key_value(path)).next();
        let Some((other, (before, from))) = there else {
            self.entries.insert(path.to_owned(), (entry, source.to_owned()));
            self.places.insert(place, path.to_owned());
            return Ok(());
        };
        let both_directories = before.node == Node::Dir && entry.node == Node::Dir;
        if !both_directories && !same(before, &entry)? {
            let (first, second) = (spelled(other, &place), spelled(path, &place));
            let line = format!("/{place} is in {from}{first} and, different, in {source}{second}");
            self.conflicts.push(line);
        }
        Ok(())
    }

    /// Refuses what would lie where the boot parts do.
    pub(super) fn without_boot_parts(self) -> Result<Self, Error> {
        let below = format!("{}/", system::DIRECTORY);
        let is_part = |(place, path): &(&String, &String)| {
            format!("{place}/").starts_with(&below)
                && self.entries.get(*path).is_some_and(|(entry, _)| entry.node != Node::Dir)
        };
        let part = self.places.iter().find(is_part).map(|(_, path)| path);
        match part.and_then(|path| self.entries.get_key_value(path)) {
            Some((path, (_, source))) => {
                Err(Error::BootPart { path: path.clone(), source_name: source.clone() })
            }
            None => Ok(self),
        }
    }

    /// Lines of entries that contradict each other.
    pub(super) fn into_conflicts(self) -> Vec<String> {
        self.conflicts
    }

    /// All entries by their places, if no two of them contradict each other.
    pub(super) fn into_entries(self) -> Result<Sourced, Error> {
        if !self.conflicts.is_empty() {
            return Err(Error::Conflicts { list: self.conflicts });
        }
        let mut entries = self.entries;
        let placed = |(place, path): (String, String)| Some((place, entries.remove(&path)?));
        Ok(self.places.into_iter().filter_map(placed).collect())
    }
}

/// How a source calls a place, where that is not its name.
pub(super) fn spelled(path: &str, place: &str) -> String {
    if path == place { String::new() } else { format!(" (as /{path})") }
}

fn same(a: &Entry, b: &Entry) -> Result<bool, Error> {
    let is_file = |entry: &Entry| matches!(entry.node, Node::Bytes(_) | Node::File(_));
    if !(is_file(a) && is_file(b)) {
        return Ok(a == b);
    }
    Ok((a.mode, a.uid, a.gid) == (b.mode, b.uid, b.gid) && a.content()? == b.content()?)
}

fn directory(path: &Path) -> Result<Entries, Error> {
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
    if is_image(&entries) { Err(Error::ImageAsFiles { path: path.to_owned() }) } else { Ok(entries) }
}

fn is_image(entries: &Entries) -> bool {
    archive::is_image(|name| entries.contains_key(name), |name| entries.get(name)?.content().ok())
}

/// A directory with its modes, a container image, or another tar file.
pub(super) fn of_any(path: &Path, architecture: Architecture) -> Result<Entries, Error> {
    let opened = Archive::open(path);
    if opened.as_ref().is_ok_and(Archive::is_image) {
        return image(path, architecture);
    }
    if path.is_dir() {
        return stage(path);
    }
    let entries = tar_file(path)?;
    match opened {
        // A packed image: what to do with it first.
        Err(error) if is_image(&entries) => Err(error.into()),
        _ => Ok(entries),
    }
}

/// What a container's build left: all of root, with its own modes.
fn stage(path: &Path) -> Result<Entries, Error> {
    let mut entries = directory(path)?;
    for (name, entry) in entries.iter_mut().filter(|(_, entry)| !matches!(entry.node, Node::Symlink(_))) {
        let host = path.join(name);
        let status = host.symlink_metadata().map_err(Error::read(&host))?;
        entry.mode = status.permissions().mode() & 0o7777;
    }
    Ok(entries)
}
