//! A program for firmware that does nothing: what is added to it is data for others.
//!
//! Owns: headers and code; firmware loads it wherever there is room, and an attempt to start it is answered with
//! `EFI_UNSUPPORTED`.
//! Source: Microsoft PE format specification; UEFI specification 2.10 §2.1.1 (subsystem), appendix D (status codes).

use alloc::vec;
use alloc::vec::Vec;

use crate::Architecture;
use crate::field::put;

/// Offset of the signature `PE\0\0`; there is no program for DOS before it.
const SIGNATURE: usize = 0x80;
/// Bytes of the optional header with its 16 directories.
const OPTIONAL_BYTES: u16 = 240;
/// Headers fill a page of the file's alignment twice: room for 15 sections.
const HEADERS_BYTES: u32 = 0x400;
const FILE_ALIGNMENT: u32 = 0x200;
const SECTION_ALIGNMENT: u32 = 0x1000;
/// An executable image that knows addresses beyond 2 GiB; without relocations, since it has no addresses.
const CHARACTERISTICS: u16 = 0x0022;
/// May lie anywhere; data is never executed.
const DLL_CHARACTERISTICS: u16 = 0x0140;
/// An application of UEFI.
const SUBSYSTEM: u16 = 10;
/// Code, readable and executable.
const CODE: u32 = 0x6000_0020;

/// Returns `EFI_UNSUPPORTED`: `mov rax, 0x8000000000000003; ret`.
const CODE_AMD64: [u8; 11] = [0x48, 0xb8, 3, 0, 0, 0, 0, 0, 0, 0x80, 0xc3];
/// The same: `mov x0, #3; movk x0, #0x8000, lsl #48; ret`.
const CODE_ARM64: [u8; 12] = [0x60, 0, 0x80, 0xd2, 0, 0, 0xf0, 0xf2, 0xc0, 3, 0x5f, 0xd6];

/// The file, with one section `.text`.
#[must_use]
pub fn blank(architecture: Architecture) -> Vec<u8> {
    let (machine, code) = match architecture {
        Architecture::Amd64 => (0x8664_u16, CODE_AMD64.as_slice()),
        Architecture::Arm64 => (0xaa64, CODE_ARM64.as_slice()),
    };
    let headers = HEADERS_BYTES as usize;
    let mut file = vec![0; headers + FILE_ALIGNMENT as usize];
    let code_bytes = u32::try_from(code.len()).unwrap_or(0).to_le_bytes();
    let optional = SIGNATURE + 24;
    let table = optional + usize::from(OPTIONAL_BYTES);
    let mut set = |at: usize, field: &[u8]| put(&mut file, at, field);
    set(0, b"MZ");
    set(60, &0x80_u32.to_le_bytes());
    set(SIGNATURE, b"PE\0\0");
    set(SIGNATURE + 4, &machine.to_le_bytes());
    set(SIGNATURE + 6, &1_u16.to_le_bytes());
    set(SIGNATURE + 20, &OPTIONAL_BYTES.to_le_bytes());
    set(SIGNATURE + 22, &CHARACTERISTICS.to_le_bytes());
    set(optional, &super::MAGIC_PE32_PLUS.to_le_bytes());
    set(optional + 4, &FILE_ALIGNMENT.to_le_bytes());
    // AddressOfEntryPoint, BaseOfCode.
    set(optional + 16, &SECTION_ALIGNMENT.to_le_bytes());
    set(optional + 20, &SECTION_ALIGNMENT.to_le_bytes());
    set(optional + 32, &SECTION_ALIGNMENT.to_le_bytes());
    set(optional + 36, &FILE_ALIGNMENT.to_le_bytes());
    // SizeOfImage, SizeOfHeaders.
    set(optional + 56, &(2 * SECTION_ALIGNMENT).to_le_bytes());
    set(optional + 60, &HEADERS_BYTES.to_le_bytes());
    set(optional + 68, &SUBSYSTEM.to_le_bytes());
    set(optional + 70, &DLL_CHARACTERISTICS.to_le_bytes());
    set(optional + 108, &16_u32.to_le_bytes());
    set(table, b".text");
    set(table + 8, &code_bytes);
    set(table + 12, &SECTION_ALIGNMENT.to_le_bytes());
    set(table + 16, &FILE_ALIGNMENT.to_le_bytes());
    set(table + 20, &HEADERS_BYTES.to_le_bytes());
    set(table + 36, &CODE.to_le_bytes());
    set(headers, code);
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pe::{Image, NewSection};

    #[test]
    fn it_is_a_program_that_sections_are_added_to() {
        for architecture in Architecture::ALL {
            let file = blank(architecture);
            assert_eq!(Architecture::of_program(&file), Some(architecture));
            let more = [NewSection { name: ".cmdline", content: b"quiet" }];
            let added = Image::parse(&file).unwrap().append(&more).unwrap();
            let image = Image::parse(&added).unwrap();
            assert_eq!(image.section(".cmdline"), Some(&b"quiet"[..]));
            assert!(image.section(".text").is_some_and(|code| code.len() >= 11));
            assert!(image.checksum_is_right() && !image.is_signed());
            assert_eq!(image.sections()[1].address, 2 * SECTION_ALIGNMENT);
        }
    }
}
