//! What `cargo xtask build` made: `target/billet/build.json`.
//!
//! Owns: reading that file and turning its paths into absolute ones.
//! Does not: build; tests say which command does.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::paths;

/// The environment variable that names another build.json; paths in it are still those below the repository.
pub const BUILD_VARIABLE: &str = "BILLET_BUILD";

/// The whole file; unknown fields belong to others.
#[derive(Debug, Clone, Deserialize)]
pub struct Build {
    /// Version of the operating system.
    pub version: String,
    /// `uname -r` of the kernel.
    pub kernel_release: String,
    /// The bzImage.
    pub vmlinuz: PathBuf,
    /// init and modules, without layers.
    pub initramfs: PathBuf,
    /// Default command line.
    pub cmdline: String,
    /// PID 1; builds of earlier versions do not say.
    #[serde(default)]
    pub init: PathBuf,
    /// The client.
    pub billetctl: PathBuf,
    /// GRUB's code for a disk's first sector; builds of earlier versions have none.
    #[serde(default)]
    pub grub_boot: PathBuf,
    /// GRUB's core image, likewise.
    #[serde(default)]
    pub grub_core: PathBuf,
    /// The image that carries the fault injector.
    pub test: Image,
}

/// One image in its transports.
#[derive(Debug, Clone, Deserialize)]
pub struct Image {
    /// init and modules with this image's manifest, without layers; the production one serves unless named.
    #[serde(default)]
    pub initramfs: Option<PathBuf>,
    /// The same with the layers behind it.
    pub initramfs_full: PathBuf,
    /// The root manifest.
    pub manifest: PathBuf,
    /// The layers, lowest first.
    pub layers: Vec<LayerFile>,
    /// A raw disk: EFI with systemd-boot and the UKI, ROOT-A.
    pub disk: PathBuf,
    /// The UKI alone.
    #[serde(default)]
    pub uki: Option<PathBuf>,
    /// The installer image, an OCI layout in a tar file; builds of earlier versions have none.
    #[serde(default)]
    pub installer: PathBuf,
}

/// One layer file.
#[derive(Debug, Clone, Deserialize)]
pub struct LayerFile {
    /// Name in the manifest.
    pub name: String,
    /// squashfs and hash tree.
    pub file: PathBuf,
}

/// The build, read once.
///
/// # Panics
/// Without a build, with the command that makes one.
pub fn build() -> &'static Build {
    static BUILD: OnceLock<Build> = OnceLock::new();
    BUILD.get_or_init(|| match read(&paths::repository()) {
        Ok(build) => build,
        Err(error) => {
            panic!("no image to test: {error:#}\nrun `cargo xtask build`, or `cargo xtask test` for both")
        }
    })
}

/// The build for machines with 64-bit ARM processors, which `cargo xtask build --arch arm64` makes.
pub fn arm64() -> Result<Build> {
    beside("arm64")
}

/// The build with the kernel that was compiled from source, which `cargo xtask test --long` makes.
pub fn hardened() -> Result<Build> {
    beside("hardened")
}

fn beside(kind: &str) -> Result<Build> {
    let root = paths::repository();
    read_from(&root.join(format!("target/billet-{kind}/build.json")), &root)
}

pub(crate) fn read(root: &Path) -> Result<Build> {
    let path =
        std::env::var_os(BUILD_VARIABLE).map_or_else(|| root.join("target/billet/build.json"), PathBuf::from);
    read_from(&path, root)
}

fn read_from(path: &Path, root: &Path) -> Result<Build> {
    let bytes = std::fs::read(path)
        .with_context(|| format!("read {}; `cargo xtask build` makes it", path.display()))?;
    let mut build: Build =
        serde_json::from_slice(&bytes).with_context(|| format!("parse {}", path.display()))?;
    let Build { vmlinuz, initramfs, init, billetctl, grub_boot, grub_core, test, .. } = &mut build;
    let paths = [
        vmlinuz,
        initramfs,
        init,
        billetctl,
        grub_boot,
        grub_core,
        &mut test.initramfs_full,
        &mut test.manifest,
        &mut test.disk,
        &mut test.installer,
    ];
    let layers = test.layers.iter_mut().map(|layer| &mut layer.file);
    for path in paths.into_iter().chain(&mut test.initramfs).chain(&mut test.uki).chain(layers) {
        *path = root.join(&path);
    }
    Ok(build)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute_and_unknown_fields_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("target/billet");
        std::fs::create_dir_all(&directory).unwrap();
        let image =
            r#"{"initramfs_full":"f","manifest":"m","disk":"d","layers":[{"name":"base","file":"l"}]}"#;
        let json = format!(
            r#"{{"version":"1","kernel_release":"6","vmlinuz":"v","initramfs":"i","cmdline":"c","sbom":"s",
               "billetctl":"b","test":{image}}}"#
        );
        std::fs::write(directory.join("build.json"), json).unwrap();
        let build = read(dir.path()).unwrap();
        assert_eq!(build.vmlinuz, dir.path().join("v"));
        assert_eq!(build.test.layers[0].file, dir.path().join("l"));
        assert_eq!(build.test.initramfs, None);
    }
}
