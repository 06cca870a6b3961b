//! Which processors a module file is for, or a program.
//!
//! Owns: the field `e_machine` of an ELF header, of 32 and 64 bits and in both orders of bytes: what is for other machines
//! should be called so, whatever it is.
//! Does not: look at anything behind the header.
//! Fails by: `None` for what is no ELF file.
//! Source: elf(5); System V ABI (gabi), "ELF Header"; kernel include/uapi/linux/elf-em.h for the numbers.

use core::fmt;

use crate::Architecture;
use crate::field::{bytes, le16};

/// How an ELF file begins.
const MAGIC: &[u8] = b"\x7fELF";
/// Offset of the order of bytes (1 byte), `EI_DATA`: 2 is the highest byte first, `ELFDATA2MSB`.
const ORDER_AT: usize = 5;
const HIGHEST_FIRST: u8 = 2;
/// Offset of `e_machine` (2 bytes), which is the same with 32 bits and 64.
const MACHINE_AT: usize = 0x12;
/// Bytes of a file that [`machine`] looks at.
pub const MACHINE_BYTES: usize = MACHINE_AT + 2;

/// `EM_X86_64`.
const X86_64: u16 = 62;
/// `EM_AARCH64`.
const AARCH64: u16 = 183;

/// Processors, as an ELF file names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// Some that images are made for.
    Of(Architecture),
    /// Others, by their number.
    Other(u16),
}

/// Which processors an ELF file is for, by its first [`MACHINE_BYTES`], unpacked.
#[must_use]
pub fn machine(file: &[u8]) -> Option<Machine> {
    if !file.starts_with(MAGIC) {
        return None;
    }
    let number = le16(file, MACHINE_AT)?;
    let is_swapped = bytes(file, ORDER_AT, 1)? == [HIGHEST_FIRST];
    Some(match if is_swapped { number.swap_bytes() } else { number } {
        X86_64 => Machine::Of(Architecture::Amd64),
        AARCH64 => Machine::Of(Architecture::Arm64),
        other => Machine::Other(other),
    })
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(architecture) => f.write_str(architecture.name()),
            Self::Other(number) => write!(f, "other processors (number {number} of ELF)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// A header of 64 bits with this order of bytes and these two bytes for the machine.
    fn header(order: u8, machine: [u8; 2]) -> [u8; 64] {
        let mut header = [0; 64];
        header[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, order]);
        header[MACHINE_AT..MACHINE_AT + 2].copy_from_slice(&machine);
        header
    }

    #[test]
    fn modules_say_what_they_are_for() {
        for (order, bytes, wanted, name) in [
            (1, [62, 0], Machine::Of(Architecture::Amd64), "amd64"),
            (1, [183, 0], Machine::Of(Architecture::Arm64), "arm64"),
            (1, [243, 0], Machine::Other(243), "other processors (number 243 of ELF)"),
            // s390 has the highest byte first.
            (2, [0, 22], Machine::Other(22), "other processors (number 22 of ELF)"),
        ] {
            let found = machine(&header(order, bytes)).unwrap();
            assert_eq!((found, found.to_string().as_str()), (wanted, name));
        }
    }

    #[test]
    fn what_is_no_elf_file_says_nothing() {
        let whole = header(1, [62, 0]);
        assert!(machine(&whole[..MACHINE_BYTES]).is_some());
        for length in 0..MACHINE_BYTES {
            assert_eq!(machine(&whole[..length]), None, "{length} bytes");
        }
        assert_eq!(machine(&[b'#'; 64]), None);
    }
}
