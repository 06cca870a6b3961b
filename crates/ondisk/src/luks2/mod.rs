//! LUKS2: a header that holds a volume key in up to 32 slots, each opened by a secret of its own.
//!
//! | file | part |
//! |---|---|
//! | `binary` | the 4096 bytes before each copy's JSON |
//! | `metadata` | the JSON as values; what we do not know is kept |
//! | `validate` | what must hold before any value is used |
//! | `read` | two copies, and which of them counts |
//! | `argon2` | the derivation that costs memory, with lanes in threads of the caller's |
//! | `kdf`, `cipher`, `adiantum`, `split` | from a passphrase to a slot's key; sectors of its area; the anti-forensic split |
//! | `slot` | one slot: its area, opened and made |
//! | `unlock` | which slots a passphrase is tried on; what the kernel needs to know |
//! | `change` | format, add, change and remove, as steps of writes |
//! | `dump` | the header for a person |
//!
//! Owns: the whole header from offset 0 to the data, on the data's device or apart from it.
//! Does not: read or write data, I/O, random numbers (the caller brings both), re-encryption, LUKS1, hardware keys.
//! Order of a change: the slot's area, then the first copy, then the second. Each is durable before the next, so that a power
//! cut leaves one whole copy whose slots open.
//! Fails by: naming the copy, the object and the rule. Passphrases and keys are never part of an error and are zeroised.
//! Source: LUKS2 On-Disk Format Specification 1.1.3; cryptsetup's behaviour where that is silent (tests compare).

mod adiantum;
mod argon2;
mod binary;
mod change;
mod cipher;
mod dump;
mod kdf;
mod metadata;
mod read;
mod slot;
mod split;
mod unlock;
mod validate;

#[cfg(test)]
mod tests;

pub use argon2::{Alone, Mixing, Words, Workers};
pub use binary::{Copy, Fault};
pub use change::{Change, ChangeError, Format, NewSlot};
pub use cipher::Cipher;
pub use kdf::{Argon2Cost, Cost, KdfError};
pub use metadata::{Area, Config, Digest, Id, Kdf, Keyslot, Metadata, Requirements, Segment, Split, Token};
pub use read::{Found, HeaderError, read};
pub use slot::SlotError;
pub use unlock::{Mapping, Refusal, UnlockError, Unlocked};
pub use validate::Invalid;

use alloc::string::String;

use zeroize::Zeroizing;

/// Most key slots, and most tokens.
pub const SLOTS: u8 = 32;

/// Fills a slice with random bytes.
pub type RandomBytes<'a> = &'a mut dyn FnMut(&mut [u8]);

/// Secret bytes; gone when dropped.
pub type Secret = Zeroizing<alloc::vec::Vec<u8>>;

/// A header whose rules hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Identity of the volume, as text.
    pub uuid: String,
    /// A name for people; may be empty.
    pub label: String,
    /// A second name, for programs; may be empty.
    pub subsystem: String,
    /// Counts up with every change.
    pub epoch: u64,
    /// What the JSON says.
    pub metadata: Metadata,
    /// Length of one copy in bytes, JSON included.
    copy_bytes: u64,
    /// What tells the copies' checksums apart.
    salts: [[u8; 64]; 2],
}

impl Header {
    /// Length of one copy in bytes, JSON included. The key slots' areas begin behind the second.
    pub fn copy_bytes(&self) -> u64 {
        self.copy_bytes
    }
}
