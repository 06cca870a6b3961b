//! The volume that brings a machine config into a node.
//!
//! Owns: a FAT image with the label `metal-iso` and the file `config.yaml`.
//! Source: shared/spec/machine-facts.md, platform metal.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use ondisk::fat;

/// The label that machined looks for.
pub const LABEL: &str = "metal-iso";

/// The file on it.
pub const FILE: &str = "config.yaml";

/// Room for the least number of clusters that makes a FAT a FAT32; nearly all of it is a hole.
const VOLUME_BYTES: u64 = 64 << 20;

/// Any number does; a fixed one keeps the image the same.
const VOLUME_ID: u32 = 0xb111_e700;

/// Writes the image.
pub fn write(image: &Path, config: &str) -> Result<PathBuf> {
    let volume = fat::Volume { label: LABEL, volume_id: VOLUME_ID, sector_bytes: 512, bytes: VOLUME_BYTES };
    let content = [fat::File { path: FILE, content: config.as_bytes() }];
    let extents =
        fat::format(&volume, &content).map_err(|error| anyhow!("lay out the config volume: {error:?}"))?;
    let what = || format!("write {}", image.display());
    let file = File::create(image).with_context(what)?;
    file.set_len(VOLUME_BYTES).with_context(what)?;
    for extent in extents {
        file.write_all_at(&extent.bytes, extent.offset).with_context(what)?;
    }
    Ok(image.to_path_buf())
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
