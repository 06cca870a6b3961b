//! The kernel, as the rest of Billet may call it.
//!
//! Owns: every line of `unsafe` in the workspace: raw system calls that rustix lacks, ioctls, process creation,
//! wide registers, and (feature `rt`) what a program without libc needs: entry point, allocator, memory functions, panic handler.
//! Does not: decide anything; each function is one operation and returns the kernel's answer.
//! Fails by: [`Errno`]; [`errno::name`] and [`errno::meaning`] put it into words.
//!
//! Builds without std (init) and, with feature `std`, inside std programs (machined). Callers may use rustix
//! directly for whatever it offers safely.

#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![allow(unsafe_code, reason = "the one crate that may")]
#![warn(missing_docs, clippy::multiple_unsafe_ops_per_block)]

extern crate alloc;

pub mod argon2;
pub mod block;
pub mod clock;
#[cfg(any(test, feature = "std"))]
pub mod confine;
pub mod console;
#[cfg(feature = "coverage")]
pub mod coverage;
pub mod crypt;
pub mod dm;
pub mod errno;
pub mod freestanding;
pub mod fs;
#[cfg(feature = "coverage")]
pub mod heap;
pub mod hops;
pub mod kexec;
pub mod keyring;
pub mod link;
pub mod module;
pub mod packet;
pub mod poll;
pub mod process;
#[cfg(any(test, feature = "std"))]
pub mod rights;
pub mod seqpacket;
pub mod signal;
pub mod system;
pub mod threads;
pub mod uevent;
pub mod watchdog;

/// The memory functions of `rt`, under other names.
#[cfg(test)]
#[path = "rt/memory.rs"]
mod memory;
#[cfg_attr(target_arch = "aarch64", path = "processor/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "processor/x86_64.rs")]
mod processor;
mod raw;
#[cfg(all(feature = "rt", not(feature = "std"), not(test)))]
pub mod rt;

pub use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
pub use rustix::io::Errno;

/// What every call of this crate returns.
pub type Result<T> = core::result::Result<T, Errno>;
