//! The index of all modules of a kernel: depmod's text files, made once for each kernel.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use ondisk::kmod::Index;

use super::Kernel;
use super::install::SHIPPED;
use crate::cache::{Cache, KeyBuilder};
use crate::command::Cmd;
use crate::step::step;

/// The texts that an [`Index`] is a view of.
pub(crate) struct ModuleIndex {
    dep: String,
    alias: String,
    softdep: String,
    builtin: String,
}

impl ModuleIndex {
    pub(crate) fn of(cache: &Cache, kernel: &Kernel) -> Result<Self> {
        let key = KeyBuilder::new("module index 1").part(&kernel.identity).finish();
        let entry = cache.entry("module-index", &key, |directory| {
            step("index the kernel's modules", || depmod_all(kernel, directory))
        })?;
        Self::read(&entry, &kernel.modules)
    }

    /// `index` is where depmod wrote, `release` the directory that came with the kernel.
    fn read(index: &Path, release: &Path) -> Result<Self> {
        let text = |directory: &Path, name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        Ok(Self {
            dep: text(index, "modules.dep")?,
            alias: text(index, "modules.alias")?,
            softdep: text(index, "modules.softdep")?,
            builtin: text(release, "modules.builtin")?,
        })
    }

    pub(crate) fn get(&self) -> Index<'_> {
        Index { dep: &self.dep, alias: &self.alias, softdep: &self.softdep, builtin: &self.builtin }
    }
}

/// Runs depmod over a directory that links to the kernel's own: what a package was unpacked to stays as it is.
fn depmod_all(kernel: &Kernel, into: &Path) -> Result<()> {
    let base = tempfile::tempdir().context("create a temporary directory")?;
    let release = base.path().join("usr/lib/modules").join(&kernel.release);
    fs::create_dir_all(&release).with_context(|| format!("create {}", release.display()))?;
    for name in SHIPPED.iter().chain(&["kernel"]) {
        symlink(kernel.modules.join(name), release.join(name)).with_context(|| format!("link {name}"))?;
    }
    depmod(base.path(), &kernel.release)?;
    for name in ["modules.dep", "modules.alias", "modules.softdep"] {
        fs::copy(release.join(name), into.join(name)).with_context(|| format!("copy {name}"))?;
    }
    Ok(())
}

/// Runs depmod on a tree that keeps its modules in `usr/lib/modules`.
pub(super) fn depmod(base: &Path, release: &str) -> Result<()> {
    // Whether it looks in /lib/modules or in /usr/lib/modules depends on who built it.
    symlink("usr/lib", base.join("lib")).with_context(|| format!("link {}/lib", base.display()))?;
    Cmd::new("depmod").arg("-b").arg(base).arg(release).run()
}
