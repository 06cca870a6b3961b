//! The names in a root's layers, as overlayfs would merge them.
//!
//! Owns: reading the lists of names, following links, what cannot be removed or replaced.
//! Does not: read content, but for single files that somebody asks for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use backhand::{FilesystemReader, InnerNode};
use ondisk::manifest::Layer;

use super::below;
use crate::Error;
use crate::system;
use crate::tree::{Entry, Node, Tree};

/// Most links on the way to a path.
const MAX_LINKS: usize = 16;

/// Without these nothing starts.
const NEEDED: [&str; 5] = ["usr", "usr/lib", "usr/lib/billet", "usr/bin", "etc"];

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// With its mode.
    Directory(u32),
    File,
    Link(String),
    Device,
}

/// The merged names, and the layer that each comes from.
#[derive(Default)]
pub(super) struct Lower {
    entries: BTreeMap<String, (Kind, PathBuf)>,
}

impl Lower {
    pub(super) fn read(layers: &[Layer], directory: &Path) -> Result<Self, Error> {
        let mut lower = Self::default();
        for layer in layers {
            lower.add(&directory.join(layer.file_name()))?;
        }
        Ok(lower)
    }

    fn add(&mut self, path: &Path) -> Result<(), Error> {
        let reader = open(path)?;
        for node in reader.files() {
            let Some(name) = node.fullpath.to_str() else { continue };
            let name = name.trim_start_matches('/').to_owned();
            let kind = match &node.inner {
                InnerNode::Dir(_) => Kind::Directory(u32::from(node.header.permissions) & 0o7777),
                InnerNode::File(_) => Kind::File,
                InnerNode::Symlink(link) => Kind::Link(link.link.to_string_lossy().into_owned()),
                InnerNode::CharacterDevice(device) if device.device_number == 0 => {
                    self.forget(&name);
                    continue;
                }
                _ => Kind::Device,
            };
            if !matches!(kind, Kind::Directory(_)) {
                self.forget(&name);
            }
            if !name.is_empty() {
                self.entries.insert(name, (kind, path.to_owned()));
            }
        }
        Ok(())
    }

    /// A name with all that lies below it.
    fn forget(&mut self, name: &str) {
        below::remove(&mut self.entries, name);
        self.entries.remove(name);
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.entries.contains_key(path)
    }

    pub(super) fn entry(&self, path: &str) -> Option<&Kind> {
        self.entries.get(path).map(|(kind, _)| kind)
    }

    /// The layer file that a name comes from.
    pub(super) fn layer(&self, path: &str) -> Option<&Path> {
        self.entries.get(path).map(|(_, layer)| layer.as_path())
    }

    /// Whether there is the same at this path, modes apart.
    pub(super) fn is_same(&self, path: &str, entry: &Entry) -> Result<bool, Error> {
        Ok(match (self.entry(path), &entry.node) {
            (Some(Kind::File), Node::Bytes(_) | Node::File(_)) => {
                self.content(path)? == Some(entry.content()?)
            }
            (Some(Kind::Link(there)), Node::Symlink(target)) => there == target,
            _ => false,
        })
    }

    /// Whether nothing starts without it.
    pub(super) fn is_needed(&self, path: &str) -> bool {
        NEEDED.contains(&path) || path.starts_with(system::DIRECTORY)
    }

    /// The path with all links on the way to it followed; a link at its end is the thing itself.
    pub(super) fn resolve(&self, path: &str) -> String {
        let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let (mut done, mut links) = (Vec::<String>::new(), 0);
        while let Some(part) = left.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    done.pop();
                    continue;
                }
                _ => done.push(part),
            }
            if left.iter().all(String::is_empty) {
                continue;
            }
            if let Some(Kind::Link(target)) = self.entry(&done.join("/"))
                && links < MAX_LINKS
            {
                links += 1;
                done.pop();
                if target.starts_with('/') {
                    done.clear();
                }
                left.extend(target.split('/').rev().map(str::to_owned));
            }
        }
        done.join("/")
    }

    /// The same for something that is put there: a directory goes to where a link at its end leads.
    pub(super) fn resolve_for(&self, path: &str, entry: &Entry) -> String {
        let place = self.resolve(path);
        match (self.entry(&place), &entry.node) {
            (Some(Kind::Link(_)), Node::Dir) => {
                let inside = self.resolve(&format!("{place}/x"));
                inside.strip_suffix("/x").unwrap_or(&place).to_owned()
            }
            _ => place,
        }
    }

    /// Gives a tree the directories above a path with the modes that they have.
    pub(super) fn add_parents(&self, tree: &mut Tree, path: &str) -> Result<(), Error> {
        for (end, _) in path.match_indices('/') {
            let parent = path.get(..end).unwrap_or_default();
            if let Some(Kind::Directory(mode)) = self.entry(parent)
                && tree.get(parent).is_none()
            {
                tree.dir(parent, *mode)?;
            }
        }
        Ok(())
    }

    /// The content of a file; `None`: there is none.
    pub(super) fn content(&self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some((Kind::File, layer)) = self.entries.get(path) else { return Ok(None) };
        let reader = open(layer)?;
        let whole = format!("/{path}");
        let node = reader.files().find(|node| node.fullpath == Path::new(&whole));
        let Some(InnerNode::File(file)) = node.map(|node| &node.inner) else { return Ok(None) };
        let mut content = Vec::new();
        let read = reader.file(file).reader().read_to_end(&mut content);
        read.map_err(|error| Error::Squash { path: path.to_owned(), reason: error.to_string() })?;
        Ok(Some(content))
    }
}

/// Why something cannot stand where something else is.
pub(super) fn clash(there: &Kind, entry: &Entry) -> Option<&'static str> {
    match (there, &entry.node) {
        (Kind::Directory(_), Node::Dir)
        | (Kind::File | Kind::Link(_) | Kind::Device, Node::Bytes(_) | Node::File(_)) => None,
        (Kind::File | Kind::Link(_), Node::Symlink(_)) => None,
        (Kind::Directory(_), _) => Some("the image has a directory there: remove it first"),
        (_, Node::Dir) => Some("the image has a file there: remove it first"),
        _ => Some("the image has something of another kind there: remove it first"),
    }
}

fn open(path: &Path) -> Result<FilesystemReader<'static>, Error> {
    let file = File::open(path).map_err(Error::read(path))?;
    FilesystemReader::from_reader(BufReader::new(file))
        .map_err(|error| Error::WrongLayer { path: path.to_owned(), reason: error.to_string() })
}
