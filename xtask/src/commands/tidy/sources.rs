//! The text files of the repository, with paths relative to its root.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Directories that are made, not written.
const SKIPPED: [&str; 3] = [".git", "target", "testdata"];

pub(super) struct SourceFile {
    pub(super) path: String,
    pub(super) text: String,
}

#[derive(Default)]
pub(super) struct Sources(Vec<SourceFile>);

impl Sources {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut sources = Self::default();
        sources.walk(root, root)?;
        sources.0.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(sources)
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| SourceFile { path: (*path).into(), text: (*text).into() };
        Self(files.iter().map(file).collect())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &SourceFile> {
        self.0.iter()
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.0.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// Manifests of crates, each with its directory.
    pub(super) fn manifests(&self) -> impl Iterator<Item = (&str, &SourceFile)> {
        self.0.iter().filter_map(|file| Some((file.path.strip_suffix("/Cargo.toml")?, file)))
    }

    fn walk(&mut self, root: &Path, directory: &Path) -> Result<()> {
        for item in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
            let path = item.with_context(|| format!("list {}", directory.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_symlink() || SKIPPED.contains(&name.as_ref()) {
                continue;
            }
            if path.is_dir() {
                self.walk(root, &path)?;
            } else if let Ok(text) =
                String::from_utf8(fs::read(&path).with_context(|| path.display().to_string())?)
            {
                let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                self.0.push(SourceFile { path, text });
            }
        }
        Ok(())
    }
}
