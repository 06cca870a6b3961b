//! EFI boot entries: what `Boot####` and `BootOrder` hold.
//!
//! Owns: load options with a file on a GPT partition; the order list; the file of a variable in efivarfs, which
//! starts with its attributes; the lists of signatures in `db`.
//! Does not: open variables; interpret device paths of other kinds, which are kept as they are.
//! Fails by: `None` for bytes that are no load option.
//! Source: UEFI specification 2.10, §3.1.3 (load options), §10.3 (device paths); the kernel's
//! Documentation/filesystems/efivarfs.rst. Integers are little-endian.

mod signatures;

use alloc::string::String;
use alloc::vec::Vec;

use crate::field::{array, bytes, le16, le32, le64};
use crate::gpt::Guid;

pub use signatures::{Known, SECURITY, known};

/// The vendor GUID of the variables that the specification names, as part of a file name in efivarfs.
pub const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// The vendor GUID of the variables that systemd-boot and systemd's stub use.
pub const LOADER: &str = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// Attributes of a variable that outlives a reboot and is seen by the boot loader and by the system.
pub const NON_VOLATILE: u32 = 0b111;

/// The firmware may start this entry by itself.
const ACTIVE: u32 = 1;

// Device path nodes: type (u8 at 0), subtype (u8 at 1), length with these four bytes (u16 at 2).
const NODE_HEAD: usize = 4;
const HARD_DRIVE: (u8, u8) = (4, 1);
const FILE_PATH: (u8, u8) = (4, 4);
const END: (u8, u8) = (0x7F, 0xFF);
/// Partition number (u32 at 4), start and size in sectors (u64 at 8 and 16), signature (16 bytes at 24), table type
/// (u8 at 40), signature type (u8 at 41).
const HARD_DRIVE_BYTES: u16 = 42;
const GPT: u8 = 2;
const SIGNATURE_IS_GUID: u8 = 2;

/// A boot entry that starts a file on a GPT partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootEntry {
    /// The firmware may start it by itself.
    pub active: bool,
    /// The text of the firmware's menu.
    pub description: String,
    /// Place of the partition in its table, from 1.
    pub partition: u32,
    /// First sector of the partition.
    pub first_lba: u64,
    /// Its length in sectors.
    pub sectors: u64,
    /// The partition's own GUID.
    pub guid: Guid,
    /// The file, with backslashes: `\EFI\BOOT\BOOTX64.EFI`.
    pub path: String,
}

impl BootEntry {
    /// The load option's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let path = self.device_path();
        let mut option = Vec::new();
        option.extend(if self.active { ACTIVE } else { 0 }.to_le_bytes());
        // Paths come from our own installer and are far from 64 KiB.
        option.extend(u16::try_from(path.len()).unwrap_or(u16::MAX).to_le_bytes());
        option.extend(utf16(&self.description));
        option.extend(path);
        option
    }

    fn device_path(&self) -> Vec<u8> {
        let mut path = node(HARD_DRIVE, HARD_DRIVE_BYTES);
        path.extend(self.partition.to_le_bytes());
        path.extend(self.first_lba.to_le_bytes());
        path.extend(self.sectors.to_le_bytes());
        path.extend(self.guid.stored());
        path.extend([GPT, SIGNATURE_IS_GUID]);
        let file = utf16(&self.path);
        path.extend(node(FILE_PATH, u16::try_from(NODE_HEAD + file.len()).unwrap_or(u16::MAX)));
        path.extend(file);
        path.extend(node(END, 4));
        path
    }

    /// Reads a load option; `None` when it starts something else than a file on a GPT partition.
    #[must_use]
    pub fn decode(option: &[u8]) -> Option<Self> {
        let attributes = le32(option, 0)?;
        let path_len = usize::from(le16(option, 4)?);
        let (description, described) = read_utf16(option.get(6..)?)?;
        let path = bytes(option, 6 + described, path_len)?;
        let (drive, rest) = take_node(path, HARD_DRIVE)?;
        let (file, rest) = take_node(rest, FILE_PATH)?;
        take_node(rest, END)?;
        if bytes(drive, 36, 2)? != [GPT, SIGNATURE_IS_GUID] {
            return None;
        }
        Some(Self {
            active: attributes & ACTIVE != 0,
            description,
            partition: le32(drive, 0)?,
            first_lba: le64(drive, 4)?,
            sectors: le64(drive, 12)?,
            guid: Guid::from_stored(array(drive, 20)?),
            path: read_utf16(file)?.0,
        })
    }
}

/// `BootOrder` as numbers; an odd last byte is left out.
#[must_use]
pub fn read_order(value: &[u8]) -> Vec<u16> {
    value.chunks_exact(2).filter_map(|pair| le16(pair, 0)).collect()
}

/// Numbers as `BootOrder`.
#[must_use]
pub fn write_order(order: &[u16]) -> Vec<u8> {
    order.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// What a file in efivarfs must hold for a variable of this value.
#[must_use]
pub fn variable_file(attributes: u32, value: &[u8]) -> Vec<u8> {
    let mut file = attributes.to_le_bytes().to_vec();
    file.extend_from_slice(value);
    file
}

/// Attributes and value of a file in efivarfs.
#[must_use]
pub fn read_variable_file(file: &[u8]) -> Option<(u32, &[u8])> {
    Some((le32(file, 0)?, file.get(4..)?))
}

/// The text of a variable that holds a string, as systemd-boot writes them.
#[must_use]
pub fn read_text(value: &[u8]) -> Option<String> {
    read_utf16(value).map(|(text, _)| text)
}

fn node((kind, subtype): (u8, u8), length: u16) -> Vec<u8> {
    let mut node = Vec::from([kind, subtype]);
    node.extend(length.to_le_bytes());
    node
}

/// The content of the first node, if it is of this kind, and what follows it.
fn take_node(path: &[u8], (kind, subtype): (u8, u8)) -> Option<(&[u8], &[u8])> {
    let length = usize::from(le16(path, 2)?);
    let whole = path.get(..length).filter(|_| bytes(path, 0, 2) == Some(&[kind, subtype]))?;
    Some((whole.get(NODE_HEAD..)?, path.get(length..)?))
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// Text up to its zero and the bytes it takes with it.
fn read_utf16(stored: &[u8]) -> Option<(String, usize)> {
    let units: Vec<u16> = stored.chunks_exact(2).filter_map(|pair| le16(pair, 0)).collect();
    let length = units.iter().position(|unit| *unit == 0)?;
    Some((String::from_utf16_lossy(units.get(..length)?), (length + 1) * 2))
}

#[cfg(test)]
mod tests;
