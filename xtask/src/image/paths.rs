//! Paths of a tree to be: adding a host's file, following links, and the tree's identity for cache keys.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use installer::tree::{Node, Tree};

use crate::cache::KeyBuilder;

/// More links than this in one path are a loop, as in the kernel.
const MOST_LINKS: usize = 40;

/// Adds a regular file of the host, links followed. Of its mode only the execute bit counts.
pub(crate) fn add_file(tree: &mut Tree, path: &str, from: &Path) -> Result<()> {
    let status = std::fs::metadata(from).with_context(|| format!("inspect {}", from.display()))?;
    ensure!(status.is_file(), "{} is no regular file", from.display());
    let mode = if status.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
    Ok(tree.file(path, mode, from)?)
}

/// Where a path leads when links of the tree are followed, each relative to its own directory.
pub(crate) fn resolve(tree: &Tree, path: &str) -> Option<String> {
    let mut rest: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let mut found: Vec<String> = Vec::new();
    let mut links = 0;
    while let Some(name) = rest.pop() {
        match name.as_str() {
            "" | "." => continue,
            ".." => drop(found.pop()),
            _ => found.push(name),
        }
        if let Some(Node::Symlink(target)) = tree.get(&found.join("/")).map(|entry| &entry.node) {
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            if target.starts_with('/') {
                found.clear();
            } else {
                found.pop();
            }
            rest.extend(target.split('/').rev().map(str::to_owned));
        }
    }
    let path = found.join("/");
    tree.get(&path).is_some().then_some(path)
}

/// Adds everything to a key that two trees can differ in.
pub(crate) fn identify(tree: &Tree, mut key: KeyBuilder) -> Result<KeyBuilder> {
    for (path, entry) in tree.iter() {
        key = key.part(path).part(format!("{:o} {} {}", entry.mode, entry.uid, entry.gid));
        key = match &entry.node {
            Node::Dir => key.part("directory"),
            Node::Symlink(target) => key.part("link").part(target),
            Node::Bytes(bytes) => key.part("file").part(bytes),
            Node::File(from) => key.part("host file").file(from)?,
            Node::CharDevice(major, minor) => key.part(format!("c {major} {minor}")),
            Node::BlockDevice(major, minor) => key.part(format!("b {major} {minor}")),
        };
    }
    Ok(key)
}
