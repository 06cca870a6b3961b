//! An image file onto a disk or a file: `billetctl flash`.
//!
//! Owns: what can be written ([`Image`]), where to ([`disks`]), the writing, its proof, and going on after an interruption
//! ([`write()`]).
//! Does not: ask a person; know a node: what a node writes to its own disk is [`crate::install`].
//! Fails by: [`Error`]; what is on the disk then starts nothing, and the next attempt goes on where this one ended.

pub mod disks;

#[cfg(test)]
mod device_tests;
mod error;
mod form;
mod image;
mod journal;
mod meter;
mod packed;
mod stream;
mod target;
#[cfg(test)]
mod tests;
mod write;
mod zeros;
#[cfg(test)]
mod zeros_tests;

pub use error::Error;
pub use image::{HEAD_BYTES, Image};
pub use journal::check as check_note;
pub use target::{Target, note_path, random_seed};
pub use write::{Done, Request, write};
