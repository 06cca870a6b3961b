//! Debian's kernel: the meta package names the current one.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Kernel, Provider, release_directory};
use crate::inputs::Inputs;

/// Image packages are `linux-image-<uname -r>`; the one without a release, `linux-image-amd64`, depends on the current one.
const PREFIX: &str = "linux-image-";

pub(crate) struct Debian;

impl Provider for Debian {
    fn kernel(&self, inputs: &mut Inputs<'_>) -> Result<Kernel> {
        let architecture = inputs.architecture().name();
        let name = format!("{PREFIX}{architecture}");
        let meta = inputs.resolve(&[&name])?;
        let named = meta.iter().flat_map(|package| &package.depends);
        let image = named
            .into_iter()
            .find(|one| one.starts_with(PREFIX) && one.ends_with(architecture))
            .with_context(|| format!("{name} depends on no kernel image"))?
            .clone();
        let packages = inputs.resolve(&[&image])?;
        let directories = inputs.unpack(&packages)?;
        let tree = directories.get(&image).with_context(|| format!("{image} was not unpacked"))?;
        let release = image.trim_start_matches(PREFIX).to_owned();
        Ok(Kernel {
            vmlinuz: file(tree, "vmlinuz", &release)?,
            config: file(tree, "config", &release)?,
            modules: release_directory(tree, &release),
            identity: packages.iter().map(|package| package.sha256.as_str()).collect(),
            directories: vec![tree.clone()],
            packages,
            release,
        })
    }
}

fn file(tree: &Path, name: &str, release: &str) -> Result<std::path::PathBuf> {
    let path = tree.join(format!("boot/{name}-{release}"));
    path.is_file()
        .then(|| path.clone())
        .with_context(|| format!("the kernel package has no {}", path.display()))
}
