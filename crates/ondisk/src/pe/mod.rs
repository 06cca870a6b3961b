//! PE32+ files: reading sections, and appending those that make a stub a unified kernel image.
//!
//! Owns: section table, sizes and checksum; the file's own code and data are copied as they are.
//! Does not: relocate, read imports.
//! Order: sections follow each other in memory and in the file as given; a caller puts `.linux` last, because the
//! kernel may use memory behind its image.
//! Source: Microsoft PE format specification; the UAPI group's UKI specification for the sections' names.

mod append;
mod blank;
mod signature;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::field::{bytes, le16, le32};

pub use append::{Layout, NewSection, words};
pub use blank::blank;

/// Bytes of a section header.
const SECTION_BYTES: usize = 40;

/// Optional header of a 64-bit image.
const MAGIC_PE32_PLUS: u16 = 0x20b;

/// Most sections that are read; the loader of Windows stops at 96.
const MAX_SECTIONS: u16 = 96;

/// A section as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section<'a> {
    /// Its name without padding.
    pub name: &'a str,
    /// Where it lies in memory, from the image's base.
    pub address: u32,
    /// Bytes in memory.
    pub virtual_bytes: u32,
    /// Where it lies in the file.
    pub file_offset: u32,
    /// Its content: the shorter of what memory and file hold.
    pub content: &'a [u8],
}

/// Why a file is not taken or not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// No PE32+ image.
    NotPe,
    /// An alignment that is no power of two, or zero.
    Alignment,
    /// A section's place in the file or in memory is out of bounds.
    BadSection(String),
    /// The file carries a signature, which more sections would break.
    Signed,
    /// The table of signatures lies outside of the file or not at its end.
    Signature,
    /// No room in the headers for this many sections more.
    NoRoom(usize),
    /// A name that is empty, longer than 8 bytes or not ASCII.
    Name(String),
    /// A section of this name exists or is given twice.
    Duplicate(String),
    /// A section without content.
    Empty(String),
    /// The image grows beyond 4 GiB.
    TooLarge,
}

/// A PE32+ file whose headers and sections were checked.
#[derive(Debug, Clone)]
pub struct Image<'a> {
    file: &'a [u8],
    headers: Headers,
    sections: Vec<Section<'a>>,
}

/// Where in the file the headers lie and what they say.
#[derive(Debug, Clone, Copy)]
struct Headers {
    /// Offset of the signature `PE\0\0`.
    signature: usize,
    /// Offset of the optional header.
    optional: usize,
    /// Offset of the section table.
    table: usize,
    section_count: u16,
    section_alignment: u32,
    file_alignment: u32,
    /// First byte behind all headers that a section may use.
    headers_end: u32,
}

impl Headers {
    fn parse(file: &[u8]) -> Option<Self> {
        if bytes(file, 0, 2)? != b"MZ" {
            return None;
        }
        let signature = usize::try_from(le32(file, 60)?).ok()?;
        if bytes(file, signature, 4)? != b"PE\0\0" {
            return None;
        }
        let optional = signature.checked_add(24)?;
        if le16(file, optional)? != MAGIC_PE32_PLUS {
            return None;
        }
        Some(Self {
            signature,
            optional,
            table: optional.checked_add(usize::from(le16(file, signature + 20)?))?,
            section_count: le16(file, signature + 6)?,
            section_alignment: le32(file, optional + 32)?,
            file_alignment: le32(file, optional + 36)?,
            headers_end: le32(file, optional + 60)?,
        })
    }

    fn section_offset(&self, index: usize) -> Option<usize> {
        index.checked_mul(SECTION_BYTES)?.checked_add(self.table)
    }
}

impl<'a> Image<'a> {
    /// Reads headers and section table.
    pub fn parse(file: &'a [u8]) -> Result<Self, Error> {
        let headers = Headers::parse(file).ok_or(Error::NotPe)?;
        let alignments = [headers.section_alignment, headers.file_alignment];
        if !alignments.iter().all(|alignment| alignment.is_power_of_two()) {
            return Err(Error::Alignment);
        }
        if headers.section_count > MAX_SECTIONS {
            return Err(Error::NotPe);
        }
        let sections = (0..usize::from(headers.section_count)).map(|index| {
            let header = headers.section_offset(index).and_then(|at| bytes(file, at, SECTION_BYTES));
            read_section(file, header.ok_or(Error::NotPe)?)
        });
        let sections = sections.collect::<Result<_, _>>()?;
        Ok(Self { file, headers, sections })
    }

    /// The sections in the order of the table.
    #[must_use]
    pub fn sections(&self) -> &[Section<'a>] {
        &self.sections
    }

    /// The content of the section of this name.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&'a [u8]> {
        self.sections.iter().find(|section| section.name == name).map(|section| section.content)
    }

    /// Whether the stored checksum is right; firmware does not look at it, signing tools do.
    #[must_use]
    pub fn checksum_is_right(&self) -> bool {
        let at = self.headers.optional + 64;
        le32(self.file, at) == Some(checksum(self.file, at))
    }
}

fn to_u32(value: u64) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| Error::TooLarge)
}

fn read_section<'a>(file: &'a [u8], header: &'a [u8]) -> Result<Section<'a>, Error> {
    let name = bytes(header, 0, 8).unwrap_or(&[]);
    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
    let name =
        core::str::from_utf8(name).map_err(|_| Error::BadSection(String::from_utf8_lossy(name).into()))?;
    let bad = || Error::BadSection(name.into());
    let field = |at| le32(header, at).ok_or_else(bad);
    let (virtual_bytes, address, raw_bytes, file_offset) = (field(8)?, field(12)?, field(16)?, field(20)?);
    address.checked_add(virtual_bytes).ok_or_else(bad)?;
    let start = usize::try_from(file_offset).map_err(|_| bad())?;
    let length = usize::try_from(raw_bytes.min(virtual_bytes)).map_err(|_| bad())?;
    // A section without bytes of its own may point anywhere.
    let content = if length == 0 { &[] } else { bytes(file, start, length).ok_or_else(bad)? };
    Ok(Section { name, address, virtual_bytes, file_offset, content })
}

/// The sum of all 16-bit words with their carries, without the checksum's own four bytes, plus the length.
fn checksum(file: &[u8], own_offset: usize) -> u32 {
    folded(words_without(file, own_offset), file.len() as u64)
}

/// The sum of the file's words but the checksum's own two, which an image with headers at odd offsets has not.
fn words_without(file: &[u8], own_offset: usize) -> u64 {
    if own_offset % 2 == 1 {
        return words(file);
    }
    let own = |at| u64::from(le16(file, at).unwrap_or(0));
    words(file) - own(own_offset) - own(own_offset + 2)
}

fn folded(mut sum: u64, file_bytes: u64) -> u32 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Below 64 KiB by now; files beyond 4 GiB are refused earlier.
    u32::try_from(sum.wrapping_add(file_bytes)).unwrap_or(0)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pe: ")?;
        match self {
            Self::NotPe => f.write_str("no 64-bit PE image"),
            Self::Alignment => f.write_str("an alignment is no power of two"),
            Self::BadSection(name) => write!(f, "section {name} lies outside the file"),
            Self::Signed => f.write_str("the file is signed, sections cannot be added"),
            Self::Signature => f.write_str("the table of signatures is not at the end of the file"),
            Self::NoRoom(count) => write!(f, "no room in the headers for {count} more sections"),
            Self::Name(name) => write!(f, "{name:?} cannot be the name of a section"),
            Self::Duplicate(name) => write!(f, "two sections named {name}"),
            Self::Empty(name) => write!(f, "section {name} is empty"),
            Self::TooLarge => f.write_str("the image grows beyond 4 GiB"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
