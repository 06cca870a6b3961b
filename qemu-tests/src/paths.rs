//! Where tests keep their files.
//!
//! Owns: the repository root, `target/qemu-tests`, and the folder of one VM in it.
//! Does not: hold large images; those lie in a temporary folder that is gone with the VM.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The repository root: the folder above this crate.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_path_buf(), Path::to_path_buf)
}

/// `target/qemu-tests`, or the folder that `BILLET_TEST_DIR` names.
pub fn work_dir() -> PathBuf {
    std::env::var_os("BILLET_TEST_DIR")
        .map_or_else(|| repository().join("target").join("qemu-tests"), PathBuf::from)
}

/// Creates and returns the folder that keeps the logs of one VM.
pub fn vm_dir(name: &str) -> Result<PathBuf> {
    let dir = work_dir().join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    Ok(dir)
}
