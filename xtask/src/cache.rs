//! The build cache: directories named by the hash of what they were made from.
//!
//! Owns: `$XDG_CACHE_HOME/billet` (default `~/.cache/billet`): `<kind>/<key>/` holds an entry's files and the
//! list of their checksums, `locks/` one lock file an entry, `tmp/` entries being made.
//! Order: lock, look, make in `tmp/`, write checksums, flush, rename, unlock. An entry that exists is complete.
//! Fails by: making an entry again when a file of it is missing, added or changed; a failed `make` leaves no entry.
//! Safe against: other runs at the same time (flock per entry), a kill or power cut at any point (rename last).

mod checksums;
mod key;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use rustix::fs::FlockOperation;

pub(crate) use checksums::file_digest;
pub(crate) use key::{Key, KeyBuilder};

use crate::step;

/// The list of an entry's files, inside the entry.
const CHECKSUMS: &str = ".checksums";

pub(crate) struct Cache {
    root: PathBuf,
    /// Entries that this run has checked or made.
    seen: Mutex<HashSet<PathBuf>>,
}

impl Cache {
    pub(crate) fn open(root: &Path) -> Result<Self> {
        for directory in ["locks", "tmp"] {
            let directory = root.join(directory);
            fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        }
        Ok(Self { root: root.to_owned(), seen: Mutex::default() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of the entry; `make` fills it (an empty directory) when there is no intact one.
    pub(crate) fn entry(
        &self,
        kind: &str,
        key: &Key,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let entry = self.root.join(kind).join(key.short());
        if self.is_seen(&entry) {
            return Ok(entry);
        }
        let _lock = self.lock(&format!("{kind}-{}", key.short()))?;
        if !self.intact(&entry)? {
            self.make(kind, &entry, make)
                .with_context(|| format!("make cache entry {kind}/{}", key.short()))?;
        }
        self.remember(&entry);
        Ok(entry)
    }

    /// Is there an entry that this run need not make? Its content is checked when it is used.
    pub(crate) fn has(&self, kind: &str, key: &Key) -> bool {
        self.root.join(kind).join(key.short()).join(CHECKSUMS).exists()
    }

    /// Waits for and takes the lock of that name; it ends with the returned file.
    pub(crate) fn lock(&self, name: &str) -> Result<File> {
        let path = self.root.join("locks").join(name);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("open lock {}", path.display()))?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            step::note(&format!("waiting for another run that holds {name}"));
            rustix::fs::flock(&file, FlockOperation::LockExclusive)
                .with_context(|| format!("lock {}", path.display()))?;
        }
        Ok(file)
    }

    /// A directory for work that ends up in no entry; it goes away with the returned value.
    pub(crate) fn scratch(&self) -> Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix("work-")
            .tempdir_in(self.root.join("tmp"))
            .with_context(|| format!("create a directory in {}", self.root.join("tmp").display()))
    }

    fn intact(&self, entry: &Path) -> Result<bool> {
        if !entry.exists() {
            return Ok(false);
        }
        match checksums::verify(entry) {
            Ok(()) => Ok(true),
            Err(fault) => {
                step::warn(&format!("cache entry {} is damaged and made again: {fault:#}", entry.display()));
                fs::remove_dir_all(entry).with_context(|| format!("remove {}", entry.display()))?;
                Ok(false)
            }
        }
    }

    fn make(&self, kind: &str, entry: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let scratch = self.scratch()?;
        let directory = scratch.path().join("entry");
        fs::create_dir(&directory).with_context(|| format!("create {}", directory.display()))?;
        make(&directory)?;
        checksums::write(&directory)?;
        flush(&directory)?;
        let parent = self.root.join(kind);
        fs::create_dir_all(&parent).with_context(|| format!("create {}", parent.display()))?;
        fs::rename(&directory, entry).with_context(|| format!("rename to {}", entry.display()))?;
        File::open(&parent)
            .and_then(|directory| directory.sync_all())
            .with_context(|| format!("flush {}", parent.display()))
    }

    fn is_seen(&self, entry: &Path) -> bool {
        self.seen.lock().is_ok_and(|seen| seen.contains(entry))
    }

    fn remember(&self, entry: &Path) {
        if let Ok(mut seen) = self.seen.lock() {
            seen.insert(entry.to_owned());
        }
    }
}

/// One flush of the file system costs less than one of each of a kernel's thousands of modules.
fn flush(directory: &Path) -> Result<()> {
    let file = File::open(directory).with_context(|| format!("open {}", directory.display()))?;
    rustix::fs::syncfs(&file).with_context(|| format!("flush {}", directory.display()))
}
