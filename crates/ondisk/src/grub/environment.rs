//! GRUB's environment block: 1024 bytes with names and values.
//!
//! Owns: the block that a disk begins with, reading what GRUB wrote into it.
//! Does not: change a block; GRUB does that, in place, sector by sector.
//! Format: a line that says what it is, `NAME=VALUE` lines in which a backslash precedes a backslash or a line end, `#` up to
//! the end. A power cut between the two sectors cannot mix values as long as all lines lie in the first one.
//! Source: GRUB 2.12, `lib/envblk.c`, `include/grub/lib/envblk.h`.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::SECTOR_BYTES;

/// Every block begins with this.
const SIGNATURE: &[u8] = b"# GRUB Environment Block\n";

/// Length of a block.
const BLOCK_BYTES: usize = 1024;

/// What stands where no value is.
const FILLER: u8 = b'#';

/// How much room values have within the first sector, each as `NAME=VALUE` and a line end.
pub const VALUES_BYTES: usize = SECTOR_BYTES - SIGNATURE.len();

/// The values of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    values: Vec<(String, String)>,
}

impl Environment {
    /// A block without values.
    #[must_use]
    pub fn empty_block() -> Vec<u8> {
        let mut block = vec![FILLER; BLOCK_BYTES];
        if let Some(start) = block.get_mut(..SIGNATURE.len()) {
            start.copy_from_slice(SIGNATURE);
        }
        block
    }

    /// Reads a block. `None`: GRUB would not take it either.
    #[must_use]
    pub fn parse(block: &[u8]) -> Option<Self> {
        let mut letters = block.strip_prefix(SIGNATURE)?.iter().copied();
        let mut values = Vec::new();
        let mut line = Vec::new();
        while let Some(byte) = letters.next() {
            match byte {
                b'\\' => line.extend(letters.next()),
                b'\n' => {
                    let text = String::from_utf8_lossy(&core::mem::take(&mut line)).into_owned();
                    // What is no value is a comment.
                    if let Some((name, value)) = text.split_once('=').filter(|_| !text.starts_with('#')) {
                        values.push((name.into(), value.into()));
                    }
                }
                other => line.push(other),
            }
        }
        Some(Self { values })
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}
