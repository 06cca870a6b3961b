//! A tree of files to be: paths with their content, before any format knows of it.
//!
//! Owns: that each path is named once, that parents exist, that modes are 0755 or 0644 and owners root.
//! Does not: keep times; formats write the one time of the build.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::cache::KeyBuilder;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Folder,
    Link(String),
    /// A file of the host: read when the image is written.
    File {
        from: PathBuf,
        executable: bool,
    },
    Bytes(Vec<u8>),
}

/// Paths without leading slash, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files(BTreeMap<String, Node>);

impl Files {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_str(), node))
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.0.get(path)
    }

    pub(crate) fn folder(&mut self, path: &str) -> Result<()> {
        self.parents(path)?;
        match self.0.get(path) {
            None => drop(self.0.insert(path.to_owned(), Node::Folder)),
            Some(Node::Folder) => {}
            Some(_) => bail!("/{path} is a file and a folder"),
        }
        Ok(())
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.add(path, Node::Link(target.to_owned()))
    }

    pub(crate) fn bytes(&mut self, path: &str, bytes: impl Into<Vec<u8>>) -> Result<()> {
        self.add(path, Node::Bytes(bytes.into()))
    }

    /// A regular file of the host; links are followed. Of its mode only the execute bit counts.
    pub(crate) fn file(&mut self, path: &str, from: &Path) -> Result<()> {
        let status = fs::metadata(from).with_context(|| format!("inspect {}", from.display()))?;
        ensure!(status.is_file(), "{} is no regular file", from.display());
        let executable = status.permissions().mode() & 0o111 != 0;
        self.add(path, Node::File { from: from.to_owned(), executable })
    }

    /// Everything below a folder of the host, links as links.
    pub(crate) fn tree(&mut self, path: &str, from: &Path) -> Result<()> {
        let items = fs::read_dir(from).with_context(|| format!("list {}", from.display()))?;
        for item in items {
            let item = item.with_context(|| format!("list {}", from.display()))?.path();
            let name = item.file_name().unwrap_or_default().to_string_lossy();
            let path = if path.is_empty() { name.into_owned() } else { format!("{path}/{name}") };
            if item.is_symlink() {
                let target = fs::read_link(&item).with_context(|| format!("read link {}", item.display()))?;
                self.link(&path, &target.to_string_lossy())?;
            } else if item.is_dir() {
                self.folder(&path)?;
                self.tree(&path, &item)?;
            } else {
                self.file(&path, &item)?;
            }
        }
        Ok(())
    }

    /// Adds all that a cache key has to know of the tree.
    pub(crate) fn identify(&self, mut key: KeyBuilder) -> Result<KeyBuilder> {
        for (path, node) in self.iter() {
            key = key.part(path);
            key = match node {
                Node::Folder => key.part("folder"),
                Node::Link(target) => key.part("link").part(target),
                Node::Bytes(bytes) => key.part("bytes").part(bytes),
                Node::File { from, executable } => {
                    key.part(if *executable { "program" } else { "data" }).file(from)?
                }
            };
        }
        Ok(key)
    }

    /// Where a path leads when links of the tree are followed, each relative to its own folder.
    pub(crate) fn resolve(&self, path: &str) -> Option<String> {
        let mut rest: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut found: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => drop(found.pop()),
                _ => found.push(name),
            }
            if let Some(Node::Link(target)) = self.0.get(&found.join("/")) {
                links += 1;
                if links > 40 {
                    return None;
                }
                if target.starts_with('/') {
                    found.clear()
                } else {
                    drop(found.pop())
                }
                rest.extend(target.split('/').rev().map(str::to_owned));
            }
        }
        let path = found.join("/");
        self.0.contains_key(&path).then_some(path)
    }

    fn add(&mut self, path: &str, node: Node) -> Result<()> {
        self.parents(path)?;
        if self.0.contains_key(path) {
            bail!("/{path} is named twice");
        }
        self.0.insert(path.to_owned(), node);
        Ok(())
    }

    fn parents(&mut self, path: &str) -> Result<()> {
        let proper = path.split('/').all(|name| !matches!(name, "" | "." | ".."));
        ensure!(proper, "{path:?} is no path inside an image");
        match path.rsplit_once('/') {
            Some((parent, _)) => self.folder(parent),
            None => Ok(()),
        }
    }
}
