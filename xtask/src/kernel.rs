//! Kernels: where one comes from, whether it will do, and which of its modules go where.
//!
//! Owns: the form in which a provider hands over a kernel.
//! Does not: know how a kernel is made; that is the provider's part. Debian's is in every build; the one from source and
//! the user's own take the place of its layer by `installer::custom`, which billetctl uses too.

mod debian;
mod index;
mod install;
mod source;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use installer::kernel::{ModuleSet, Required};

pub(crate) use debian::Debian;
pub(crate) use index::ModuleIndex;
pub(crate) use install::{InstalledModules, install};
pub(crate) use source::source;

use crate::cache::Cache;
use crate::inputs::{Inputs, Package};
use crate::place;
use crate::target::Architecture;

/// A kernel as a provider hands it over.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    /// `uname -r`.
    pub(crate) release: String,
    pub(crate) vmlinuz: PathBuf,
    /// The `.config` that it was built with.
    pub(crate) config: PathBuf,
    /// The directory of the release with its modules, compressed or not.
    pub(crate) modules: PathBuf,
    /// Names exactly this kernel in cache keys.
    pub(crate) identity: String,
    /// For the bill of materials.
    pub(crate) packages: Vec<Package>,
    /// Directories of the unpacked packages, where their copyright files lie.
    pub(crate) directories: Vec<PathBuf>,
}

/// A source of kernels.
pub(crate) trait Provider {
    fn kernel(&self, inputs: &mut Inputs<'_>) -> Result<Kernel>;
}

/// Checks a kernel against the options that a node needs; all that is missing is named at once.
pub(crate) fn check(kernel: &Kernel, architecture: Architecture) -> Result<()> {
    let config = std::fs::read_to_string(&kernel.config)
        .with_context(|| format!("read {}", kernel.config.display()))?;
    Ok(Required::list(architecture)?.check(&kernel.release, &config)?)
}

/// Reads a list of modules.
pub(crate) fn module_set(path: &Path, architecture: Architecture) -> Result<ModuleSet> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Ok(ModuleSet::parse(&path.display().to_string(), &text, architecture)?)
}

/// The module sets of an image.
pub(crate) struct ModuleSets {
    pub(crate) initramfs: ModuleSet,
    /// The initramfs's, and what reaches a root on the network.
    pub(crate) network: ModuleSet,
    /// Includes both, so that the layer is whole.
    pub(crate) layer: ModuleSet,
}

impl ModuleSets {
    pub(crate) fn read(profile: &str, architecture: Architecture) -> Result<Self> {
        let root = place::repository();
        let module_set = |path: PathBuf| module_set(&path, architecture);
        let initramfs = module_set(root.join(format!("initramfs/modules-{profile}.toml")))?;
        let mut network = module_set(root.join("initramfs/modules-network.toml"))?;
        network.add(&initramfs);
        let mut layer = module_set(root.join("kernel-config/modules.toml"))?;
        layer.add(&network);
        Ok(Self { initramfs, network, layer })
    }
}

/// Modules of a set with all they need, unpacked and indexed: a cache entry.
pub(crate) fn modules(cache: &Cache, kernel: &Kernel, set: &ModuleSet) -> Result<InstalledModules> {
    let index = ModuleIndex::of(cache, kernel)?;
    let resolved = set.resolve(&index.get());
    if !resolved.unknown.is_empty() {
        bail!("kernel {} has no such modules: {}", kernel.release, resolved.unknown.join(" "));
    }
    let paths = resolved.paths.into_iter().map(str::to_owned).collect();
    install(cache, kernel, &index, &paths)
}

/// Replaces nothing but the ends of a module's file name: `a.ko.xz` is `a.ko`.
fn plain_name(path: &str) -> &str {
    path.strip_suffix(".xz").or_else(|| path.strip_suffix(".zst")).unwrap_or(path)
}

/// `lib/modules/<release>` of a tree, wherever the tree keeps it.
fn release_directory(tree: &Path, release: &str) -> PathBuf {
    let merged = tree.join("usr/lib/modules").join(release);
    if merged.is_dir() { merged } else { tree.join("lib/modules").join(release) }
}
