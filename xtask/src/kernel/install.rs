//! A chosen set of modules as files: unpacked, signatures kept, with an index of its own.
//!
//! Order: unpack each `.ko`, copy the lists of built-in modules, run depmod, keep the four files that are read on a
//! node, with their lines sorted, since depmod's order follows the directories it read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};
use init::unpack::{self, Packing};

use super::index::{ModuleIndex, depmod};
use super::{Kernel, plain_name};
use crate::cache::{Cache, KeyBuilder};
use crate::step::step;

/// Lists that come with a kernel and that depmod wants beside the modules.
pub(super) const SHIPPED: [&str; 3] = ["modules.builtin", "modules.builtin.modinfo", "modules.order"];

/// Largest module unpacked, in bytes: a limit for broken files, far above any real module.
const MOST_MODULE_BYTES: usize = 256 << 20;

/// What a node reads.
const KEPT: [&str; 4] = ["modules.alias", "modules.builtin", "modules.dep", "modules.softdep"];

/// A set of modules in the cache.
pub(crate) struct InstalledModules {
    /// Contains `kernel/` and the index files: the content of `/lib/modules/<release>`.
    pub(crate) directory: PathBuf,
}

pub(crate) fn install(
    cache: &Cache,
    kernel: &Kernel,
    index: &ModuleIndex,
    paths: &BTreeSet<String>,
) -> Result<InstalledModules> {
    let mut key = KeyBuilder::new("modules 1").part(&kernel.identity).part(&kernel.release);
    for path in paths {
        key = key.part(path);
    }
    // depmod's text is an input too: another version of it may find other dependencies.
    let key = key.part(index.get().dep).finish();
    let name = format!("unpack {} modules", paths.len());
    let entry = cache.entry("modules", &key, |entry| step(&name, || fill(kernel, paths, entry)))?;
    Ok(InstalledModules { directory: entry.join("release") })
}

fn fill(kernel: &Kernel, paths: &BTreeSet<String>, entry: &Path) -> Result<()> {
    let base = tempfile::tempdir_in(entry).context("create a temporary directory")?;
    let release = base.path().join("usr/lib/modules").join(&kernel.release);
    for path in paths {
        let to = release.join(plain_name(path));
        unpack(&kernel.modules.join(path), &to).with_context(|| format!("unpack module {path}"))?;
    }
    for name in SHIPPED {
        let from = kernel.modules.join(name);
        fs::copy(&from, release.join(name)).with_context(|| format!("copy {}", from.display()))?;
    }
    depmod(base.path(), &kernel.release)?;
    keep(&release, &entry.join("release"))
}

/// Stored as init would unpack it, by the same code.
fn unpack(from: &Path, to: &Path) -> Result<()> {
    let stored = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    let bytes = match Packing::of(&from.to_string_lossy()) {
        Some(packing) => unpack::unpack(packing, &stored, MOST_MODULE_BYTES).map_err(Error::msg)?,
        None => stored,
    };
    let parent = to.parent().context("a module lies in a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    fs::write(to, bytes).with_context(|| format!("write {}", to.display()))
}

/// Moves modules and the kept index files; what else depmod wrote is for modprobe only.
fn keep(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("create {}", to.display()))?;
    fs::rename(from.join("kernel"), to.join("kernel")).context("move the modules")?;
    for name in KEPT {
        let text = fs::read_to_string(from.join(name)).with_context(|| format!("read {name}"))?;
        fs::write(to.join(name), sorted(&text)).with_context(|| format!("write {name}"))?;
    }
    Ok(())
}

/// Lines in order, comments left out.
fn sorted(text: &str) -> String {
    let lines: BTreeSet<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.into_iter().fold(String::new(), |text, line| text + line + "\n")
}
