//! What the nodes of a cluster run: layers, init and root manifest from an installer image.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use cluster::spec::Image;
use installer::image::Source;
use ondisk::Architecture;

/// The installer image that a build leaves beside this program.
const BUILT: &str = "installer.oci.tar";
/// The layer with the kernel and its modules: nodes run on the kernel of this machine.
const KERNEL: &str = "kernel";

/// Unpacks an image to `directory`, which this makes; without a path the one beside this program.
pub(super) fn unpack(path: Option<&Path>, directory: &Path) -> Result<Image> {
    let path = path.map_or_else(beside_this_program, |path| Ok(path.to_owned()))?;
    let context = || format!("read the image {}", path.display());
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    let source = Source::open(&path, directory).with_context(context)?;
    let architecture = source.system.boot.architecture();
    if architecture != Architecture::OWN {
        bail!(
            "{} is for machines of architecture {}, and this one is {}: take the image for it",
            path.display(),
            architecture.name(),
            Architecture::OWN.name()
        );
    }
    let layers = source.system.manifest.layers.iter().filter(|layer| layer.name != KERNEL);
    let layers = layers.map(|layer| source.layers.join(layer.file_name())).collect();
    let [init, manifest] = ["init", "root.json"].map(|name| directory.join(name));
    let program = source.system.boot.init_program().with_context(context)?;
    write(&init, &program)?;
    write(&manifest, source.system.manifest.to_json().as_bytes())?;
    Ok(Image { layers, init, manifest })
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

fn beside_this_program() -> Result<PathBuf> {
    let path = env::current_exe().context("find this program")?.with_file_name(BUILT);
    if path.is_file() {
        return Ok(path);
    }
    bail!("{} is not there: name an installer image with --image", path.display())
}
