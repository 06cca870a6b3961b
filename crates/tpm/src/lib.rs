//! Keys that a TPM 2.0 keeps: sealed to registers of the machine's measured state, directly or by somebody's signature.
//!
//! | module | part |
//! |---|---|
//! | `seal` | [`seal`], [`unseal`] and what they are made of: the storage key, the object, what its token says |
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
//! policy → key.
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
mod error;
mod pcr;
mod policy;
mod seal;
mod session;
mod token;
mod wire;

pub use approve::{Demand, MOST_APPROVALS, approve, seal_to};
pub use code::Code;
pub use command::Transport;
pub use device::{Device, EXCHANGE_DEADLINE_MS, PATH};
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
pub type Chance<'a> = &'a mut dyn FnMut(&mut [u8]);
