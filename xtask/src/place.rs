//! Where things lie: the repository, its build directory, the cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::target::Architecture;

/// The directory of what is built; those for other machines and kernels are `billet-KIND`.
const NAME: &str = "billet";

/// The repository's root: the directory above xtask's own.
pub(crate) fn repository() -> PathBuf {
    // Cargo sets the variable for `cargo run`; the constant serves a binary that is started by hand.
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let own = if own.ends_with("xtask") { own } else { env!("CARGO_MANIFEST_DIR").into() };
    own.parent().map_or_else(|| own.clone(), Path::to_path_buf)
}

/// Cargo's target directory.
pub(crate) fn target() -> PathBuf {
    let root = repository();
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |directory| root.join(directory))
}

/// What `build` makes.
pub(crate) fn artefacts() -> PathBuf {
    target().join(NAME)
}

/// What `build` makes for these machines.
pub(crate) fn artefacts_for(architecture: Architecture) -> PathBuf {
    match architecture {
        Architecture::Amd64 => artefacts(),
        other => artefacts_beside(other.name()),
    }
}

/// What is built beside it, of this kind.
pub(crate) fn artefacts_beside(kind: &str) -> PathBuf {
    target().join(format!("{NAME}-{kind}"))
}

/// Everything that `build` has made, for whatever machines and with whatever kernel.
pub(crate) fn all_artefacts() -> Result<Vec<PathBuf>> {
    let target = target();
    if !target.exists() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for item in fs::read_dir(&target).with_context(|| format!("list {}", target.display()))? {
        let item = item.with_context(|| format!("list {}", target.display()))?;
        let name = item.file_name().into_string().unwrap_or_default();
        if name == NAME || name.strip_prefix(NAME).is_some_and(|rest| rest.starts_with('-')) {
            found.push(item.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Files and state of a VM that `run` started.
pub(crate) fn run_directory() -> PathBuf {
    target().join("run")
}

/// The cluster that `cluster` makes.
pub(crate) fn cluster_directory() -> PathBuf {
    target().join("cluster")
}

/// The cache that all checkouts of this user share.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(directory) => PathBuf::from(directory),
        None => {
            let home = std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?;
            PathBuf::from(home).join(".cache")
        }
    };
    Ok(base.join("billet"))
}
