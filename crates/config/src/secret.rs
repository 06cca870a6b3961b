//! A string that must not leak.
//!
//! Owns: wiping on drop, and the absence of `Debug` and `Display`, so that no log or error can hold the text.
//! Does not: hide it from a writer of configurations; serialising a [`Secret`] writes it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// Text that is wiped from memory when dropped and cannot be printed:
///
/// ```compile_fail
/// fn printed<T: std::fmt::Debug>(_: T) {}
/// printed(config::Secret::new("hunter2"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Default for Secret {
    fn default() -> Self {
        Self::new("")
    }
}

impl Secret {
    /// Takes over `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text. The name is long so that each use stands out in review.
    pub fn expose_secret(&self) -> &str {
        &self.0
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares with `given` in a time that depends on the lengths only.
    pub fn matches(&self, given: &str) -> bool {
        let (mine, theirs) = (self.0.as_bytes(), given.as_bytes());
        let differences = mine.iter().zip(theirs).fold(0_u8, |acc, (a, b)| acc | (a ^ b));
        mine.len() == theirs.len() && std::hint::black_box(differences) == 0
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_only_the_same_text() {
        let secret = Secret::new("abc.def");
        assert!(secret.matches("abc.def"));
        for wrong in ["", "abc.de", "abc.deg", "abc.deff", "bbc.def"] {
            assert!(!secret.matches(wrong), "{wrong}");
        }
    }
}
