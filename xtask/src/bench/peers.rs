//! The systems that Billet is compared with: made of Debian's own packages, booting the same kernel.
//!
//! Owns: what is in them and when they count as ready. Both carry only the modules that their network card needs,
//! with their signatures, as Debian's own initramfs tools would put them there.
//! Does not: tune them, for or against Billet. docs/benchmarks.md says what was left out.

mod busybox;
mod systemd;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::initramfs;
use installer::tree::Tree;

use super::guest::Guest;
use crate::cache::Cache;
use crate::inputs::Inputs;
use crate::kernel::{self, InstalledModules, Kernel};
use crate::place;
use crate::programs::{self, Program};
use crate::target::Architecture;
use crate::toolchain::Toolchain;

/// Prints the finish line; see its source.
const PROBE: Program = Program { package: "test-agent", features: &[], binary: "bench-probe" };

/// What every peer's kernel is told; those that start our kernel get more, which costs them more.
const COMMAND_LINE: &str = "console=ttyS0 panic=10 printk.devkmsg=on";

/// What peers are made of.
pub(crate) struct Parts<'a> {
    cache: &'a Cache,
    kernel: &'a Kernel,
    modules: InstalledModules,
    probe: PathBuf,
    /// Where their initramfs are written.
    directory: PathBuf,
}

impl<'a> Parts<'a> {
    pub(crate) fn collect(cache: &'a Cache, kernel: &'a Kernel, directory: &Path) -> Result<Self> {
        let list = place::repository().join("xtask/src/bench/peers/modules.toml");
        let modules = kernel::modules(cache, kernel, &kernel::module_set(&list, Architecture::Amd64)?)?;
        Ok(Self {
            cache,
            kernel,
            modules,
            probe: programs::compile(&PROBE, &Toolchain::own())?,
            directory: directory.to_owned(),
        })
    }

    /// Debian with systemd, up to an open SSH port.
    pub(crate) fn systemd(&self, inputs: &mut Inputs<'_>, parameters: &str) -> Result<Guest> {
        let files = systemd::files(self, inputs)?;
        // Nothing was updated: the jobs of a first boot would be counted as those of every boot.
        let line = format!("{COMMAND_LINE} systemd.condition_needs_update=no {parameters}");
        self.guest("systemd", &files, line.trim_end(), "bench: 127.0.0.1:22 open")
    }

    /// A busybox script, up to an open HTTP port.
    pub(crate) fn busybox(&self, inputs: &mut Inputs<'_>, parameters: &str) -> Result<Guest> {
        let files = busybox::files(self, inputs)?;
        let line = format!("{COMMAND_LINE} {parameters}");
        self.guest("busybox", &files, line.trim_end(), "bench: 127.0.0.1:80 open")
    }

    /// One uncompressed segment: unpacking it costs little and comes before init.
    fn guest(&self, name: &str, files: &Tree, command_line: &str, ready: &'static str) -> Result<Guest> {
        let path = self.directory.join(format!("{name}.initramfs"));
        let segment = initramfs::segment(files).with_context(|| format!("initramfs of {name}"))?;
        initramfs::write(&path, &[&segment]).with_context(|| format!("initramfs of {name}"))?;
        Ok(Guest {
            name: name.to_owned(),
            kernel: self.kernel.vmlinuz.clone(),
            initramfs: path,
            command_line: command_line.to_owned(),
            drives: Vec::new(),
            ready,
        })
    }

    /// A module file of the set by its name.
    fn module(&self, name: &str) -> Result<PathBuf> {
        let text = read(&self.modules.directory.join("modules.dep"))?;
        let end = format!("/{name}.ko");
        let mut paths = text.lines().filter_map(|line| Some(line.split_once(':')?.0));
        let path = paths.find(|path| path.ends_with(&end)).with_context(|| format!("no module {name}"))?;
        Ok(self.modules.directory.join(path))
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
