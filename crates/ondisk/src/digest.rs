//! A SHA-256 value: root hash or salt.
//!
//! Owns: 32 bytes that were read from exactly 64 lower-case hex digits, so that a digest in hand is a valid one.

use alloc::borrow::Cow;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::Digest as _;

/// Length of a SHA-256 value in bytes.
pub const DIGEST_BYTES: usize = 32;

/// 32 bytes, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; DIGEST_BYTES]);

impl Digest {
    /// SHA-256 of `pieces`, one after the other.
    #[must_use]
    pub fn sha256(pieces: &[&[u8]]) -> Self {
        let mut hash = sha2::Sha256::new();
        for piece in pieces {
            hash.update(piece);
        }
        Self(hash.finalize().into())
    }

    /// Reads 64 lower-case hex digits; anything else is `None`.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != DIGEST_BYTES * 2 {
            return None;
        }
        let mut value = [0; DIGEST_BYTES];
        for (byte, pair) in value.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(*pair.first()?)? << 4 | nibble(*pair.get(1)?)?;
        }
        Some(Self(value))
    }

    /// The raw bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; DIGEST_BYTES] {
        &self.0
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| de::Error::custom("a hash must be 64 lower-case hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn hex_round_trip() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::sha256(&[]).to_string(), empty);
        assert_eq!(Digest::from_hex(empty), Some(Digest::sha256(&[b"", b""])));
    }

    #[test]
    fn only_64_lower_case_digits_are_a_digest() {
        assert_eq!(Digest::from_hex(&"a".repeat(63)), None);
        assert_eq!(Digest::from_hex(&"a".repeat(65)), None);
        assert_eq!(Digest::from_hex(&"A".repeat(64)), None);
        assert_eq!(Digest::from_hex(&"é".repeat(32)), None);
    }
}
