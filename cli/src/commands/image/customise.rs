//! The flags that change a system before an image is made of it.

use super::configs;
use anyhow::{Result, anyhow};
use installer::custom::{self, Addition, Profile};
use installer::image::{Platform, Source};
use installer::kernel::Given;
use std::path::{Path, PathBuf};

/// What to do with a config that others complete.
const PART_ADVICE: &str = "A part of a config, which other sources complete, is not checked as a file: add it as \
    /usr/local/etc/billet/config.yaml (a file config.yaml with --add config.yaml:/usr/local/etc/billet)";

#[derive(Debug, clap::Args)]
pub(crate) struct Changes {
    /// What is changed, as a TOML file
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Where the image runs (talos.platform): metal, aws, azure, gcp, …
    #[arg(long, value_name = "NAME", value_parser = Platform::named)]
    platform: Option<Platform>,
    /// Add the files of a directory or tar file, or one file; DIRECTORY: below which path of the root
    #[arg(long, value_name = "PATH[:DIRECTORY]")]
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
    /// Add a directory of firmware, which goes to /usr/lib/firmware
    #[arg(long, value_name = "DIRECTORY")]
    firmware: Vec<PathBuf>,
    /// Let the image bring this machine config; everybody who has the image can read it
    #[arg(long, value_name = "FILE")]
    embedded_config_path: Option<PathBuf>,
    /// Let the image take configs that `image add-config` adds; this is the public half of the key, PEM
    #[arg(long, value_name = "FILE")]
    config_key: Option<PathBuf>,
    /// Add a system extension: a directory, a tar file or a container image in one
    #[arg(long, value_name = "PATH")]
    system_extension_image: Vec<PathBuf>,
    /// Start this kernel (a bzImage, or an Image for arm64) instead of the image's
    #[arg(long, value_name = "FILE")]
    kernel_path: Option<PathBuf>,
    /// Its modules: /lib/modules/RELEASE, or a directory with that in it
    #[arg(long, value_name = "DIRECTORY", requires = "kernel_path")]
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
            && self.firmware.is_empty()
    }

    /// The system with the changes, if there are any; its layers lie in `work`. What should be known is said.
    pub(super) fn apply(&self, source: Source, work: &Path) -> Result<Source> {
        let made = if self.is_empty() { source } else { self.changed(&source, work)? };
        for warning in &made.warnings {
            eprintln!("warning: {warning}");
        }
        Ok(made)
    }

    fn changed(&self, source: &Source, work: &Path) -> Result<Source> {
        let profile = match &self.profile {
            Some(path) => read(path)?,
            None => Profile::default(),
        };
        let words = self.remove.iter().flat_map(|words| words.split_whitespace());
        let flags = Profile {
            platform: self.platform,
            additions: self.add.iter().map(|text| addition(text)).collect::<Result<_>>()?,
            remove: words.map(str::to_owned).collect(),
            kernel_arguments: self.extra_kernel_arg.clone(),
            certificates: self.certificate.clone(),
            firmware: self.firmware.clone(),
            config: self.embedded_config_path.clone(),
            config_key: self.config_key.clone(),
            extensions: self.system_extension_image.clone(),
            kernel: self.kernel_path.clone().map(|path| Given {
                path,
                modules: self.kernel_modules.clone(),
                config: self.kernel_config.clone(),
            }),
        };
        let profile = profile.and(flags);
        if let Some(path) = &profile.config {
            let platform = profile.platform.unwrap_or_else(|| source.platform());
            configs::checked(path, platform).map_err(|error| anyhow!("{error:#}\n{PART_ADVICE}"))?;
        }
        Ok(custom::customise(source, &profile, work, &mut installer::silent)?)
    }
}

/// A profile; one that says nothing is told.
fn read(path: &Path) -> Result<Profile> {
    let profile = Profile::read(path)?;
    if profile.is_empty() {
        eprintln!("warning: {} changes nothing: it is empty, or all in it is a comment", path.display());
    }
    Ok(profile)
}

fn addition(text: &str) -> Result<Addition> {
    let (path, to) = match text.rsplit_once(':') {
        Some((path, to)) if to.starts_with('/') => (path, to),
        _ => (text, ""),
    };
    Ok(Addition::found(PathBuf::from(path), to.to_owned())?)
}
