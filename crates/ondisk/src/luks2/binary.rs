//! The binary part of a header copy: what tells where the copy is, which is newer, and whether it is whole.
//!
//! Source: specification §2.1. Integers are big-endian, texts end with a zero byte or the field.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use sha2::{Digest as _, Sha256};

use crate::field::{array, be16, be64, bytes, put};

/// Length of the binary part.
pub(super) const BINARY_BYTES: usize = 4096;

// magic (6 bytes at 0), version (u16 at 6), length of the copy (u64 at 8), epoch (u64 at 16), label (48 at 24), checksum's
// name (32 at 72), salt (64 at 104), UUID (40 at 168), subsystem (48 at 208), offset of this copy (u64 at 256), checksum (64
// at 448); the rest is zero.
const VERSION: usize = 6;
const LENGTH: usize = 8;
const EPOCH: usize = 16;
const LABEL: (usize, usize) = (24, 48);
const ALGORITHM: (usize, usize) = (72, 32);
const SALT: usize = 104;
const UUID: (usize, usize) = (168, 40);
const SUBSYSTEM: (usize, usize) = (208, 48);
const OFFSET: usize = 256;
const CHECKSUM: (usize, usize) = (448, 64);

/// Lengths that a copy may have. A first copy that is lost leaves these as the places to look for the second.
pub(super) const COPY_LENGTHS: [u64; 9] =
    [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];

/// Which of the two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Copy {
    /// At the start of the device.
    First,
    /// Behind the first.
    Second,
}

impl Copy {
    const fn magic(self) -> &'static [u8; 6] {
        match self {
            Self::First => b"LUKS\xba\xbe",
            Self::Second => b"SKUL\xba\xbe",
        }
    }

    /// Where it is among copies of this length, in bytes.
    pub(super) const fn offset(self, copy_bytes: u64) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => copy_bytes,
        }
    }
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first copy",
            Self::Second => "second copy",
        })
    }
}

/// What is wrong with a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No magic number.
    NotThere,
    /// Another version of LUKS.
    Version(u16),
    /// A length that no copy has.
    Length(u64),
    /// It says that it belongs elsewhere.
    Offset(u64),
    /// A checksum by another hash than SHA-256.
    Algorithm(String),
    /// The bytes are not those that were written.
    Checksum,
    /// It could not be read.
    Read(crate::ReadError),
    /// The JSON is none, or breaks a rule.
    Metadata(super::Invalid),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotThere => f.write_str("no magic number"),
            Self::Version(version) => write!(f, "version {version}, not 2"),
            Self::Length(length) => write!(f, "impossible length of {length} bytes"),
            Self::Offset(offset) => write!(f, "made for offset {offset}"),
            Self::Algorithm(name) => write!(f, "checksum {name:?}, not \"sha256\""),
            Self::Checksum => f.write_str("checksum does not match"),
            Self::Read(error) => write!(f, "{error}"),
            Self::Metadata(invalid) => write!(f, "{invalid}"),
        }
    }
}

/// The values of a binary part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binary {
    pub(super) copy_bytes: u64,
    pub(super) epoch: u64,
    pub(super) label: String,
    pub(super) salt: [u8; 64],
    pub(super) uuid: String,
    pub(super) subsystem: String,
}

impl Binary {
    /// Reads what stands before the JSON; its checksum is not known yet.
    pub(super) fn parse(from: &[u8], copy: Copy, offset: u64) -> Result<Self, Fault> {
        if bytes(from, 0, copy.magic().len()) != Some(copy.magic()) {
            return Err(Fault::NotThere);
        }
        let short = || Fault::NotThere;
        let version = be16(from, VERSION).ok_or_else(short)?;
        if version != 2 {
            return Err(Fault::Version(version));
        }
        let copy_bytes = be64(from, LENGTH).ok_or_else(short)?;
        if !COPY_LENGTHS.contains(&copy_bytes) {
            return Err(Fault::Length(copy_bytes));
        }
        let stated = be64(from, OFFSET).ok_or_else(short)?;
        if stated != offset || offset != copy.offset(copy_bytes) {
            return Err(Fault::Offset(stated));
        }
        let algorithm = text(from, ALGORITHM);
        if algorithm != "sha256" {
            return Err(Fault::Algorithm(algorithm));
        }
        Ok(Self {
            copy_bytes,
            epoch: be64(from, EPOCH).ok_or_else(short)?,
            label: text(from, LABEL),
            salt: array(from, SALT).ok_or_else(short)?,
            uuid: text(from, UUID),
            subsystem: text(from, SUBSYSTEM),
        })
    }

    /// A whole copy, with the JSON's bytes and the checksum. `None` if the JSON and its final zero do not fit.
    pub(super) fn copy(&self, copy: Copy, json: &[u8]) -> Option<Vec<u8>> {
        let length = usize::try_from(self.copy_bytes).ok()?;
        if json.len() >= length.checked_sub(BINARY_BYTES)? {
            return None;
        }
        let mut whole = vec![0; length];
        put(&mut whole, 0, copy.magic());
        put(&mut whole, VERSION, &2_u16.to_be_bytes());
        put(&mut whole, LENGTH, &self.copy_bytes.to_be_bytes());
        put(&mut whole, EPOCH, &self.epoch.to_be_bytes());
        put_text(&mut whole, LABEL, &self.label);
        put_text(&mut whole, ALGORITHM, "sha256");
        put(&mut whole, SALT, &self.salt);
        put_text(&mut whole, UUID, &self.uuid);
        put_text(&mut whole, SUBSYSTEM, &self.subsystem);
        put(&mut whole, OFFSET, &copy.offset(self.copy_bytes).to_be_bytes());
        put(&mut whole, BINARY_BYTES, json);
        let sum = checksum(&whole);
        put(&mut whole, CHECKSUM.0, &sum);
        Some(whole)
    }
}

/// Whether the bytes of a whole copy are those that were written.
pub(super) fn is_whole(copy: &[u8]) -> bool {
    bytes(copy, CHECKSUM.0, 32) == Some(&checksum(copy))
}

/// SHA-256 of the copy with its checksum field zero.
fn checksum(copy: &[u8]) -> [u8; 32] {
    let (start, length) = CHECKSUM;
    let mut hash = Sha256::new();
    hash.update(copy.get(..start).unwrap_or_default());
    hash.update([0; CHECKSUM.1]);
    hash.update(copy.get(start + length..).unwrap_or_default());
    hash.finalize().into()
}

fn text(from: &[u8], (offset, width): (usize, usize)) -> String {
    let field = bytes(from, offset, width).unwrap_or_default();
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or_default()).into_owned()
}

/// Cut to the field, whose last byte stays zero.
fn put_text(into: &mut [u8], (offset, width): (usize, usize), text: &str) {
    let end = text.floor_char_boundary(width - 1);
    put(into, offset, text.get(..end).unwrap_or_default().as_bytes());
}
