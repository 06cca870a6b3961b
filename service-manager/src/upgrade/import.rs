//! An installer image that came over the API instead of from a registry: one file on EPHEMERAL until it is installed.
//!
//! Owns: the file, the name by which an upgrade asks for it, one import at a time.
//! Does not: install; keep more than the last one, or it over an upgrade.
//! Order: the bytes go to a file of another name; what they are is looked at; then it gets its own name. What a
//! restart leaves of a half import is removed by the next one.
//! Fails by: [`Failure`], with the file removed.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oci::archive::Archive;
use oci::document::{Config, Manifest};
use oci::{Reference, installer};
use ondisk::Architecture;

use super::Failure;
use super::image::blocking;
use crate::node::Node;

/// Where imports lie.
const FOLDER: &str = "/var/lib/billet/import";
/// The registry in their names: nobody answers for it (RFC 2606 §2).
const REGISTRY: &str = "imported.invalid";
const REPOSITORY: &str = "installer";
/// While it comes.
const PART: &str = "part";
/// Larger than any installer image.
const MOST_BYTES: u64 = 4 << 30;

/// An image that is coming in. Dropped before its end, it is removed.
pub(crate) struct Import {
    node: Arc<Node>,
    file: Option<File>,
    bytes: u64,
    _one_at_a_time: tokio::sync::OwnedMutexGuard<()>,
}

impl Import {
    /// Makes room for one: an earlier import goes.
    pub(crate) async fn begin(node: &Arc<Node>) -> Result<Self, Failure> {
        let lock = node.upgrades.importing.clone();
        let guard =
            lock.try_lock_owned().map_err(|_| Failure::Refused("another import is under way".into()))?;
        let folder = node.path(FOLDER);
        let file = blocking(move || {
            let failed = |error: std::io::Error| Failure::Outside(format!("make room in {FOLDER}: {error}"));
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
            fs::create_dir_all(&folder).map_err(failed)?;
            File::create_new(folder.join(PART)).map_err(failed)
        });
        Ok(Self { node: node.clone(), file: Some(file.await?), bytes: 0, _one_at_a_time: guard })
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
            file.write_all(&bytes).map_err(|e| Failure::Outside(format!("write {FOLDER}/{PART}: {e}")))?;
            Ok(file)
        };
        self.file = Some(blocking(write).await?);
        Ok(())
    }

    /// Looks at what came; returns the name by which it is installed.
    pub(crate) async fn finish(mut self) -> Result<String, Failure> {
        // Closed before it is read.
        drop(self.file.take());
        let (folder, running) = (self.node.path(FOLDER), self.node.boot.version.clone());
        let name = blocking(move || {
            let archive = Archive::open(&folder.join(PART))?;
            let (manifest, config) = archive.image(Architecture::OWN.name())?;
            let facts =
                installer::facts("the imported archive", &config, &running).map_err(oci::Error::from)?;
            let digest = manifest.config.digest;
            let kept = folder.join(digest.to_string());
            fs::rename(folder.join(PART), &kept)
                .map_err(|e| Failure::Outside(format!("rename {}: {e}", kept.display())))?;
            Ok(format!("{REGISTRY}/{REPOSITORY}:{}@sha256:{digest}", tag(&facts.version)))
        })
        .await?;
        self.node.journal.say(&format!("imported {name}, {} bytes", self.bytes));
        Ok(name)
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // There is none after a whole import; nothing can be done where removing fails, and the next import tries again.
        let _ = fs::remove_file(self.node.path(FOLDER).join(PART));
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
    let path = path(root, reference).filter(|path| path.exists());
    let path = path.ok_or_else(|| {
        Failure::Refused(format!(
            "{reference} is not on this node any more: give the archive to `upgrade` again"
        ))
    })?;
    let archive = Archive::open(&path)?;
    let (manifest, config) = archive.image(Architecture::OWN.name())?;
    Ok((archive, manifest, config))
}

fn path(root: &Path, reference: &Reference) -> Option<PathBuf> {
    let digest = reference.digest?;
    Some(root.join(FOLDER.trim_start_matches('/')).join(digest.to_string()))
}

/// Removes an import that is installed, or cannot be. Blocks.
pub(super) fn forget(root: &Path, name: &str) {
    let reference = name.parse::<Reference>().ok().filter(is_import);
    if let Some(path) = reference.and_then(|reference| path(root, &reference)) {
        // A file that stays goes with the next import.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use oci::archive::{self, Bytes, Content, NewImage};
    use oci::installer::{Facts, labels};

    use super::*;

    /// An installer image that says it is of this version.
    pub(crate) fn archive(version: &str) -> Vec<u8> {
        with_labels(labels(&Facts { version: version.into(), minimum_from: "0.0.1".into() }))
    }

    fn with_labels(labels: std::collections::BTreeMap<String, String>) -> Vec<u8> {
        let content = Content { path: "billet/root.json".into(), bytes: Bytes::Here(b"{}".to_vec()) };
        let architecture = Architecture::OWN.name().to_owned();
        let image = NewImage { architecture, tag: "1".into(), labels, layers: vec![vec![content]] };
        let mut bytes = Vec::new();
        archive::write(&mut bytes, &image).unwrap();
        bytes
    }

    async fn import(node: &Arc<Node>, bytes: &[u8]) -> Result<String, Failure> {
        let mut import = Import::begin(node).await?;
        for chunk in bytes.chunks(1000) {
            import.push(chunk.to_vec()).await?;
        }
        import.finish().await
    }

    #[tokio::test]
    async fn an_archive_gets_a_name_and_goes_when_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let name = import(&node, &archive("0.2.0+x")).await.unwrap();
        assert!(name.starts_with("imported.invalid/installer:0.2.0_x@sha256:"), "{name}");
        let reference: Reference = name.parse().unwrap();
        assert!(is_import(&reference));
        let (_, _, config) = open(&node.root, &reference).unwrap();
        assert!(config.config.labels.contains_key(installer::FORMAT_LABEL));
        forget(&node.root, "r.example/i:1");
        assert!(open(&node.root, &reference).is_ok());
        forget(&node.root, &name);
        let error = open(&node.root, &reference).err().unwrap().to_string();
        assert!(error.contains("is not on this node any more"), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_installer_image_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let error = import(&node, &with_labels(Default::default())).await.unwrap_err();
        assert!(error.to_string().contains("the imported archive is no installer image"), "{error}");
        let error = import(&node, b"no archive").await.unwrap_err();
        assert!(!error.to_string().is_empty());
        let held = Import::begin(&node).await.unwrap();
        let busy = Import::begin(&node).await.err().map(|error| error.to_string());
        assert_eq!(busy.as_deref(), Some("another import is under way"));
        drop(held);
        let left = fs::read_dir(node.path(FOLDER)).unwrap().count();
        assert_eq!(left, 0);
    }
}
