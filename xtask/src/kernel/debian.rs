//! Debian's kernel: the meta package names the current one.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Kernel, Provider, release_folder};
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
        let folders = inputs.unpack(&packages)?;
        let tree = folders.get(&image).with_context(|| format!("{image} was not unpacked"))?;
        let release = image.trim_start_matches(PREFIX).to_owned();
        Ok(Kernel {
            vmlinuz: file(tree, "vmlinuz", &release)?,
            config: file(tree, "config", &release)?,
            modules: release_folder(tree, &release),
            identity: packages.iter().map(|package| package.sha256.as_str()).collect(),
            folders: vec![tree.clone()],
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
