//! Keys: a secret, the slot it is for, and what kind it is.

use alloc::string::{String, ToString};
use core::fmt;

use zeroize::Zeroizing;

use crate::Secret;

/// Where a key comes from, as configs name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyKind {
    /// The machine's UUID.
    NodeId,
    /// A passphrase in the config.
    Static,
    /// Sealed by the TPM.
    Tpm,
    /// Kept by a server.
    Kms,
    /// Typed by a person, who had it decrypted by the recovery key's owner.
    Recovery,
    /// A kind that is not known here, by its name.
    Other(String),
}

impl KeyKind {
    /// By the name that configs have for it.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let known = [Self::NodeId, Self::Static, Self::Tpm, Self::Kms, Self::Recovery];
        known
            .into_iter()
            .find(|kind| kind.to_string() == name)
            .unwrap_or_else(|| Self::Other(name.to_string()))
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NodeId => "nodeID",
            Self::Static => "static",
            Self::Tpm => "tpm",
            Self::Kms => "kms",
            Self::Recovery => "recovery",
            Self::Other(name) => name,
        })
    }
}

/// A key to try.
#[derive(Clone)]
pub struct Candidate {
    /// The slot it is for.
    pub slot: u8,
    /// Where it came from.
    pub kind: KeyKind,
    /// What the slot's key is derived from.
    pub secret: Secret,
}

/// A key that did not open the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The slot it is for.
    pub slot: u8,
    /// Where it comes from.
    pub kind: KeyKind,
    /// Why it did not.
    pub why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} key for slot {}: {}", self.kind, self.slot, self.why)
    }
}

/// The key of a passphrase from a config: its bytes as they are.
pub fn static_key(passphrase: &str) -> Result<Secret, String> {
    if passphrase.is_empty() {
        return Err("static key must have key data defined".to_string());
    }
    Ok(Zeroizing::new(passphrase.as_bytes().to_vec()))
}
