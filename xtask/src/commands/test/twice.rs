//! Two builds in different folders, under different umasks, must give the same bytes.
//!
//! Order: clone the repository's current state twice, build each with a cache of its own for what is made (packages
//! are shared), compare every artefact.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::cache::file_digest;
use crate::command::Cmd;
use crate::place;
use crate::step::{note, step};

/// Folders of the cache that hold what was fetched; the rest is made, and made twice here.
const FETCHED: [&str; 2] = ["apt", "deb"];

pub(super) fn run() -> Result<()> {
    let work = tempfile::tempdir().context("create a temporary folder")?;
    let one = build_in(&work.path().join("one"), "022")?;
    let other = build_in(&work.path().join("a folder of another length"), "077")?;
    ensure!(!one.is_empty(), "the builds made nothing");
    let names = one.keys().chain(other.keys());
    let mut different: Vec<&String> = names.filter(|name| one.get(*name) != other.get(*name)).collect();
    different.dedup();
    if !different.is_empty() {
        bail!("these artefacts differ between two builds: {different:?}");
    }
    note(&format!("{} artefacts are the same in both builds", one.len()));
    Ok(())
}

/// Digests of all artefacts of a build in a fresh checkout.
fn build_in(folder: &Path, umask: &str) -> Result<BTreeMap<String, String>> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let checkout = folder.join("checkout");
    let cache = folder.join("cache/billet");
    copy_checkout(&checkout)?;
    share_fetched(&cache)?;
    // A shell only for its umask: Rust has no safe call for it. Paths are arguments, not text of the script.
    let script = "umask \"$0\" && cd \"$1\" && exec cargo xtask build";
    let build = Cmd::new("sh")
        .args(["-c", script, umask])
        .arg(&checkout)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("CARGO_TARGET_DIR", checkout.join("target"));
    step(&format!("build with umask {umask}"), || build.run())?;
    digests(&checkout.join("target/billet"))
}

/// The files that git knows or would add, as they are now.
fn copy_checkout(to: &Path) -> Result<()> {
    let root = place::repository();
    let list = Cmd::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .folder(&root)
        .read()?;
    for name in list.split('\0').filter(|name| !name.is_empty() && root.join(name).is_file()) {
        let target = to.join(name);
        let parent = target.parent().context("a file lies in a folder")?;
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

fn digests(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(part) = waiting.pop() {
        let here = folder.join(&part);
        for item in fs::read_dir(&here).with_context(|| format!("list {}", here.display()))? {
            let item = item.with_context(|| format!("list {}", here.display()))?;
            let name = part.join(item.file_name());
            // Names with a dot are notes about this folder, with times.
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
