//! Recovery keys of volumes: made by a node, encrypted to a person's public key, typed back when nothing else opens.
//!
//! | module | part |
//! |---|---|
//! | `bech32` | letters with a checksum, for both of the following |
//! | `key` | the key as a person types it |
//! | `recipient` | a public key of age, as configs name it |
//! | `age` | the file that the key is kept in (encrypting: feature `seal`) |
//!
//! Owns: both texts, the file's format. Does not: know volumes or slots, decrypt (`age -d` does), keep a key.
//! Fails by: the place of what is wrong; never a part of a key.
//! Source: docs/decisions/0011; age-encryption.org/v1 (C2SP); BIP 173.

#![warn(missing_docs)]

mod age;
mod bech32;
mod key;
mod recipient;

pub use age::armored;
#[cfg(feature = "seal")]
pub use age::{SealError, seal};
pub use bech32::Bech32Error;
pub use key::{KEY_BYTES, KeyError, RecoveryKey};
pub use recipient::{MOST_RECIPIENTS, Recipient, RecipientError};
