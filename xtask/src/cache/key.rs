//! The name of a cache entry: a hash over everything that its content depends on.

use std::path::Path;

use anyhow::Result;
use sha2::{Digest, Sha256};

use super::checksums::{file_digest, hex};

/// Bytes of the hash that make the directory name: 128 bits.
const SHORT_DIGITS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    pub(crate) fn short(&self) -> &str {
        self.0.get(..SHORT_DIGITS).unwrap_or(&self.0)
    }

    /// A key that is a hash already.
    pub(crate) fn from_sha256(hex: &str) -> Self {
        Self(hex.to_owned())
    }
}

/// Collects the parts of a key. Each part is stored with its length, so no two lists of parts look alike.
pub(crate) struct KeyBuilder(Sha256);

impl KeyBuilder {
    /// `recipe` names the step and its revision: change it when the same inputs shall give other content.
    pub(crate) fn new(recipe: &str) -> Self {
        Self(Sha256::new()).part(recipe)
    }

    pub(crate) fn part(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.0.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// The content of a file; its name and times do not count.
    pub(crate) fn file(self, path: &Path) -> Result<Self> {
        let digest = file_digest(path)?;
        Ok(self.part(digest))
    }

    pub(crate) fn finish(self) -> Key {
        Key(hex(&self.0.finalize()))
    }
}
