//! Keys that a TPM 2.0 keeps: sealed to registers of the machine's measured state, directly or by somebody's signature.
//!
//! | module | part |
//! |---|---|
//! | `seal` | [`seal`], [`unseal`] and what they are made of: the storage key, the object, what its token says |
//! | `endorsement` | the key that tells a TPM from others, and its public half as a file |
//! | `duplicate` | sealing a key for a TPM that is elsewhere, and having it back there |
//! | `primary` | keys that the TPM makes anew from its seeds, sessions that are salted to them |
//! | `approve` | the key that approves, which follows from the sealed key |
//! | `policy` | what the TPM demands before it gives a key back; digests, approvals |
//! | `pcr` | registers: sets, values, reading them |
//! | `session` | a conversation that nobody on the bus can read or change |
//! | `command` | one command and its answer, framed |
//! | `wire` | checked fields over bytes |
//! | `crypto` | what a session is computed with |
//! | `code` | the TPM's refusals in words |
//! | `device` | /dev/tpmrm0 |
//!
//! Does not: keep anything in the TPM (the storage key follows from its seed, sessions and objects are flushed); choose
//! registers; write tokens to a disk.
//! Order: registers → storage key → salted session → object; back: storage key, which has to be the same → object →
//! policy → key. For another TPM: its endorsement key's public half → object; there: endorsement key → import → key.
//! Fails by: [`Error`], which says what it means for who waits; no key is part of one. Damaged answers and tokens are
//! refused, never a panic.
//! Source: Trusted Platform Module Library, Family 2.0, parts 1 to 3, level 00, revision 1.59.
//!
//! Builds without std (init) and, with feature `std`, inside std programs (machined).

#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![warn(missing_docs)]

extern crate alloc;

mod approve;
mod code;
mod command;
mod crypto;
mod device;
mod duplicate;
mod endorsement;
mod error;
mod pcr;
mod policy;
mod primary;
mod seal;
mod session;
mod token;
mod wire;

pub use approve::{Demand, MOST_APPROVALS, approve, seal_to};
pub use code::Code;
pub use command::Transport;
pub use device::{Device, EXCHANGE_DEADLINE_MS, PATH};
pub use duplicate::{Duplicate, seal_for, unseal_here};
pub use endorsement::{DeviceKey, NotADeviceKey};
pub use error::Error;
pub use pcr::{PCRS, Pcrs, Values, extend, read as read_pcrs};
pub use policy::{Approval, Policy, PublicKey, Signed};
pub use seal::{Sealed, seal, unseal};
pub use token::TokenError;

use alloc::vec::Vec;
use zeroize::Zeroizing;

/// Secret bytes, zeroised when they are dropped.
pub type Secret = Zeroizing<Vec<u8>>;

/// Fills a slice with random bytes.
pub type RandomBytes<'a> = &'a mut dyn FnMut(&mut [u8]);

/// What another implementation makes: `testdata/duplicate.txt`.
#[cfg(test)]
pub(crate) mod vectors {
    /// The bytes behind a name.
    pub(crate) fn get(name: &str) -> Vec<u8> {
        let mut lines = include_str!("../testdata/duplicate.txt").lines();
        let hex = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }
}
