//! The files of an image as an explicit list.
//!
//! Owns: one entry a path, sorted; parents that nobody gave are directories 0755 of root.
//! Does not: keep times, extended attributes, hard links; what a host's directory has of those is dropped.
//! Fails by: refusing the entry that does not fit, by its path.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::Error;

/// Longest name of one entry: NAME_MAX of the kernel's limits.h. squashfs stores a name's length less one in a byte's range
/// (256 at most), and its writer stores a longer one so that what follows in the directory is lost.
const MAX_NAME_BYTES: usize = 255;
/// Longest path or link target: PATH_MAX of limits.h without the NUL and, for paths, the first `/`.
const MAX_PATH_BYTES: usize = 4094;
/// Most names in a path: the time of the squashfs writer grows by the third power of it. Systems have fewer than 30.
const MAX_NAMES: usize = 100;
/// How much of a path an error says.
const SHOWN_CHARS: usize = 80;

/// Why no image can hold an entry, and what to do; `None`: it can.
pub(crate) fn unfit(path: &str, node: &Node) -> Option<&'static str> {
    if path.split('/').any(|name| name.len() > MAX_NAME_BYTES) {
        return Some(
            "has a name of more than 255 bytes, which no image can hold: shorten it or leave it out",
        );
    }
    if path.len() > MAX_PATH_BYTES {
        return Some(
            "has a path of more than 4094 bytes, which no program could open: shorten it or leave it out",
        );
    }
    if path.split('/').count() > MAX_NAMES {
        return Some("lies in more than 99 directories, one in the other: put it in fewer or leave it out");
    }
    match node {
        Node::Symlink(target) if target.is_empty() => {
            Some("is a symbolic link to nothing, which no image can hold: give it a target or leave it out")
        }
        Node::Symlink(target) if target.len() > MAX_PATH_BYTES || target.contains('\0') => Some(
            "is a symbolic link whose target has a NUL or more than 4094 bytes: correct it or leave it out",
        ),
        _ => None,
    }
}

/// A path as errors say it: its beginning, where it is long, and nothing that acts on a terminal.
pub(crate) fn shown(path: &str) -> String {
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let mut shown: String = path.chars().map(plain).take(SHOWN_CHARS).collect();
    if path.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Dir,
    /// A regular file with this content.
    Bytes(Vec<u8>),
    /// A regular file with the content of this file of the host, read when the image is made.
    File(PathBuf),
    /// A symbolic link with this target.
    Symlink(String),
    /// A character device, major and minor.
    CharDevice(u32, u32),
    /// A block device, major and minor.
    BlockDevice(u32, u32),
}

/// An entry without its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Permission bits, `0o755`; 0o777 for links.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What it is.
    pub node: Node,
}

impl Entry {
    /// An entry of root.
    #[must_use]
    pub fn new(mode: u32, node: Node) -> Self {
        Self { mode, uid: 0, gid: 0, node }
    }

    /// The content, read from the host if need be; a link's target, nothing for the rest.
    pub fn content(&self) -> Result<Vec<u8>, Error> {
        match &self.node {
            Node::Bytes(bytes) => Ok(bytes.clone()),
            Node::File(path) => fs::read(path).map_err(Error::read(path)),
            Node::Symlink(target) => Ok(target.as_bytes().to_vec()),
            Node::Dir | Node::CharDevice(..) | Node::BlockDevice(..) => Ok(Vec::new()),
        }
    }
}

/// Entries by path; a parent sorts before what lies in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    entries: BTreeMap<String, Entry>,
    /// Directories that exist only because something lies in them: they may still be given.
    implied: BTreeSet<String>,
}

impl Tree {
    /// A tree with nothing but its root.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry. The path has no leading or trailing `/`.
    pub fn insert(&mut self, path: &str, entry: Entry) -> Result<(), Error> {
        if path.is_empty() || path.contains('\0') || path.split('/').any(|p| matches!(p, "" | "." | "..")) {
            return Err(Error::BadPath { path: path.into() });
        }
        if let Some(reason) = unfit(path, &entry.node) {
            return Err(Error::Unfit { path: shown(path), reason });
        }
        self.imply_parents(path)?;
        match self.implied.contains(path) {
            true if entry.node != Node::Dir => {
                return Err(Error::NotADirectory { path: path.into(), child: self.first_below(path) });
            }
            false if self.entries.contains_key(path) => return Err(Error::Duplicate { path: path.into() }),
            _ => {}
        }
        self.implied.remove(path);
        self.entries.insert(path.into(), entry);
        Ok(())
    }

    /// Adds or replaces an entry, whatever an image can hold.
    #[cfg(test)]
    pub(crate) fn insert_unchecked(&mut self, path: &str, entry: Entry) {
        self.imply_parents(path).unwrap_or_else(|error| panic!("{error}"));
        self.entries.insert(path.into(), entry);
    }

    /// Removes an entry, and nothing that may lie in it.
    #[cfg(test)]
    pub(crate) fn remove_unchecked(&mut self, path: &str) {
        self.entries.remove(path);
    }

    fn imply_parents(&mut self, path: &str) -> Result<(), Error> {
        for (end, _) in path.match_indices('/') {
            let parent = path.get(..end).unwrap_or_default();
            match self.entries.get(parent).map(|entry| &entry.node) {
                Some(Node::Dir) => {}
                Some(_) => return Err(Error::NotADirectory { path: parent.into(), child: path.into() }),
                None => {
                    self.entries.insert(parent.into(), Entry::new(0o755, Node::Dir));
                    self.implied.insert(parent.into());
                }
            }
        }
        Ok(())
    }

    fn first_below(&self, path: &str) -> String {
        let below = format!("{path}/");
        self.entries.range(below.clone()..).next().map_or(below, |(path, _)| path.clone())
    }

    /// Adds a directory of root.
    pub fn dir(&mut self, path: &str, mode: u32) -> Result<(), Error> {
        self.insert(path, Entry::new(mode, Node::Dir))
    }

    /// Adds a file of root with this content.
    pub fn bytes(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Result<(), Error> {
        self.insert(path, Entry::new(mode, Node::Bytes(content.into())))
    }

    /// Adds a file of root with the content of a file of the host.
    pub fn file(&mut self, path: &str, mode: u32, from: impl Into<PathBuf>) -> Result<(), Error> {
        self.insert(path, Entry::new(mode, Node::File(from.into())))
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: impl Into<String>) -> Result<(), Error> {
        self.insert(path, Entry::new(0o777, Node::Symlink(target.into())))
    }

    /// Adds a character device of root.
    pub fn char_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) -> Result<(), Error> {
        self.insert(path, Entry::new(mode, Node::CharDevice(major, minor)))
    }

    /// Adds everything below a directory of the host at `path` (empty for the root of the tree): directories 0755, files
    /// 0755 or 0644 by their owner's execute bit, all of root.
    pub fn load(&mut self, path: &str, from: &Path) -> Result<(), Error> {
        for item in fs::read_dir(from).map_err(Error::list(from))? {
            let host = item.map_err(Error::list(from))?.path();
            let name = host.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| Error::Unsupported { path: host.clone() })?;
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            self.load_one(&path, &host)?;
        }
        Ok(())
    }

    fn load_one(&mut self, path: &str, host: &Path) -> Result<(), Error> {
        let status = host.symlink_metadata().map_err(Error::read(host))?;
        let unsupported = || Error::Unsupported { path: host.to_owned() };
        if status.is_dir() {
            if self.entries.get(path).is_none_or(|entry| entry.node != Node::Dir) {
                self.dir(path, 0o755)?;
            }
            self.load(path, host)
        } else if status.is_symlink() {
            let target = fs::read_link(host).map_err(Error::read(host))?;
            self.symlink(path, target.to_str().ok_or_else(unsupported)?)
        } else if status.is_file() {
            let mode = if status.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
            self.file(path, mode, host)
        } else {
            Err(unsupported())
        }
    }

    /// The entries, parents before what lies in them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The entry at this path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Bytes of all files together, as far as the host's can be inspected.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        let sizes = self.entries.values().map(|entry| match &entry.node {
            Node::Bytes(bytes) => bytes.len() as u64,
            Node::File(path) => path.metadata().map_or(0, |status| status.len()),
            _ => 0,
        });
        sizes.sum()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn parents_come_first_and_may_be_given_later() {
        let mut tree = Tree::new();
        tree.bytes("etc/a/file", 0o600, "x").unwrap();
        tree.dir("etc/a", 0o700).unwrap();
        tree.dir("etc-b", 0o755).unwrap();
        let paths: Vec<_> = tree.iter().map(|(path, entry)| (path, entry.mode)).collect();
        assert_eq!(paths, [("etc", 0o755), ("etc-b", 0o755), ("etc/a", 0o700), ("etc/a/file", 0o600)]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let mut tree = Tree::new();
        tree.bytes("a/b", 0o644, "x").unwrap();
        let text = |result: Result<(), Error>| result.unwrap_err().to_string();
        assert_eq!(text(tree.symlink("a/b", "c")), "/a/b is given twice");
        assert_eq!(text(tree.bytes("a", 0o644, "")), "/a is no directory, but /a/b lies in it");
        tree.dir("a", 0o755).unwrap();
        assert_eq!(text(tree.dir("a", 0o755)), "/a is given twice");
        assert_eq!(text(tree.dir("a/b/c", 0o755)), "/a/b is no directory, but /a/b/c lies in it");
        for path in ["", "/etc", "etc/", "a//b", "../a", "./a"] {
            assert_eq!(text(tree.dir(path, 0o755)), format!("/{path} cannot be a path in an image"));
        }
    }

    #[test]
    fn what_squashfs_cannot_hold_is_refused_and_the_longest_is_not() {
        let text = |result: Result<(), Error>| result.unwrap_err().to_string();
        let mut tree = Tree::new();
        let file = |tree: &mut Tree, path: &str| tree.bytes(path, 0o644, "x");
        file(&mut tree, &"n".repeat(255)).unwrap();
        let long = text(file(&mut tree, &"n".repeat(256)));
        assert!(long.contains("more than 255 bytes") && long.len() < 300, "{long}");
        file(&mut tree, &vec!["d"; 100].join("/")).unwrap();
        assert!(text(file(&mut tree, &vec!["d"; 101].join("/"))).contains("more than 99 directories"));
        let wide = vec!["d".repeat(200); 21].join("/");
        assert!(text(file(&mut tree, &wide)).contains("more than 4094 bytes"));
        for (target, wanted) in [("", "link to nothing"), ("a\0b", "NUL")] {
            assert!(text(tree.symlink("link", target)).contains(wanted), "{target:?}");
        }
    }

    #[test]
    fn a_directory_is_loaded_with_normal_modes() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        for (name, mode) in [("sub/tool", 0o700), ("sub/text", 0o666)] {
            fs::write(dir.path().join(name), name).unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("tool", dir.path().join("sub/link")).unwrap();
        let mut tree = Tree::new();
        tree.load("usr", dir.path()).unwrap();
        let modes: Vec<_> = tree.iter().map(|(path, entry)| (path, entry.mode)).collect();
        let expected = [
            ("usr", 0o755),
            ("usr/sub", 0o755),
            ("usr/sub/link", 0o777),
            ("usr/sub/text", 0o644),
            ("usr/sub/tool", 0o755),
        ];
        assert_eq!(modes, expected);
        assert_eq!(tree.get("usr/sub/text").unwrap().content().unwrap(), b"sub/text");
        assert_eq!(tree.content_bytes(), 16);
    }
}
