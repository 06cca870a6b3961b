//! On-disk formats as values.
//!
//! Owns: bytes to values and back, for every format that init, the installer and the image builder share.
//! Does not: I/O, unsafe code, panics on any input.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

pub mod manifest;
