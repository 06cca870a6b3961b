//! What was built here and tested must be what anyone gets who builds it: the same bytes in another directory, with an
//! empty cache, under another umask.
//!
//! Order: copy the repository's current state, build it with a cache of its own for what is made (packages are
//! shared), compare every artefact with the one that lies here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::cache::file_digest;
use crate::command::Cmd;
use crate::place;
use crate::step::{note, step};

/// Directories of the cache that hold what was fetched; the rest is made, and made twice here.
const FETCHED: [&str; 2] = ["apt", "deb"];

/// Stricter than anyone's who builds.
const UMASK: &str = "077";

/// `kernel`: the arguments of `xtask build` that chose what was built here.
pub(super) fn run(kernel: &[OsString]) -> Result<()> {
    let work = tempfile::tempdir().context("create a temporary directory")?;
    let here = digests(&place::artefacts())?;
    let elsewhere = build_in(&work.path().join("a directory of another length"), kernel)?;
    ensure!(!elsewhere.is_empty(), "the build elsewhere made nothing");
    // What an earlier build left here is none of this one's.
    let (same, different): (Vec<&String>, Vec<&String>) =
        elsewhere.keys().partition(|name| here.get(*name) == elsewhere.get(*name));
    if !different.is_empty() {
        bail!("these artefacts are not what a build elsewhere gives: {different:?}");
    }
    note(&format!("{} artefacts are the same in a build elsewhere", same.len()));
    Ok(())
}

/// Digests of all artefacts of a build in a fresh checkout.
fn build_in(directory: &Path, kernel: &[OsString]) -> Result<BTreeMap<String, String>> {
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    let checkout = directory.join("checkout");
    copy_checkout(&checkout)?;
    share_fetched(&directory.join("cache/billet"))?;
    // A shell only for its umask: Rust has no safe call for it. Paths are arguments, not text of the script.
    let script = "umask \"$0\" && cd \"$1\" && shift && exec cargo xtask build --as-fetched \"$@\"";
    let build = Cmd::new("sh")
        .args(["-c", script, UMASK])
        .arg(&checkout)
        .args(kernel)
        .env("XDG_CACHE_HOME", directory.join("cache"))
        .env("CARGO_TARGET_DIR", checkout.join("target"));
    step(&format!("build elsewhere with umask {UMASK}"), || build.run())?;
    digests(&checkout.join("target/billet"))
}

/// The files that git knows or would add, as they are now.
fn copy_checkout(to: &Path) -> Result<()> {
    let root = place::repository();
    let list = Cmd::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .directory(&root)
        .read()?;
    for name in list.split('\0').filter(|name| !name.is_empty() && root.join(name).is_file()) {
        let target = to.join(name);
        let parent = target.parent().context("a file lies in a directory")?;
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        fs::copy(root.join(name), &target).with_context(|| format!("copy {name}"))?;
    }
    Ok(())
}

fn share_fetched(cache: &Path) -> Result<()> {
    fs::create_dir_all(cache).with_context(|| format!("create {}", cache.display()))?;
    for name in FETCHED {
        let from = place::cache()?.join(name);
        Cmd::new("cp").arg("-a").arg(&from).arg(cache.join(name)).run()?;
    }
    Ok(())
}

fn digests(directory: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(part) = waiting.pop() {
        let here = directory.join(&part);
        for item in fs::read_dir(&here).with_context(|| format!("list {}", here.display()))? {
            let item = item.with_context(|| format!("list {}", here.display()))?;
            let name = part.join(item.file_name());
            // Names with a dot are notes about this directory, with times.
            if item.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            if item.path().is_dir() {
                waiting.push(name);
            } else {
                found.insert(name.to_string_lossy().into_owned(), file_digest(&item.path())?);
            }
        }
    }
    Ok(found)
}
