//! Files that `gen` makes.
//!
//! Owns: that none is lost: an existing file is replaced with `--force` only.

use crate::{output, private_file};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

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
            private_file::write(path, text)?;
            Ok(output::print(format!("created {}\n", path.display()))?)
        }
    }
}
