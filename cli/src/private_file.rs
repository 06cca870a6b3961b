//! Files that hold secrets: private (0600) and whole (written beside and renamed).

use anyhow::{Context as _, Result};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Writes a private file, whole or not at all.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let beside = Beside::of(path)?;
    let mut file = beside.file();
    file.write_all(text.as_bytes()).with_context(|| format!("write {}", path.display()))?;
    beside.keep()
}

/// A private file that is being written beside the one that it is to become; gone unless it was kept.
pub(crate) struct Beside {
    file: File,
    beside: PathBuf,
    path: PathBuf,
}

impl Beside {
    /// The directory is made where it is missing.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .with_context(|| format!("create {}", dir.display()))?;
        }
        let mut name = path.file_name().context("a file name is missing")?.to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let beside = path.with_file_name(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside);
        let file = file.with_context(|| format!("write {}", path.display()))?;
        Ok(Self { file, beside, path: path.to_owned() })
    }

    /// To write to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name.
    pub(crate) fn keep(self) -> Result<()> {
        let kept = self.file.sync_all().and_then(|()| fs::rename(&self.beside, &self.path));
        kept.with_context(|| format!("write {}", self.path.display()))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Kept, it is not there.
        let _ = fs::remove_file(&self.beside);
    }
}
