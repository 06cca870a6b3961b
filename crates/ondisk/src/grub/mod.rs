//! GRUB for machines without UEFI: boot code, core image, environment block.
//!
//! Owns: the two places that are filled in when GRUB is put on a disk, as grub-bios-setup does; the environment block, which
//! GRUB writes and we read; quoting for GRUB's scripts.
//! Does not: make the images (grub-mkimage does), choose where they lie, read scripts.
//! Order on the machine: the BIOS loads the first sector of the disk; its code loads one sector of the core image; that one
//! loads the rest by its block list.
//! Source: GRUB 2.12, `boot/i386/pc/boot.S`, `boot/i386/pc/diskboot.S`, `include/grub/i386/pc/boot.h`, `lib/envblk.c`.

mod environment;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::field::{bytes, le16, le64, put};

pub use environment::{Environment, VALUES_BYTES};

/// What GRUB counts in, on a disk with sectors of this size only.
pub const SECTOR_BYTES: usize = 512;

/// Bytes at the start of the first sector that are code; behind them lie disk signature and partitions.
pub const CODE_BYTES: usize = 440;

/// Where the first sector's code finds the number of the core image's first sector, 64 bits.
const CORE_SECTOR: usize = 0x5C;

/// A jump over the check of the drive's number that the BIOS passes; two bytes. Without the jump a number that cannot be
/// right becomes that of the first disk.
const DRIVE_CHECK: usize = 0x66;
const JUMP: u8 = 0xEB;
const NO_OPERATION: [u8; 2] = [0x90, 0x90];

/// Last entry of the block list in the core image's first sector: first sector (64 bits), number of sectors, segment. The
/// list grows downwards, an entry without sectors ends it.
const BLOCK_LIST: usize = SECTOR_BYTES - BLOCK_BYTES;
const BLOCK_BYTES: usize = 12;

/// Why images are not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The boot image is not one sector of GRUB's boot code.
    BootImage,
    /// The core image has no block list for itself as one piece.
    CoreImage,
}

/// The code of a disk's first sector that loads the core image from sector `core_lba`.
pub fn boot_code(image: &[u8], core_lba: u64) -> Result<[u8; CODE_BYTES], Error> {
    let is_grub = image.len() == SECTOR_BYTES
        && bytes(image, 510, 2) == Some(&[0x55, 0xAA])
        && image.get(DRIVE_CHECK) == Some(&JUMP)
        && le64(image, CORE_SECTOR) == Some(1);
    let code = image.get(..CODE_BYTES).and_then(|code| code.try_into().ok());
    let mut code: [u8; CODE_BYTES] = code.filter(|_| is_grub).ok_or(Error::BootImage)?;
    put(&mut code, CORE_SECTOR, &core_lba.to_le_bytes());
    put(&mut code, DRIVE_CHECK, &NO_OPERATION);
    Ok(code)
}

/// The core image as it lies from sector `lba` on, in whole sectors.
pub fn core_image(image: &[u8], lba: u64) -> Result<Vec<u8>, Error> {
    let rest = image.len().div_ceil(SECTOR_BYTES).saturating_sub(1);
    // The entry before the last one ends the list: the image is one piece.
    let ends = le16(image, BLOCK_LIST - BLOCK_BYTES + 8) == Some(0);
    let listed = le16(image, BLOCK_LIST + 8).map(usize::from);
    if rest == 0 || listed != Some(rest) || !ends {
        return Err(Error::CoreImage);
    }
    let mut placed = image.to_vec();
    placed.resize((rest + 1) * SECTOR_BYTES, 0);
    put(&mut placed, BLOCK_LIST, &lba.saturating_add(1).to_le_bytes());
    Ok(placed)
}

/// A word as GRUB's script language takes it literally.
#[must_use]
pub fn quote(word: &str) -> String {
    let mut quoted = String::from("'");
    for letter in word.chars() {
        match letter {
            '\'' => quoted.push_str(r"'\''"),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BootImage => "GRUB's boot image is not one sector of its boot code",
            Self::CoreImage => "GRUB's core image does not list its own sectors as one piece",
        })
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
