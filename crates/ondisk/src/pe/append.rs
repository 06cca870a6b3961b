//! Sections behind those of an image: where they lie, and the headers that say so.
//!
//! Owns: the layout, which needs lengths alone, the table and the sizes in the headers, the checksum.
//! Does not: need the contents in memory; who sends a file piece by piece takes [`Image::layout`] and [`Image::head`].
//! Source: Microsoft PE format specification.

use alloc::vec::Vec;

use super::{Error, Image, MAX_SECTIONS, SECTION_BYTES, checksum, folded, to_u32, words_without};
use crate::field::{le32, put, round_up};

/// Initialised data, readable.
const DATA_READ: u32 = 0x4000_0040;

/// A section to append.
#[derive(Debug, Clone, Copy)]
pub struct NewSection<'a> {
    /// 1 to 8 ASCII bytes, `.linux`.
    pub name: &'a str,
    /// What it holds; not nothing.
    pub content: &'a [u8],
}

/// Where new sections lie. Between them, and behind the last, the file has zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout<'n> {
    placed: Vec<Placed<'n>>,
    file_bytes: u64,
    /// `SizeOfImage`.
    memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed<'n> {
    name: &'n str,
    bytes: u64,
    address: u64,
    /// In the file, with padding behind it up to `end`.
    offset: u64,
    end: u64,
}

impl Layout<'_> {
    /// Length of the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Where in the file each section's content begins, in the order given.
    pub fn offsets(&self) -> impl Iterator<Item = u64> {
        self.placed.iter().map(|placed| placed.offset)
    }
}

/// The sum of the 16-bit words of a piece that begins at an even offset of the file.
#[must_use]
pub fn words(piece: &[u8]) -> u64 {
    let (pairs, rest) = piece.as_chunks::<2>();
    let sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_le_bytes(*pair))).sum();
    sum + rest.iter().map(|byte| u64::from(*byte)).sum::<u64>()
}

impl Image<'_> {
    /// The file with these sections behind its own.
    ///
    /// # Errors
    /// [`Error`] names the section that cannot be added.
    pub fn append(&self, new: &[NewSection<'_>]) -> Result<Vec<u8>, Error> {
        let lengths: Vec<_> =
            new.iter().map(|section| (section.name, section.content.len() as u64)).collect();
        let layout = self.layout(&lengths)?;
        let mut file = self.unsummed(&layout)?;
        for (section, placed) in new.iter().zip(&layout.placed) {
            fill(&mut file, placed.offset)?;
            file.extend_from_slice(section.content);
        }
        fill(&mut file, layout.file_bytes)?;
        let at = self.headers.optional + 64;
        let sum = checksum(&file, at);
        put(&mut file, at, &sum.to_le_bytes());
        Ok(file)
    }

    /// Where sections of these names and lengths would lie.
    ///
    /// # Errors
    /// [`Error`] names the section that cannot be added.
    pub fn layout<'n>(&self, new: &[(&'n str, u64)]) -> Result<Layout<'n>, Error> {
        self.check_new(new)?;
        let in_memory = |at| round_up(at, self.headers.section_alignment.into()).ok_or(Error::TooLarge);
        let in_file = |at| round_up(at, self.headers.file_alignment.into()).ok_or(Error::TooLarge);
        let (mut address, mut file_bytes) = (u64::from(self.memory_end()), self.file.len() as u64);
        let mut placed = Vec::new();
        for (name, bytes) in new {
            address = in_memory(address)?;
            let offset = in_file(file_bytes)?;
            file_bytes = in_file(offset.checked_add(*bytes).ok_or(Error::TooLarge)?)?;
            placed.push(Placed { name, bytes: *bytes, address, offset, end: file_bytes });
            address = address.checked_add(*bytes).ok_or(Error::TooLarge)?;
        }
        to_u32(file_bytes)?;
        Ok(Layout { placed, file_bytes, memory_bytes: in_memory(address)? })
    }

    /// The image's own bytes with the headers of that layout; `content` is the sum of the [`words`] of all contents.
    ///
    /// # Errors
    /// [`Error::Alignment`] where contents begin at odd offsets, which the sum does not know.
    pub fn head(&self, layout: &Layout<'_>, content: u64) -> Result<Vec<u8>, Error> {
        if self.headers.file_alignment < 2 {
            return Err(Error::Alignment);
        }
        let mut head = self.unsummed(layout)?;
        let at = self.headers.optional + 64;
        let sum = folded(words_without(&head, at) + content, layout.file_bytes);
        put(&mut head, at, &sum.to_le_bytes());
        Ok(head)
    }

    /// The image's own bytes with the layout's headers and the old checksum.
    fn unsummed(&self, layout: &Layout<'_>) -> Result<Vec<u8>, Error> {
        let mut file = self.file.to_vec();
        for (index, placed) in (self.sections.len()..).zip(&layout.placed) {
            let at = self.headers.section_offset(index).ok_or(Error::TooLarge)?;
            put(&mut file, at, &header(placed)?);
        }
        let optional = self.headers.optional;
        let count = self.sections.len() + layout.placed.len();
        let count = u16::try_from(count).map_err(|_| Error::TooLarge)?;
        put(&mut file, self.headers.signature + 6, &count.to_le_bytes());
        // SizeOfInitializedData, SizeOfImage.
        let added: u64 = layout.placed.iter().map(|placed| placed.bytes).sum();
        let data = u64::from(le32(&file, optional + 8).unwrap_or(0)) + added;
        put(&mut file, optional + 8, &to_u32(data)?.to_le_bytes());
        put(&mut file, optional + 56, &to_u32(layout.memory_bytes)?.to_le_bytes());
        Ok(file)
    }

    fn check_new(&self, new: &[(&str, u64)]) -> Result<(), Error> {
        for (index, (name, bytes)) in new.iter().enumerate() {
            let owned = || (*name).into();
            if !(1..=8).contains(&name.len()) || !name.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(Error::Name(owned()));
            }
            let earlier = new.iter().take(index).any(|(other, _)| other == name);
            if earlier || self.section(name).is_some() {
                return Err(Error::Duplicate(owned()));
            }
            if *bytes == 0 {
                return Err(Error::Empty(owned()));
            }
        }
        self.check_room(new.len())
    }

    /// The table may grow up to the end of the headers, or to the first section's bytes where those start earlier.
    fn check_room(&self, count: usize) -> Result<(), Error> {
        if self.is_signed() {
            return Err(Error::Signed);
        }
        let firsts = self.sections.iter().filter(|section| section.file_offset > 0).map(|s| s.file_offset);
        let limit = firsts.chain([self.headers.headers_end]).min().unwrap_or(0);
        let total = self.sections.len() + count;
        let end = self.headers.section_offset(total).and_then(|end| u32::try_from(end).ok());
        let fits =
            end.is_some_and(|end| end <= limit) && u16::try_from(total).is_ok_and(|n| n <= MAX_SECTIONS);
        if fits { Ok(()) } else { Err(Error::NoRoom(count)) }
    }

    fn memory_end(&self) -> u32 {
        let ends = self.sections.iter().map(|s| s.address.saturating_add(s.virtual_bytes));
        ends.max().unwrap_or(self.headers.headers_end)
    }
}

/// Zeros up to an offset.
fn fill(file: &mut Vec<u8>, to: u64) -> Result<(), Error> {
    file.resize(usize::try_from(to).map_err(|_| Error::TooLarge)?, 0);
    Ok(())
}

fn header(placed: &Placed<'_>) -> Result<[u8; SECTION_BYTES], Error> {
    let mut header = [0; SECTION_BYTES];
    put(&mut header, 0, placed.name.as_bytes());
    put(&mut header, 8, &to_u32(placed.bytes)?.to_le_bytes());
    put(&mut header, 12, &to_u32(placed.address)?.to_le_bytes());
    put(&mut header, 16, &to_u32(placed.end - placed.offset)?.to_le_bytes());
    put(&mut header, 20, &to_u32(placed.offset)?.to_le_bytes());
    put(&mut header, 36, &DATA_READ.to_le_bytes());
    Ok(header)
}
