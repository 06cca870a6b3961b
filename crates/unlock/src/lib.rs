//! Opening encrypted volumes, for init before the root switch and for machined after it.
//!
//! | module | part |
//! |---|---|
//! | `identity` | the machine's UUID, and the key that follows from it |
//! | `record` | META's record of how STATE is encrypted |
//! | `key` | a secret for a slot, and where it came from |
//! | `token` | a slot's key as the header keeps it: sealed by somebody else |
//! | `binding` | a sealed key that opens one volume and no other |
//! | `open` | which of several keys opens a volume, and why the others did not |
//! | `mapping` | the device over an open volume |
//!
//! Does not: find devices, fetch keys from a TPM or a server, format or change slots (`ondisk::luks2`), write repairs.
//! Order: read the header ([`Volume::read`]) → keys as they come ([`open`]) → [`Plan::new`] → [`Plan::make`].
//! Fails by: a reason a key; secrets are never part of it and are zeroised.
//! Source: docs/users/encryption.md, docs/formats/luks2.md.
//!
//! Builds without std (init) and, with feature `std`, inside std programs (machined).

#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![warn(missing_docs)]

extern crate alloc;

mod binding;
mod identity;
mod key;
mod mapping;
mod open;
mod record;
mod token;

pub use binding::{bind, is_bound_kind, lock, mark};
pub use identity::{IdentityError, Machine};
pub use key::{Candidate, KeyKind, Refused, static_key};
pub use mapping::{MapError, Plan, mapping_name, modules, remove};
pub use open::{Opened, Outcome, Threads, Volume, available_kib, open};
pub use record::{Kind, Record, RecordError, RecordKey};
pub use token::{KEY_BYTES, SealedKey, passphrase};

pub use ondisk::luks2::Secret;
