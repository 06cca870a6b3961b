//! Images and installation: what is written where, decided first and then done.
//!
//! Owns: file trees, layers, initramfs, UKI, disk images and config volumes, each the same bytes for the same input.
//! Does not: fetch inputs or choose files; run as root; mount anything; call other programs.
//! Order: [`tree`] → [`layer`] → [`initramfs`] → [`uki`] → [`disk`].
//! Fails by: one [`Error`] that names the operation and the path; a file that was being written is removed.

#![warn(missing_docs)]

pub mod device;
pub mod disk;
pub mod initramfs;
pub mod layer;
pub mod tree;
pub mod uki;

mod error;
mod output;
mod progress;
mod squashfs;

pub use disk::config_volume;
pub use error::Error;
pub use progress::{Progress, silent};
