//! Images and installation: what is written where, decided first and then done.
//!
//! Owns: file trees, layers, systems as values ([`system`]), initramfs, UKI, disk images and config volumes, each the same bytes for the same input;
//! installation, upgrade, blessing and rollback of a disk, volumes and their encryption, each a list of writes that a
//! power cut may end anywhere.
//! Does not: fetch inputs or choose files; run as root; mount anything; call other programs.
//! Order: for images [`tree`] → `layer` → [`initramfs`] → [`uki`] → `disk`; for disks [`install`], [`upgrade`] → [`slot`], [`esp`]
//! → [`entries`] → [`device`].
//! The feature `image` is what builds images: squashing, compressing, image files. A node is built without it.
//! Fails by: one [`Error`] that names the operation and the path; a file that was being written is removed.

#![warn(missing_docs)]

pub mod addon;
pub mod boot_volume;
pub mod bundle;
#[cfg(any(test, feature = "certify"))]
pub mod certify;
#[cfg(feature = "image")]
pub mod custom;
pub mod device;
#[cfg(feature = "image")]
pub mod disk;
pub mod encryption;
pub mod entries;
pub mod esp;
#[cfg(feature = "image")]
pub mod flash;
pub mod grub;
pub mod host;
#[cfg(feature = "image")]
pub mod image;
pub mod initramfs;
pub mod install;
#[cfg(feature = "image")]
pub mod kernel;
#[cfg(feature = "image")]
pub mod layer;
pub mod measured;
pub mod meta;
pub mod reset;
#[cfg(feature = "image")]
pub mod secure_boot;
pub mod slot;
pub mod system;
pub mod tree;
pub mod uki;
pub mod upgrade;
pub mod volumes;

mod distrust;
mod error;
mod kernel_image;
mod layout;
#[cfg(feature = "image")]
mod output;
#[cfg(feature = "image")]
mod platform;
mod progress;
#[cfg(feature = "image")]
mod source;
#[cfg(feature = "image")]
mod squashfs;

#[cfg(feature = "image")]
pub use disk::config_volume;
pub use error::Error;
pub use layout::{BIOS_BYTES, EFI_BYTES, META_BYTES, ROOT_BYTES, STATE_BYTES};
#[cfg(feature = "image")]
pub use output::UNFINISHED;
pub use progress::{Progress, silent};
