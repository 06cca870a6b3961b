//! The directory of artefacts: written only where something changed, one build at a time.
//!
//! Owns: for an artefact that takes time, the key of its inputs in `.keys/<name>`.
//! Does not: link into the cache; whoever breaks an artefact breaks that copy alone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ondisk::manifest::Layer;
use rustix::fs::FlockOperation;

use crate::cache::{Key, KeyBuilder};
use crate::step::note;

pub(super) struct Output {
    directory: PathBuf,
    /// A second build in the same checkout waits.
    _lock: File,
}

impl Output {
    pub(super) fn open(directory: &Path) -> Result<Self> {
        for part in [directory.join("layers"), directory.join(".keys")] {
            fs::create_dir_all(&part).with_context(|| format!("create {}", part.display()))?;
        }
        let path = directory.join(".lock");
        let lock = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            note("waiting for another build in this checkout");
            rustix::fs::flock(&lock, FlockOperation::LockExclusive)
                .with_context(|| format!("lock {}", path.display()))?;
        }
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where the layer files of all images lie.
    pub(super) fn layers(&self) -> PathBuf {
        self.directory.join("layers")
    }

    /// Makes an artefact unless it is there and was made from the same inputs.
    pub(super) fn make(
        &self,
        name: &str,
        key: &Key,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.path(name);
        let note = self.directory.join(".keys").join(name.replace('/', "-"));
        // A file that was touched since is not what its key says.
        let state = |path: &Path| stamp(path).map(|stamp| format!("{} {stamp}", key.short()));
        if path.is_file() && fs::read_to_string(&note).ok() == state(&path) {
            return Ok(path);
        }
        // First the note, then the artefact: a run that ends in between leaves no note that lies.
        if note.exists() {
            fs::remove_file(&note).with_context(|| format!("remove {}", note.display()))?;
        }
        make(&path).with_context(|| format!("make {name}"))?;
        let state = state(&path).with_context(|| format!("{name} was not made"))?;
        fs::write(&note, state).with_context(|| format!("write {}", note.display()))?;
        Ok(path)
    }

    /// Copies a file, without its time and owner.
    pub(super) fn copy(&self, name: &str, from: &Path) -> Result<PathBuf> {
        let key = KeyBuilder::new("copy 1").file(from)?.finish();
        self.make(name, &key, |to| {
            fs::copy(from, to).map(drop).with_context(|| format!("copy {}", from.display()))
        })
    }

    pub(super) fn text(&self, name: &str, text: &str) -> Result<PathBuf> {
        self.bytes(name, text.as_bytes())
    }

    pub(super) fn bytes(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.path(name);
        if fs::read(&path).is_ok_and(|present| present == bytes) {
            return Ok(path);
        }
        // Renamed into place: a reader sees the old content or the new one.
        let fresh = self.directory.join(format!(".{name}.new"));
        fs::write(&fresh, bytes).with_context(|| format!("write {}", fresh.display()))?;
        fs::rename(&fresh, &path).with_context(|| format!("rename to {}", path.display()))?;
        Ok(path)
    }

    /// Removes layer files that belong to none of these.
    pub(super) fn forget_other_layers(&self, layers: &[Layer]) -> Result<()> {
        let directory = self.layers();
        for item in fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
            let path = item.with_context(|| format!("list {}", directory.display()))?.path();
            let known = layers.iter().any(|layer| path.ends_with(layer.file_name()));
            if !known {
                fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// Length and time of change: enough to see that somebody wrote to an artefact.
fn stamp(path: &Path) -> Option<String> {
    let status = fs::metadata(path).ok()?;
    let changed = status.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(format!("{} {}", status.len(), changed.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        KeyBuilder::new("test").part(text).finish()
    }

    #[test]
    fn an_artefact_is_made_when_inputs_or_file_changed() {
        let directory = tempfile::tempdir().unwrap();
        let output = Output::open(directory.path()).unwrap();
        let mut made = 0;
        let mut make = |text: &str| {
            output
                .make("disk", &key(text), |path| {
                    made += 1;
                    Ok(fs::write(path, text)?)
                })
                .unwrap()
        };
        let path = make("one");
        make("one");
        make("two");
        fs::write(&path, "scribbled on").unwrap();
        make("two");
        assert_eq!((made, fs::read_to_string(path).unwrap().as_str()), (3, "two"));
    }

    #[test]
    fn an_artefact_that_failed_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let output = Output::open(directory.path()).unwrap();
        let half = output.make("disk", &key("a"), |path| {
            fs::write(path, "half")?;
            anyhow::bail!("no space left")
        });
        assert!(half.is_err());
        let path = output.make("disk", &key("a"), |path| Ok(fs::write(path, "whole")?)).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "whole");
    }
}
