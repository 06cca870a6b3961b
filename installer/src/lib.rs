//! Images and installation: what is written where, decided first and then done.
//!
//! Owns: file trees, layers, initramfs, UKI, disk images and config volumes, each the same bytes for the same input;
//! installation, upgrade, blessing and rollback of a disk, each a list of writes that a power cut may end anywhere.
//! Does not: fetch inputs or choose files; run as root; mount anything; call other programs.
//! Order: for images [`tree`] → [`layer`] → [`initramfs`] → [`uki`] → [`disk`]; for disks [`install`], [`upgrade`] → [`slot`], [`esp`]
//! → [`entries`] → [`device`].
//! Fails by: one [`Error`] that names the operation and the path; a file that was being written is removed.

#![warn(missing_docs)]

pub mod device;
pub mod disk;
pub mod entries;
pub mod esp;
pub mod initramfs;
pub mod install;
pub mod layer;
pub mod slot;
pub mod tree;
pub mod uki;
pub mod upgrade;

mod error;
#[cfg(test)]
mod model;
mod output;
mod progress;
mod squashfs;

pub use disk::config_volume;
pub use error::Error;
pub use progress::{Progress, silent};
