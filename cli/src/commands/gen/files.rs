//! Files that hold secrets.
//!
//! Owns: that they are private (0600), whole (written beside and renamed), and never lost: an existing file is
//! replaced with `--force` only.

use crate::output;
use anyhow::{Context as _, Result, bail};
use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Where a text goes.
pub(super) enum Target {
    /// The standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

/// Refuses files that exist.
pub(super) fn check_free<'a>(paths: impl IntoIterator<Item = &'a Path>, force: bool) -> Result<()> {
    match paths.into_iter().find(|p| !force && p.exists()) {
        Some(path) => bail!("file {:?} already exists, use --force to overwrite", path.display().to_string()),
        None => Ok(()),
    }
}

/// Writes one text and says so.
pub(super) fn put(target: &Target, text: &str) -> Result<()> {
    match target {
        Target::Stdout => Ok(output::print(text)?),
        Target::File(path) => {
            write(path, text)?;
            Ok(output::print(format!("created {}\n", path.display()))?)
        }
    }
}

/// Writes a private file, whole or not at all.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
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
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path));
    written.with_context(|| format!("write {}", path.display()))
}
