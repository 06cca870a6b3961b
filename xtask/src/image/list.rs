//! The list of a layer's files: xtask/image/base.toml as values.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::target::{self, Architecture};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileList {
    pub(super) directories: Vec<String>,
    /// Directories that only root may look into.
    pub(super) private_directories: Vec<String>,
    pub(super) empty_files: Vec<String>,
    pub(super) links: Vec<String>,
    pub(super) forbidden: Vec<String>,
    #[serde(rename = "package")]
    pub(super) packages: Vec<PackageFiles>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PackageFiles {
    pub(super) name: String,
    reason: String,
    #[serde(default)]
    pub(super) files: Vec<String>,
    /// Files with one certificate each, to be joined.
    pub(super) authorities: Option<String>,
    /// The package's shared libraries may be taken when a file needs them.
    #[serde(default)]
    pub(super) libraries: bool,
}

impl FileList {
    /// For these machines: `{libraries}` and `{linker}` stand for where they have those.
    pub(crate) fn read(path: &Path, architecture: Architecture) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let text = text.replace("{libraries}", target::libraries(architecture));
        Self::parse(&text.replace("{linker}", target::linker(architecture)))
            .with_context(|| format!("parse {}", path.display()))
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let list: Self = toml::from_str(text)?;
        for package in &list.packages {
            ensure!(package.reason.trim().ends_with('.'), "{}: the reason is a sentence", package.name);
            let used = package.libraries || package.authorities.is_some() || !package.files.is_empty();
            ensure!(used, "{}: no file is taken from it", package.name);
        }
        Ok(list)
    }

    /// Names of all packages that files are taken from.
    pub(crate) fn packages(&self) -> Vec<&str> {
        self.packages.iter().map(|package| package.name.as_str()).collect()
    }
}

/// `a => b` in its two parts; without an arrow both are the same.
pub(super) fn arrow(entry: &str) -> (&str, &str) {
    entry.split_once("=>").map_or((entry, entry), |(from, to)| (from.trim(), to.trim()))
}

/// The files of a tree that a pattern names, with their paths in the tree; at least one.
pub(super) fn matching(tree: &Path, pattern: &str) -> Result<Vec<(String, PathBuf)>> {
    let (directory, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let place = tree.join(directory);
    let mut found = Vec::new();
    for item in fs::read_dir(&place).with_context(|| format!("{pattern}: list {}", place.display()))? {
        let path = item.with_context(|| format!("list {}", place.display()))?.path();
        let candidate = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if fits(name, &candidate) {
            found.push((format!("{directory}/{candidate}"), path));
        }
    }
    found.sort();
    if found.is_empty() {
        bail!("the package has no {pattern}");
    }
    Ok(found)
}

/// Whether a name fits a pattern in which `*` stands for any text.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name
            .strip_prefix(start)
            .is_some_and(|name| (0..=name.len()).any(|at| name.get(at..).is_some_and(|end| fits(rest, end)))),
    }
}
