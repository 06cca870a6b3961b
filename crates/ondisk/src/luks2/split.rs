//! The anti-forensic split: a key spread over so many bytes that losing any of them loses it.
//!
//! Owns: split and merge. A piece is as long as the key; each is mixed into the next by a hash.
//! Source: specification §5; C. Fruhwirth, "New Methods in Hard Disk Encryption", §5.2.

use sha2::{Digest, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

use super::{RandomBytes, Secret};

/// A hash by the name that headers use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "sha256" => Some(Self::Sha256),
            "sha384" => Some(Self::Sha384),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }
}

/// The key out of all its pieces. `None` where `pieces` is not a whole number of keys.
pub(super) fn merge(pieces: &[u8], key_bytes: usize, hash: Hash) -> Option<Secret> {
    if key_bytes == 0 || pieces.is_empty() || !pieces.len().is_multiple_of(key_bytes) {
        return None;
    }
    let mut key = Zeroizing::new(alloc::vec![0; key_bytes]);
    let (mixed, last) = pieces.split_at(pieces.len() - key_bytes);
    for piece in mixed.chunks_exact(key_bytes) {
        xor(&mut key, piece);
        diffuse(&mut key, hash);
    }
    xor(&mut key, last);
    Some(key)
}

/// Fills `pieces` with random bytes so that merging gives the key. `None` as above.
pub(super) fn split(key: &[u8], pieces: &mut [u8], hash: Hash, random: RandomBytes<'_>) -> Option<()> {
    if key.is_empty() || pieces.is_empty() || !pieces.len().is_multiple_of(key.len()) {
        return None;
    }
    let (mixed, last) = pieces.split_at_mut(pieces.len() - key.len());
    let mut sum = Zeroizing::new(alloc::vec![0; key.len()]);
    random(mixed);
    for piece in mixed.chunks_exact(key.len()) {
        xor(&mut sum, piece);
        diffuse(&mut sum, hash);
    }
    last.copy_from_slice(key);
    xor(last, &sum);
    Some(())
}

fn xor(into: &mut [u8], other: &[u8]) {
    into.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}

/// Replaces each part as long as the hash by the hash of its number and itself; a short last part by as much of its.
fn diffuse(block: &mut [u8], hash: Hash) {
    match hash {
        Hash::Sha256 => diffuse_by::<Sha256>(block),
        Hash::Sha384 => diffuse_by::<Sha384>(block),
        Hash::Sha512 => diffuse_by::<Sha512>(block),
    }
}

fn diffuse_by<H: Digest>(block: &mut [u8]) {
    for (number, part) in (0_u32..).zip(block.chunks_mut(<H as Digest>::output_size())) {
        let mut hash = H::new();
        hash.update(number.to_be_bytes());
        hash.update(&*part);
        let length = part.len();
        part.copy_from_slice(hash.finalize().get(..length).unwrap_or_default());
    }
}
