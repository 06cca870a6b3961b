//! An installer image that came over the API instead of from a registry: one file on EPHEMERAL until it is installed.
//!
//! Owns: the file, the name by which an upgrade asks for it, one import at a time.
//! Does not: install; keep more than the last one, or it over an upgrade.
//! Order: the bytes go to a file of another name; what they are is looked at; then it gets its own name. What a
//! restart leaves of a half import is removed by the next one.
//! Fails by: [`Failure`], with the file removed.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use oci::archive::Archive;
use oci::document::{Config, Manifest};
use oci::{Reference, installer};
use ondisk::Architecture;

use super::failure::{Failure, blocking};
use super::handle::Upgrades;
use runtime::beneath;

/// Where imports lie.
const DIRECTORY: &str = "/var/lib/billet/import";
/// The registry in their names: no server answers for it (RFC 2606 §2).
const REGISTRY: &str = "imported.invalid";
const REPOSITORY: &str = "installer";
/// While it comes.
const PART: &str = "part";
/// Larger than any installer image.
const MOST_BYTES: u64 = 4 << 30;

/// An image that is coming in. Dropped before its end, it is removed.
pub(crate) struct Import {
    upgrades: Arc<Upgrades>,
    file: Option<File>,
    bytes: u64,
    _one_at_a_time: tokio::sync::OwnedMutexGuard<()>,
}

impl Import {
    /// Makes room for one: an earlier import goes.
    pub(crate) async fn begin(upgrades: &Arc<Upgrades>) -> Result<Self, Failure> {
        let lock = upgrades.importing.clone();
        let guard =
            lock.try_lock_owned().map_err(|_| Failure::Refused("another import is under way".into()))?;
        let root = upgrades.runtime.root.clone();
        let file = blocking(move || {
            let failed =
                |error: std::io::Error| Failure::Outside(format!("make room in {DIRECTORY}: {error}"));
            let (parent, name) = beneath::make_parent(&root, Path::new(DIRECTORY)).map_err(failed)?;
            parent.remove_all(&name).map_err(failed)?;
            directory(&root)
                .and_then(|directory| directory.create_new(Path::new(PART), 0o600))
                .map_err(failed)
        });
        Ok(Self { upgrades: upgrades.clone(), file: Some(file.await?), bytes: 0, _one_at_a_time: guard })
    }

    /// Adds what came.
    pub(crate) async fn push(&mut self, bytes: Vec<u8>) -> Result<(), Failure> {
        self.bytes += bytes.len() as u64;
        if self.bytes > MOST_BYTES {
            return Err(Failure::Request(format!(
                "import: longer than {MOST_BYTES} bytes is no installer image"
            )));
        }
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let write = move || {
            file.write_all(&bytes).map_err(|e| Failure::Outside(format!("write {DIRECTORY}/{PART}: {e}")))?;
            Ok(file)
        };
        self.file = Some(blocking(write).await?);
        Ok(())
    }

    /// Looks at what came; returns the name by which it is installed.
    pub(crate) async fn finish(mut self) -> Result<String, Failure> {
        let file = self.file.take();
        let (root, running) =
            (self.upgrades.runtime.root.clone(), self.upgrades.runtime.boot.version.clone());
        let name = blocking(move || {
            let file = file.ok_or_else(|| Failure::Outside("import: it was not begun".into()))?;
            // What was written, whatever has its name by now.
            let archive = Archive::open(&beneath::fd_path(file.as_fd()))?;
            let (manifest, config) = archive.image(Architecture::OWN.name())?;
            let facts = installer::facts("the imported archive", &config, &running)?;
            let digest = manifest.config.digest;
            directory(&root)
                .and_then(|directory| directory.rename(Path::new(PART), Path::new(&digest.to_string())))
                .map_err(|e| Failure::Outside(format!("rename {DIRECTORY}/{PART}: {e}")))?;
            Ok(format!("{REGISTRY}/{REPOSITORY}:{}@sha256:{digest}", tag(&facts.version)))
        })
        .await?;
        self.upgrades.runtime.journal.say(&format!("imported {name}, {} bytes", self.bytes));
        Ok(name)
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // There is none after a whole import; nothing can be done where removing fails, and the next import tries again.
        let _ =
            directory(&self.upgrades.runtime.root).and_then(|directory| directory.remove(Path::new(PART)));
    }
}

/// What a tag may hold of a version.
fn tag(version: &str) -> String {
    version.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// Whether this name is that of an import.
pub(crate) fn is_import(reference: &Reference) -> bool {
    reference.registry == REGISTRY && reference.repository == REPOSITORY
}

/// Opens an import. Blocks.
pub(super) fn open(root: &Path, reference: &Reference) -> Result<(Archive, Manifest, Config), Failure> {
    let read = |error| Failure::Outside(format!("open {reference} in {DIRECTORY}: {error}"));
    let file = match (directory(root), reference.digest) {
        (Ok(directory), Some(digest)) => directory.file(Path::new(&digest.to_string())).map_err(read)?,
        (Err(error), _) if error.kind() != std::io::ErrorKind::NotFound => return Err(read(error)),
        _ => None,
    };
    let file = file.ok_or_else(|| {
        Failure::Refused(format!(
            "{reference} is not on this node any more: give the archive to `upgrade` again"
        ))
    })?;
    let archive = Archive::open(&beneath::fd_path(file.as_fd()))?;
    let (manifest, config) = archive.image(Architecture::OWN.name())?;
    if Some(manifest.config.digest) != reference.digest {
        let text = format!(
            "{reference}: another image lies under its name in {DIRECTORY}: give the archive to `upgrade` again"
        );
        return Err(Failure::Refused(text));
    }
    Ok((archive, manifest, config))
}

fn directory(root: &Path) -> std::io::Result<beneath::Directory> {
    beneath::make_directory(root, Path::new(DIRECTORY), 0o700)
}

/// Removes an import that is installed, or cannot be. Blocks.
pub(super) fn forget(root: &Path, name: &str) {
    let reference = name.parse::<Reference>().ok().filter(is_import);
    if let Some(digest) = reference.and_then(|reference| reference.digest) {
        // A file that stays goes with the next import.
        let _ = directory(root).and_then(|directory| directory.remove(Path::new(&digest.to_string())));
    }
}

#[cfg(test)]
pub(crate) mod tests;
