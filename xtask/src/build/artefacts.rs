//! What a build made: `target/billet/build.json`, read by `run`, `bench` and the tests.
//!
//! Paths are relative to the repository's root, so that a checkout can be moved.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::place;
use crate::target::Architecture;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Artefacts {
    pub(crate) version: String,
    pub(crate) kernel_release: String,
    pub(crate) vmlinuz: PathBuf,
    /// Everything that went into the image, as SPDX JSON; the layers carry their own parts of it.
    pub(crate) sbom: PathBuf,
    pub(crate) cmdline: String,
    pub(crate) init: PathBuf,
    pub(crate) machined: PathBuf,
    pub(crate) billetctl: PathBuf,
    /// GRUB's code for a disk's first sector, where there are machines without UEFI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grub_boot: Option<PathBuf>,
    /// GRUB's core image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grub_core: Option<PathBuf>,
    #[serde(flatten)]
    pub(crate) production: Image,
    /// The same with the agent of the tests; not where it was built for a look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) test: Option<Image>,
}

/// One image in the forms in which it boots.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Image {
    /// Modules, init and root manifest.
    pub(crate) initramfs: PathBuf,
    /// The same with the layers behind it.
    pub(crate) initramfs_full: PathBuf,
    pub(crate) manifest: PathBuf,
    pub(crate) layers: Vec<LayerFile>,
    pub(crate) uki: PathBuf,
    /// A raw disk: EFI with boot loader and UKI, ROOT-A.
    pub(crate) disk: PathBuf,
    /// What `upgrade --image` installs: an OCI image layout in a tar file.
    pub(crate) installer: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LayerFile {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) root_hash: String,
    pub(crate) data_bytes: u64,
    pub(crate) bytes: u64,
}

impl Artefacts {
    /// The command line of a machine that stays in its initramfs, although every config names a disk.
    pub(crate) fn memory_cmdline(&self) -> String {
        format!("{} billet.install=no", self.cmdline)
    }

    /// What the last build for these machines made.
    pub(crate) fn read(architecture: Architecture) -> Result<Self> {
        let name = architecture.name();
        Self::read_from(&place::artefacts_for(architecture))
            .with_context(|| format!("`cargo xtask build --arch {name}` makes images"))
    }

    /// What the last build made in that directory.
    pub(crate) fn read_from(directory: &Path) -> Result<Self> {
        let path = directory.join("build.json");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
    }

    pub(super) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self).context("serialise the list of artefacts")? + "\n")
    }
}

/// A path below the repository's root, without that root; one outside (CARGO_TARGET_DIR) as it is.
pub(super) fn relative(path: &Path) -> Result<PathBuf> {
    let root = place::repository();
    Ok(path.strip_prefix(&root).unwrap_or(path).to_owned())
}
