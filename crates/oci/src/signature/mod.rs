//! Signatures of images: who must have signed an image, and whether they did.
//!
//! | part | what |
//! |---|---|
//! | [`Policy`] | rules: which images must be signed by whom, which are refused, which are left unchecked |
//! | [`Key`] | a public key, as people give it |
//! | [`Signature`] | a payload with its signature: what a key says of a digest |
//!
//! Does not: fetch ([`crate::registry::Client::check_signed`] does); keyless signatures, which need services on the
//! Internet: an image that asks for one is refused.
//! Fails by: an error that says what was looked at and why it does not count. What cannot be checked is not signed.
//! Source: cosign's signature specification ("simple signing"), with its older storage: a manifest under the tag
//! `sha256-<digest>.sig` of the image's own repository.

mod key;
mod payload;
mod policy;
#[cfg(test)]
pub(crate) mod tests;

pub use key::{Key, KeyError};
pub use payload::Signature;
pub use policy::{Action, Policy, Rule};

use ondisk::Digest;

/// More signatures than these are not looked at.
pub const MOST_SIGNATURES: usize = 32;

/// Where the signatures of an image lie: a tag of its repository.
#[must_use]
pub fn tag(digest: &Digest) -> String {
    format!("sha256-{digest}.sig")
}
