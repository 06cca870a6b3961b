//! Shared libraries of an image: found by following what each file needs, as the dynamic linker will.
//!
//! Order: every ELF file of the tree, then every library added for it, until nothing is missing.
//! Fails by: naming the library, the file that needs it, and what to add.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use installer::tree::{Node, Tree};

use super::elf;
use super::paths::{add_file, resolve};

/// Adds the libraries that files of the tree need, out of `directories` (unpacked packages), to the directory `to`.
pub(super) fn add(files: &mut Tree, directories: &[PathBuf], to: &str) -> Result<()> {
    let mut waiting = needs(files)?;
    while let Some((library, user)) = waiting.pop_first() {
        let path = format!("{to}/{library}");
        if files.get(&path).is_some() {
            continue;
        }
        let from = find(&library, directories, to).with_context(|| {
            format!("{library}, needed by /{user}: add its package to the list of files in xtask/image")
        })?;
        add_file(files, &path, &from)?;
        waiting.extend(needs_of(&from)?.into_iter().map(|name| (name, path.clone())));
    }
    Ok(())
}

/// Ok when everything that a file of the tree needs lies where the linker looks for it.
pub(super) fn check(files: &Tree, libraries: &str) -> Result<()> {
    for (path, entry) in files.iter() {
        let Some(found) = inspect(&entry.node).with_context(|| format!("/{path}"))? else { continue };
        if let Some(library) =
            found.needed.iter().find(|name| resolve(files, &format!("{libraries}/{name}")).is_none())
        {
            bail!("/{path} needs {library}, which the image lacks");
        }
        if let Some(name) = found.interpreter.filter(|name| resolve(files, name).is_none()) {
            bail!("/{path} is started by {name}, which the image lacks");
        }
        if let Some(directories) = found.search_path {
            bail!("/{path} looks for libraries in {directories}, a path of the machine that built it");
        }
    }
    Ok(())
}

fn needs(files: &Tree) -> Result<BTreeMap<String, String>> {
    let mut needs = BTreeMap::new();
    for (path, entry) in files.iter() {
        let found = inspect(&entry.node).with_context(|| format!("/{path}"))?.unwrap_or_default();
        needs.extend(found.needed.into_iter().map(|name| (name, path.to_owned())));
    }
    Ok(needs)
}

fn needs_of(from: &Path) -> Result<Vec<String>> {
    let bytes = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    let found = elf::parse(&bytes).with_context(|| format!("parse {}", from.display()))?;
    Ok(found.with_context(|| format!("{} is no ELF file", from.display()))?.needed)
}

fn inspect(node: &Node) -> Result<Option<elf::Dynamic>> {
    match node {
        Node::File(from) => elf::parse(&fs::read(from).with_context(|| format!("read {}", from.display()))?),
        Node::Bytes(bytes) => elf::parse(bytes),
        _ => Ok(None),
    }
}

fn find(library: &str, directories: &[PathBuf], to: &str) -> Option<PathBuf> {
    let places = [to, to.trim_start_matches("usr/"), "usr/lib", "lib"];
    let mut candidates =
        directories.iter().flat_map(|directory| places.map(|place| directory.join(place).join(library)));
    candidates.find(|path| path.is_file())
}
