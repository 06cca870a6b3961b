//! SHA-256 of content that comes in pieces.

use ondisk::Digest;
use sha2::Digest as _;

/// A digest in the making.
#[derive(Debug, Clone, Default)]
pub struct Hasher {
    hash: sha2::Sha256,
    bytes: u64,
}

impl Hasher {
    /// Adds a piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
    }

    /// How much was added.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The digest of all pieces.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.hash.finalize().into())
    }
}

/// Reads `sha256:` and 64 digits.
pub(crate) fn parse(text: &str) -> Option<Digest> {
    Digest::from_hex(text.strip_prefix("sha256:")?)
}
