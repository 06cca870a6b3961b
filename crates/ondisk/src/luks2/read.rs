//! Two copies of a header, and which of them counts.
//!
//! Owns: the choice. Both whole: the one with the higher epoch. One whole: that one. The other is then named in
//! [`Found::stale`], for the caller to write anew ([`Header::repair`]).
//! Fails by: telling what is wrong with each copy.
//! Source: specification §2.3.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::binary::{BINARY_BYTES, Binary, COPY_LENGTHS, Copy, Fault, is_whole};
use super::metadata::Metadata;
use super::{Header, validate};
use crate::ReadAt;

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The header that counts.
    pub header: Header,
    /// The copy that does not say the same, and why: `None` when it is whole but older.
    pub stale: Option<(Copy, Option<Fault>)>,
}

/// Neither copy can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderError {
    /// What is wrong with the first copy.
    pub first: Fault,
    /// What is wrong with the second. Where the first does not tell its place, the first whole magic number counts.
    pub second: Fault,
}

impl HeaderError {
    /// Nothing of LUKS was there at all.
    pub fn is_absence(&self) -> bool {
        self.first == Fault::NotThere && self.second == Fault::NotThere
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_absence() {
            return f.write_str("no LUKS2 header");
        }
        write!(f, "read LUKS2 header: first copy: {}; second copy: {}", self.first, self.second)
    }
}

impl core::error::Error for HeaderError {}

/// A copy whose bytes are whole and whose rules hold.
struct Whole {
    binary: Binary,
    metadata: Metadata,
}

/// Reads the header at the start of a device.
pub fn read(device: &mut impl ReadAt) -> Result<Found, HeaderError> {
    let first = copy(device, Copy::First, 0);
    let second = second(device, first.as_ref().ok());
    match (first, second) {
        (Ok(first), Ok(second)) if first.binary.epoch >= second.binary.epoch => {
            let stale = (first.binary.epoch > second.binary.epoch).then_some((Copy::Second, None));
            Ok(Found { header: header(first, second.binary.salt), stale })
        }
        (Ok(first), Ok(second)) => {
            let salts = [first.binary.salt, second.binary.salt];
            let header = Header { salts, ..header(second, salts[1]) };
            Ok(Found { header, stale: Some((Copy::First, None)) })
        }
        (Ok(first), Err(fault)) => {
            let salt = other_salt(&first.binary.salt);
            Ok(Found { header: header(first, salt), stale: Some((Copy::Second, Some(fault))) })
        }
        (Err(fault), Ok(second)) => {
            let salts = [other_salt(&second.binary.salt), second.binary.salt];
            let header = Header { salts, ..header(second, salts[1]) };
            Ok(Found { header, stale: Some((Copy::First, Some(fault))) })
        }
        (Err(first), Err(second)) => Err(HeaderError { first, second }),
    }
}

/// The second copy: where the first says, else at each place where it may be.
fn second(device: &mut impl ReadAt, first: Option<&Whole>) -> Result<Whole, Fault> {
    if let Some(first) = first {
        return copy(device, Copy::Second, first.binary.copy_bytes);
    }
    let mut worst = Fault::NotThere;
    for offset in COPY_LENGTHS {
        match copy(device, Copy::Second, offset) {
            Ok(whole) => return Ok(whole),
            // A small device ends before the later places.
            Err(Fault::NotThere | Fault::Read(_)) => {}
            Err(fault) if worst == Fault::NotThere => worst = fault,
            Err(_) => {}
        }
    }
    Err(worst)
}

fn copy(device: &mut impl ReadAt, which: Copy, offset: u64) -> Result<Whole, Fault> {
    let mut start = [0; BINARY_BYTES];
    device.read_at(offset, &mut start).map_err(Fault::Read)?;
    let binary = Binary::parse(&start, which, offset)?;
    let length = usize::try_from(binary.copy_bytes).map_err(|_| Fault::Length(binary.copy_bytes))?;
    let mut whole: Vec<u8> = vec![0; length];
    device.read_at(offset, &mut whole).map_err(Fault::Read)?;
    if !is_whole(&whole) {
        return Err(Fault::Checksum);
    }
    let json = whole.get(BINARY_BYTES..).unwrap_or_default();
    let metadata = validate::metadata(json, binary.copy_bytes).map_err(Fault::Metadata)?;
    Ok(Whole { binary, metadata })
}

fn header(whole: Whole, second_salt: [u8; 64]) -> Header {
    let Whole { binary, metadata } = whole;
    Header {
        uuid: binary.uuid,
        label: binary.label,
        subsystem: binary.subsystem,
        epoch: binary.epoch,
        metadata,
        copy_bytes: binary.copy_bytes,
        salts: [binary.salt, second_salt],
    }
}

/// A salt for a copy whose own is lost. It only has to differ from the other's.
fn other_salt(known: &[u8; 64]) -> [u8; 64] {
    known.map(|byte| !byte)
}
