//! Where tests keep their files.
//!
//! Owns: the repository root, `target/qemu-tests`, and the directory of one VM in it.
//! Does not: hold large images; those lie in a temporary directory that is gone with the VM.

use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context, Result};

/// The repository root: the directory above this crate.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_path_buf(), Path::to_path_buf)
}

/// `target/qemu-tests`, or the directory that `BILLET_TEST_DIR` names.
pub fn work_dir() -> PathBuf {
    std::env::var_os("BILLET_TEST_DIR")
        .map_or_else(|| repository().join("target").join("qemu-tests"), PathBuf::from)
}

/// Creates and returns the directory that keeps the logs of one VM.
pub fn vm_dir(name: &str) -> Result<PathBuf> {
    let dir = work_dir().join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    Ok(dir)
}

/// First part of the names of directories that end with the program that made them.
const TEMPORARY: &str = "billet-test-";

/// A directory for large files and sockets, gone when dropped, and at the latest when the next test program starts.
///
/// In the system's temporary directory, because a socket's path has room for 107 bytes only.
pub fn temporary_dir() -> Result<tempfile::TempDir> {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| sweep(&std::env::temp_dir()));
    let prefix = format!("{TEMPORARY}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir().context("create a temporary directory")
}

/// Removes what killed programs left, and programs that kept a VM until their end.
fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY)) else { continue };
        let owner = rest.split('-').next().unwrap_or_default();
        let is_pid = !owner.is_empty() && owner.bytes().all(|byte| byte.is_ascii_digit());
        if is_pid && !Path::new("/proc").join(owner).exists() {
            // Another program may be sweeping too.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_ended_programs_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let ours = format!("{TEMPORARY}{}-a", std::process::id());
        // Process ids stay below 2^22.
        let ended = format!("{TEMPORARY}99999999-b");
        for name in [ours.as_str(), ended.as_str(), "billet-test-x", "other"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        sweep(dir.path());
        assert!(!dir.path().join(&ended).exists());
        for name in [ours.as_str(), "billet-test-x", "other"] {
            assert!(dir.path().join(name).exists(), "{name} was swept");
        }
    }
}
