//! The flags that change a system before an image is made of it.

use anyhow::Result;
use installer::custom::{self, Addition, From, Profile};
use installer::image::{Platform, Source};
use installer::kernel::Given;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Changes {
    /// What is changed, as a TOML file
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Where the image runs (talos.platform): metal, aws, azure, gcp, …
    #[arg(long, value_name = "NAME", value_parser = Platform::named)]
    platform: Option<Platform>,
    /// Add the files of a folder or tar file; FOLDER: below which path of the root
    #[arg(long, value_name = "PATH[:FOLDER]")]
    add: Vec<String>,
    /// Remove paths of the root, parted by spaces
    #[arg(long, value_name = "PATHS")]
    remove: Vec<String>,
    /// Add a kernel argument; `-name` takes one of the image away
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    extra_kernel_arg: Vec<String>,
    /// Trust an authority besides the image's
    #[arg(long, value_name = "FILE")]
    certificate: Vec<PathBuf>,
    /// Let the image bring this machine config; everybody who has the image can read it
    #[arg(long, value_name = "FILE")]
    embedded_config_path: Option<PathBuf>,
    /// Let the image take configs that `image add-config` adds; this is the public half of the key, PEM
    #[arg(long, value_name = "FILE")]
    config_key: Option<PathBuf>,
    /// Add a system extension: a folder, a tar file or a container image in one
    #[arg(long, value_name = "PATH")]
    system_extension_image: Vec<PathBuf>,
    /// Start this kernel (a bzImage, or an Image for arm64) instead of the image's
    #[arg(long, value_name = "FILE")]
    kernel_path: Option<PathBuf>,
    /// Its modules: /lib/modules/RELEASE, or a folder with that in it
    #[arg(long, value_name = "FOLDER", requires = "kernel_path")]
    kernel_modules: Option<PathBuf>,
    /// Its configuration, where it lies neither beside it nor in it
    #[arg(long, value_name = "FILE", requires = "kernel_path")]
    kernel_config: Option<PathBuf>,
}

impl Changes {
    /// Whether nothing is changed.
    pub(super) fn is_empty(&self) -> bool {
        self.profile.is_none()
            && self.platform.is_none()
            && self.kernel_path.is_none()
            && self.system_extension_image.is_empty()
            && self.embedded_config_path.is_none()
            && self.config_key.is_none()
            && [&self.add, &self.remove, &self.extra_kernel_arg].iter().all(|list| list.is_empty())
            && self.certificate.is_empty()
    }

    /// The system with the changes; its layers lie in `work`.
    pub(super) fn apply(&self, source: Source, work: &Path) -> Result<Source> {
        let profile = match &self.profile {
            Some(path) => Profile::read(path)?,
            None => Profile::default(),
        };
        let words = self.remove.iter().flat_map(|words| words.split_whitespace());
        let flags = Profile {
            platform: self.platform,
            additions: self.add.iter().map(|text| addition(text)).collect(),
            remove: words.map(str::to_owned).collect(),
            kernel_arguments: self.extra_kernel_arg.clone(),
            certificates: self.certificate.clone(),
            firmware: Vec::new(),
            config: self.embedded_config_path.clone(),
            config_key: self.config_key.clone(),
            extensions: self.system_extension_image.clone(),
            kernel: self.kernel_path.clone().map(|path| Given {
                path,
                modules: self.kernel_modules.clone(),
                config: self.kernel_config.clone(),
            }),
        };
        Ok(custom::customise(&source, &profile.and(flags), work, &mut installer::silent)?)
    }
}

/// A folder is one, everything else is a tar file.
fn addition(text: &str) -> Addition {
    let (path, to) = match text.rsplit_once(':') {
        Some((path, to)) if to.starts_with('/') => (path, to),
        _ => (text, ""),
    };
    let path = PathBuf::from(path);
    let from = if path.is_dir() { From::Folder(path) } else { From::Tar(path) };
    Addition { from, to: to.to_owned() }
}
