//! Whether a file is a whole snapshot of etcd.
//!
//! A snapshot is the database, in pages of at least 512 bytes, and the SHA-256 digest of that behind it. A copy of the database's
//! file has no digest.
//!
//! Source: etcd's documentation, "Disaster recovery" (snapshots and their integrity hash).

use std::collections::VecDeque;

use sha2::{Digest as _, Sha256};

/// Bytes of the digest.
const DIGEST: usize = 32;
/// Bytes of the smallest page of the database.
const PAGE: u64 = 512;

/// Why it is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Nothing came.
    #[error("the snapshot is empty")]
    Empty,
    /// Its length is that of a database without a digest.
    #[error(
        "the snapshot of {0} bytes has no digest at its end: it is a copy of the database's file, or it was cut off; a copy is taken \
         with --recover-skip-hash-check"
    )]
    NoDigest(u64),
    /// Its length is that of nothing.
    #[error("the snapshot of {0} bytes was cut off or altered: its length is that of no snapshot")]
    Length(u64),
    /// It was altered.
    #[error("the snapshot was altered: its digest is not that of its {0} bytes")]
    Digest(u64),
}

/// Reads a snapshot part by part.
#[derive(Debug, Default)]
pub struct Verifier {
    hasher: Sha256,
    /// The last bytes: they may be the digest.
    tail: VecDeque<u8>,
    size: u64,
}

impl Verifier {
    /// Takes the next bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        self.size = self.size.saturating_add(bytes.len() as u64);
        let surplus = (self.tail.len() + bytes.len()).saturating_sub(DIGEST);
        let of_tail = surplus.min(self.tail.len());
        let old: Vec<u8> = self.tail.drain(..of_tail).collect();
        self.hasher.update(old);
        let (hashed, kept) = bytes.split_at(surplus - of_tail);
        self.hasher.update(hashed);
        self.tail.extend(kept);
    }

    /// Whether it was a whole snapshot; its bytes without the digest.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn finish(self) -> Result<u64, SnapshotError> {
        match self.size {
            0 => return Err(SnapshotError::Empty),
            size if size % PAGE == 0 => return Err(SnapshotError::NoDigest(size)),
            size if size % PAGE != DIGEST as u64 || size < PAGE => return Err(SnapshotError::Length(size)),
            _ => {}
        }
        let given: Vec<u8> = self.tail.into_iter().collect();
        if self.hasher.finalize().as_slice() != given {
            return Err(SnapshotError::Digest(self.size));
        }
        Ok(self.size - DIGEST as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(bytes: &[u8], part: usize) -> Result<u64, SnapshotError> {
        let mut verifier = Verifier::default();
        bytes.chunks(part).for_each(|part| verifier.take(part));
        verifier.finish()
    }

    #[test]
    fn a_snapshot_is_whole_in_parts_of_any_size() {
        let database: Vec<u8> = (0..2048_u32).map(|byte| byte.to_le_bytes()[0]).collect();
        let whole = [database.clone(), Sha256::digest(&database).to_vec()].concat();
        for part in [1, 7, 31, 32, 33, 512, 2048, 4096] {
            assert_eq!(verified(&whole, part), Ok(2048), "{part}");
        }
        for byte in [0, 100, 2047, 2048, 2079] {
            let mut altered = whole.clone();
            altered[byte] ^= 1;
            assert_eq!(verified(&altered, 33), Err(SnapshotError::Digest(2080)), "{byte}");
        }
        assert_eq!(verified(&database, 64), Err(SnapshotError::NoDigest(2048)));
        assert_eq!(verified(&whole[..2079], 64), Err(SnapshotError::Length(2079)));
        assert_eq!(verified(&whole[..32], 64), Err(SnapshotError::Length(32)));
        assert_eq!(verified(&[], 1), Err(SnapshotError::Empty));
    }
}
