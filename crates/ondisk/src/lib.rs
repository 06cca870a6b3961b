//! On-disk formats as values.
//!
//! Owns: bytes to values and back, for every format that init, the installer and the image builder share.
//! Does not: I/O, unsafe code, panics on any input. A reader that needs more than one piece asks a [`ReadAt`],
//! a writer answers with [`Extent`]s; who opens, reads and writes is the caller's affair.

#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![warn(missing_docs)]

extern crate alloc;

pub mod architecture;
pub mod bundle;
pub mod bzimage;
pub mod cpio;
pub mod digest;
pub mod efi;
pub mod fat;
pub mod gpt;
pub mod grub;
pub mod iso9660;
pub mod kernel;
pub mod kmod;
pub mod kmsg;
pub mod luks2;
pub mod manifest;
pub mod meta;
pub mod pe;
pub mod printable;
pub mod probe;
pub mod recorder;
pub mod redact;
pub mod smbios;
pub mod squashfs;
pub mod verity;

mod crc32;
mod field;
mod region;

pub use architecture::Architecture;
pub use digest::Digest;
pub use region::{Extent, ReadAt, ReadError, Step};
