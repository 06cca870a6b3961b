//! The tree of groups out of a tar.gz of /sys/fs/cgroup.
//!
//! Owns: which entry is a group (a directory) and which a value (a file). Does not: know what a value means.
//! Fails by: an archive that is broken, or that holds no group at all.

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use std::{
    collections::BTreeMap,
    io::Read,
    path::{Component, Path},
};
use tar::{Archive, EntryType};

/// Largest value that is read: the list of a group's processes.
const MAX_VALUE_BYTES: u64 = 1 << 20;
/// Deepest tree that is taken; the kernel's own limit is not lower.
const MAX_DEPTH: usize = 64;

/// A control group.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Content of its files by name.
    pub(super) files: BTreeMap<String, String>,
    pub(super) children: BTreeMap<String, Group>,
}

impl Group {
    /// The content of a file without its line end.
    pub(super) fn text(&self, file: &str) -> Option<&str> {
        self.files.get(file).map(|text| text.trim_end())
    }

    /// The number behind a word that begins a line: `usage_usec 7`.
    pub(super) fn number(&self, file: &str, key: &str) -> Option<u64> {
        let line = self.text(file)?.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }
}

/// Reads the archive.
pub(super) fn read(archive: &[u8]) -> Result<Group> {
    let mut root = Group::default();
    let mut archive = Archive::new(GzDecoder::new(archive));
    for entry in archive.entries().context("read the archive")? {
        let mut entry = entry.context("read the archive")?;
        let path = entry.path().context("read a name of the archive")?.into_owned();
        match entry.header().entry_type() {
            EntryType::Directory => drop(group(&mut root, &path)?),
            EntryType::Regular => {
                let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
                let mut text = Vec::new();
                entry.by_ref().take(MAX_VALUE_BYTES).read_to_end(&mut text).context("read the archive")?;
                let parent = group(&mut root, path.parent().unwrap_or(Path::new("")))?;
                parent.files.insert(name.to_owned(), String::from_utf8_lossy(&text).into_owned());
            }
            _ => {}
        }
    }
    if !root.files.contains_key("cgroup.controllers") {
        bail!("there is no unified hierarchy: cgroup.controllers is missing (control groups of version 1?)");
    }
    Ok(root)
}

fn group<'a>(root: &'a mut Group, path: &Path) -> Result<&'a mut Group> {
    if path.components().count() > MAX_DEPTH {
        bail!("a group lies deeper than {MAX_DEPTH}");
    }
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    });
    Ok(names.fold(root, |group, name| group.children.entry(name).or_default()))
}
