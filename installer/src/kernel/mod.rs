//! Kernels of the user's: whether one will do, and which of its modules go where.
//!
//! Owns: a kernel as files ([`Given`]), the sets of modules, the options that every kernel must have, the initramfs
//! segment and the kernel layer that follow from a kernel.
//! Does not: compile kernels; say what of the image it replaces ([`crate::custom`] does).
//! Order: the image tells its release; the modules must be of it; the configuration, where one is found, has the options.
//! Fails by: [`Error::Kernel`] and [`Error::KernelLacks`], naming kernel and reason.
//! Source: kernel-config/required.toml, initramfs/modules-default.toml.

mod config;
mod modules;
mod required;
mod sets;

use std::fs;
use std::path::PathBuf;

use ondisk::Architecture;

use crate::Error;
use crate::kernel_image;
use crate::system::{self, BootParts};
use crate::tree::Tree;

pub use config::unpacked;
pub(crate) use modules::{Files, Modules, given, index_files, initramfs, is_module, made, network};
pub use required::Required;
pub use sets::{ModuleSet, Resolved};

/// A kernel as files of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// A bzImage, or an Image for arm64.
    pub path: PathBuf,
    /// Its modules: the folder of the release, or one that holds it as `lib/modules/RELEASE`.
    pub modules: Option<PathBuf>,
    /// What it was built with; looked for beside the kernel, the modules and in the kernel where it is not named.
    pub config: Option<PathBuf>,
}

/// A kernel that was read and has what a node needs, as far as that can be told.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) image: Vec<u8>,
    pub(crate) release: String,
    pub(crate) modules: Option<Modules>,
    /// What it was built with, where that was found.
    config: Option<String>,
}

impl Kernel {
    /// Refuses a kernel that needs modules and has none; `Some`: a warning, where nobody can tell.
    pub(crate) fn check_without_modules(&self, architecture: Architecture) -> Result<Option<String>, Error> {
        judge_without_modules(&self.release, self.config.as_deref(), architecture)
    }
}

/// The same for a kernel image that lay in an image.
pub(crate) fn check_without_modules(
    image: &[u8],
    architecture: Architecture,
) -> Result<Option<String>, Error> {
    let release = ondisk::kernel::release(image).unwrap_or_default();
    judge_without_modules(release, config::inside(image).as_deref(), architecture)
}

fn judge_without_modules(
    release: &str,
    config: Option<&str>,
    architecture: Architecture,
) -> Result<Option<String>, Error> {
    if let Some(config) = config {
        return Required::list(architecture)?.check_without_modules(release, config).map(|()| None);
    }
    Ok(Some(format!(
        "kernel {release} has no modules, and its configuration was not found: it starts only if everything that a node needs is \
         built in. Give its .config, to have that checked (--kernel-config; in a profile [kernel] config), or its modules"
    )))
}

impl Given {
    /// Reads it, for an image for these machines.
    pub(crate) fn read(&self, architecture: Architecture) -> Result<Kernel, Error> {
        let image = fs::read(&self.path).map_err(Error::read(&self.path))?;
        let release = kernel_image::check(&self.path.display().to_string(), &image, architecture)?.to_owned();
        let modules =
            self.modules.as_ref().map(|folder| Modules::read(folder, Some(&release))).transpose()?;
        if let Some(modules) = modules.as_ref().filter(|modules| modules.release != release) {
            return Err(Error::KernelMismatch { kernel: release, modules: modules.release.clone() });
        }
        let place = self.modules.as_deref();
        let config = config::find(self.config.as_deref(), &self.path, place, &release, &image)?;
        if let Some(config) = &config {
            Required::list(architecture)?.check(&release, config)?;
        }
        Ok(Kernel { image, release, modules, config })
    }
}

/// The tree of a kernel layer. `more`: boot parts that are not in `boot`.
pub(crate) fn layer(
    boot: &BootParts,
    more: &[(&str, Vec<u8>)],
    modules: Option<&Modules>,
) -> Result<Tree, Error> {
    let mut tree = Tree::new();
    if let Some(modules) = modules {
        for (path, entry) in &modules.files {
            tree.insert(&format!("usr/lib/modules/{}/{path}", modules.release), entry.clone())?;
        }
    }
    let parts =
        boot.of_kernel().into_iter().chain(more.iter().map(|(name, bytes)| (*name, bytes.as_slice())));
    // A kernel that is not there yet comes with the image that is made of this.
    for (name, content) in parts.filter(|(_, content)| !content.is_empty()) {
        tree.bytes(&format!("{}/{name}", system::FOLDER), 0o644, content)?;
    }
    Ok(tree)
}
