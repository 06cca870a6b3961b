//! A config that is encrypted for one device: where its parts lie.
//!
//! Owns: the bytes of the payload, in both directions.
//! Does not: encrypt; know what a TPM takes the parts as.
//! Fails by: a reason; the entry says where.
//! Source: docs/formats/config-bundle.md.

use alloc::vec::Vec;

use crate::Digest;
use crate::field::{array, bytes, le16};

/// The only way of sealing: AES-256-GCM with a key of one use, which an object wrapped for a TPM's endorsement key carries.
const FOR_TPM: u16 = 1;

/// Offset 0 way of sealing (2), 2 bytes of the object's public area (2), 4 of its private area (2), 6 of the seed (2), 8
/// digest of the endorsement key (32); then these three, one behind the other; the encrypted config is the rest.
const HEAD_BYTES: usize = 40;

/// Bytes of the proof at the end of what AES-GCM encrypts (NIST SP 800-38D §5.2.1.2).
pub const TAG_BYTES: usize = 16;

/// Where a payload is none.
const SHORT: &str = "its sealed config is too short for what it says to hold";

/// The object that carries the config's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'b> {
    /// SHA-256 of the endorsement key that the object is wrapped for.
    pub device: Digest,
    /// Its public area.
    pub public: &'b [u8],
    /// Its private area.
    pub private: &'b [u8],
    /// What the wrapping's secret follows from.
    pub seed: &'b [u8],
}

/// A payload that one device opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed<'b> {
    /// Carries the config's key.
    pub parts: Parts<'b>,
    /// Everything before the encrypted config, which is proved with that.
    pub head: &'b [u8],
    /// The encrypted config, its proof at the end.
    pub body: &'b [u8],
    /// Both.
    pub(super) all: &'b [u8],
}

impl<'b> Parts<'b> {
    /// What stands before the encrypted config.
    pub fn head(&self) -> Result<Vec<u8>, &'static str> {
        let parts = [self.public, self.private, self.seed];
        let mut to = Vec::from(FOR_TPM.to_le_bytes());
        for part in parts {
            let length = u16::try_from(part.len()).map_err(|_| "a part of a sealed config is too long")?;
            to.extend(length.to_le_bytes());
        }
        to.extend(self.device.as_bytes());
        parts.iter().for_each(|part| to.extend(*part));
        Ok(to)
    }
}

impl<'b> Sealed<'b> {
    /// Finds the parts.
    pub fn read(all: &'b [u8]) -> Result<Self, &'static str> {
        if le16(all, 0).ok_or(SHORT)? != FOR_TPM {
            return Err("its config is sealed in a way that this program does not know");
        }
        let mut at = HEAD_BYTES;
        let mut part = |offset| {
            let length = usize::from(le16(all, offset)?);
            let part = bytes(all, at, length)?;
            at += length;
            Some(part)
        };
        let parts = (part(2), part(4), part(6), array(all, 8));
        let (Some(public), Some(private), Some(seed), Some(device)) = parts else { return Err(SHORT) };
        let (head, body) = all.split_at_checked(at).ok_or(SHORT)?;
        if body.len() <= TAG_BYTES {
            return Err("its sealed config is empty");
        }
        Ok(Self { parts: Parts { device: Digest(device), public, private, seed }, head, body, all })
    }
}
