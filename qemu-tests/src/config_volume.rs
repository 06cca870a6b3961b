//! The volume that brings a machine config into a node.
//!
//! Owns: a FAT or ISO 9660 image with the label `metal-iso` and the file `config.yaml`.
//! Source: docs/users/kernel-parameters.md, platform metal.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use ondisk::fat;

/// The label that machined looks for.
pub const LABEL: &str = "metal-iso";

/// The file on it.
pub const FILE: &str = "config.yaml";

/// Room for the least number of clusters that makes a FAT a FAT32; nearly all of it is a hole.
const VOLUME_BYTES: u64 = 64 << 20;

/// Any number does; a fixed one keeps the image the same.
const VOLUME_ID: u32 = 0xb111_e700;

/// Writes a FAT image.
pub fn write(image: &Path, config: &str) -> Result<PathBuf> {
    let content = [fat::File { path: FILE, content: config.as_bytes() }];
    write_fat(image, LABEL, VOLUME_BYTES, &content)?;
    Ok(image.to_path_buf())
}

/// Writes a FAT image of so many bytes with this label and these files.
pub(crate) fn write_fat(image: &Path, label: &str, bytes: u64, files: &[fat::File<'_>]) -> Result<()> {
    let volume = fat::Volume { label, volume_id: VOLUME_ID, sector_bytes: 512, bytes };
    let what = || format!("write {}", image.display());
    let extents = fat::format(&volume, files).map_err(|error| anyhow!("{error:?}")).with_context(what)?;
    let file = File::create(image).with_context(what)?;
    file.set_len(bytes).with_context(what)?;
    for extent in extents {
        file.write_all_at(&extent.bytes, extent.offset).with_context(what)?;
    }
    Ok(())
}

/// Writes an ISO 9660 image, for a CD drive.
pub fn write_cd(image: &Path, config: &str) -> Result<PathBuf> {
    let tree = image.with_extension("tree");
    std::fs::create_dir_all(&tree).context("create the config volume's directory")?;
    std::fs::write(tree.join(FILE), config).context("write config.yaml")?;
    make_iso(LABEL, &tree, image)?;
    Ok(image.to_path_buf())
}

/// Makes an ISO 9660 image with Rock Ridge names of everything in a directory.
pub(crate) fn make_iso(label: &str, tree: &Path, image: &Path) -> Result<()> {
    let output = Command::new("xorriso")
        .args(["-as", "mkisofs", "-quiet", "-r", "-V", label, "-o"])
        .arg(image)
        .arg(tree)
        .output()
        .context("run xorriso; install it with: apt-get install xorriso")?;
    ensure!(output.status.success(), "xorriso failed: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(tree).with_context(|| format!("remove {}", tree.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_is_read_back_from_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let image = write(&dir.path().join("config.img"), "version: v1alpha1\n").unwrap();
        let bytes = std::fs::read(image).unwrap();
        let identity = fat::identify(&bytes).unwrap();
        assert_eq!(identity.label, LABEL);
        let mut reader = fat::Reader::open(bytes.as_slice()).unwrap();
        assert_eq!(reader.read(FILE, 4096).unwrap(), b"version: v1alpha1\n");
    }
}
