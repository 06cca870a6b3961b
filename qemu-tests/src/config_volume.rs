//! The volume that brings a machine config into a node.
//!
//! Owns: an image with the label `metal-iso` and the file `config.yaml`.
//! Source: shared/spec/machine-facts.md, platform metal.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The label that machined looks for.
pub const LABEL: &str = "metal-iso";

/// The file on it.
pub const FILE: &str = "config.yaml";

/// Writes an ISO 9660 image with this config.
pub fn write_iso(image: &Path, config: &str) -> Result<PathBuf> {
    let tree = image.with_extension("tree");
    std::fs::create_dir_all(&tree).context("create the config volume's folder")?;
    std::fs::write(tree.join(FILE), config).context("write config.yaml")?;
    let output = Command::new("xorriso")
        .args(["-as", "mkisofs", "-quiet", "-r", "-V", LABEL, "-o"])
        .arg(image)
        .arg(&tree)
        .output()
        .context("run xorriso; install it with: apt-get install xorriso")?;
    ensure!(output.status.success(), "xorriso failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(image.to_path_buf())
}

/// Writes the image.
pub fn write(image: &Path, config: &str) -> Result<PathBuf> {
    write_iso(image, config)
}
