//! Kernels of the user's: whether one will do, and which of its modules go where.
//!
//! Owns: a kernel as files ([`Given`]), the sets of modules, the options that every kernel must have, the initramfs
//! segment and the kernel layer that follow from a kernel.
//! Does not: compile kernels; say what of the image it replaces ([`crate::custom`] does).
//! Order: the image tells its release; the modules must be of it; the configuration has the options, or a warning says that
//! none was found.
//! Fails by: [`Error::Kernel`] and [`Error::KernelLacks`], naming kernel and reason.
//! Source: kernel-config/required.toml, initramfs/modules-default.toml.

mod config;
mod machine;
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
pub(crate) use machine::check_machines;
pub(crate) use modules::{Files, Modules, given, index_files, initramfs, is_module, joined, network};
pub use required::Required;
pub use sets::{ModuleSet, Resolved};

/// A kernel as files of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// A bzImage, or an Image for arm64.
    pub path: PathBuf,
    /// Its modules: the directory of the release, or one that holds it as `lib/modules/RELEASE`.
    pub modules: Option<PathBuf>,
    /// What it was built with; looked for beside the kernel, the modules and in the kernel where it is not named.
    pub config: Option<PathBuf>,
}

/// A kernel that was read, for these machines and with modules of its own release.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) image: Vec<u8>,
    pub(crate) release: String,
    pub(crate) modules: Option<Modules>,
    /// What it was built with, where that was found.
    config: Option<String>,
}

impl Kernel {
    /// Refuses a kernel that lacks what a node needs, as modules too if it has some; `Some`: a warning, where nobody can tell.
    pub(crate) fn check(
        &self,
        has_modules: bool,
        architecture: Architecture,
    ) -> Result<Option<String>, Error> {
        let release = &self.release;
        let advice = format!(
            "Give its .config, to have that checked (beside it as config-{release}, --kernel-config, or in a profile [kernel] config)"
        );
        let check = KernelCheck { release, has_modules, advice: &advice };
        check.against(self.config.as_deref(), architecture)
    }
}

/// The same for a kernel that somebody copied into an image; `beside`: what lies there in the place of its configuration.
pub(crate) fn check_copied(
    image: &[u8],
    beside: &[Vec<u8>],
    has_modules: bool,
    architecture: Architecture,
) -> Result<Option<String>, Error> {
    let release = ondisk::kernel::release(image).unwrap_or_default();
    let advice = format!("COPY its .config to /boot/config-{release} of the stage, to have that checked");
    let check = KernelCheck { release, has_modules, advice: &advice };
    check.against(config::among(beside, image).as_deref(), architecture)
}

/// A kernel whose options are looked at.
struct KernelCheck<'a> {
    release: &'a str,
    has_modules: bool,
    /// What to do where nobody knows them.
    advice: &'a str,
}

impl KernelCheck<'_> {
    fn against(&self, config: Option<&str>, architecture: Architecture) -> Result<Option<String>, Error> {
        let Self { release, has_modules, advice } = self;
        let Some(config) = config else {
            return Ok(Some(if *has_modules {
                format!(
                    "kernel {release}: its configuration was not found, so nobody checked that it has what a node needs. {advice}"
                )
            } else {
                format!(
                    "kernel {release} has no modules, and its configuration was not found: it starts only if everything that a \
                     node needs is built in. {advice}, or its modules"
                )
            }));
        };
        let required = Required::list(architecture)?;
        let checked = if *has_modules {
            required.check(release, config)
        } else {
            required.check_without_modules(release, config)
        };
        checked.map(|()| None)
    }
}

impl Given {
    /// Reads it, for an image for these machines.
    pub(crate) fn read(&self, architecture: Architecture) -> Result<Kernel, Error> {
        let image = fs::read(&self.path).map_err(Error::read(&self.path))?;
        let release = kernel_image::check(&self.path.display().to_string(), &image, architecture)?.to_owned();
        let modules = self
            .modules
            .as_ref()
            .map(|directory| Modules::read(directory, Some(&release), architecture))
            .transpose()?;
        if let Some(modules) = modules.as_ref().filter(|modules| modules.release != release) {
            return Err(Error::KernelMismatch { kernel: release, modules: modules.release.clone() });
        }
        let place = self.modules.as_deref();
        let config = config::find(self.config.as_deref(), &self.path, place, &release, &image)?;
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
        tree.bytes(&format!("{}/{name}", system::DIRECTORY), 0o644, content)?;
    }
    Ok(tree)
}
