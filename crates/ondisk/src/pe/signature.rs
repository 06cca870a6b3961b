//! Signatures in PE files: what is hashed, and where a signature lies.
//!
//! Owns: Authenticode's digest, the certificate table. Does not: make or check signatures; that takes keys.
//! Order: nothing may be appended behind the table, so a file is signed last; a second signature is added to the table.
//! Source: Microsoft PE format, "The Attribute Certificate Table" and "Certificate Data"; Windows Authenticode Portable
//! Executable Signature Format, "Calculating the PE Image Hash".

use alloc::vec::Vec;

use super::{Error, Image, checksum, to_u32};
use crate::Digest;
use crate::field::{bytes, le16, le32, put, round_up};

/// Offset of data directory 4, the certificate table's, in the optional header.
const DIRECTORY: usize = 144;
/// Entries of the table begin and end here.
const STEP_BYTES: u64 = 8;
/// Length, revision and type of an entry.
const HEADER_BYTES: usize = 8;
const REVISION_2: u16 = 0x0200;
const TYPE_PKCS7: u16 = 0x0002;

impl<'a> Image<'a> {
    /// Whether there is a table of signatures.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.table_start().is_some()
    }

    /// The signatures, each a PKCS #7 message with padding behind it.
    ///
    /// # Errors
    /// [`Error::Signature`] if the table is not one.
    pub fn signatures(&self) -> Result<Vec<&'a [u8]>, Error> {
        let Some(start) = self.table_start() else { return Ok(Vec::new()) };
        let mut rest = self.file.get(start..start + self.table_bytes()).ok_or(Error::Signature)?;
        let mut found = Vec::new();
        while !rest.is_empty() {
            let length =
                le32(rest, 0).and_then(|length| usize::try_from(length).ok()).ok_or(Error::Signature)?;
            let content = rest.get(HEADER_BYTES..length).ok_or(Error::Signature)?;
            if le16(rest, 6) == Some(TYPE_PKCS7) {
                found.push(content);
            }
            let step = round_up(length as u64, STEP_BYTES).and_then(|step| usize::try_from(step).ok());
            rest = rest.get(step.ok_or(Error::Signature)?..).unwrap_or_default();
        }
        Ok(found)
    }

    /// What a signature is of: everything but the checksum and the table, filled up to whole steps.
    ///
    /// # Errors
    /// [`Error::BadSection`] or [`Error::Signature`] for places outside of the file.
    pub fn digest(&self) -> Result<Digest, Error> {
        let directory = self.headers.optional + DIRECTORY;
        let sum = self.headers.optional + 64;
        let headers_end = usize::try_from(self.headers.headers_end).map_err(|_| Error::NotPe)?;
        let end = self.table_start().unwrap_or(self.file.len());
        let piece = |from: usize, to: usize| self.file.get(from..to).ok_or(Error::NotPe);
        let mut pieces =
            alloc::vec![piece(0, sum)?, piece(sum + 4, directory)?, piece(directory + 8, headers_end)?];
        // Sections in the order of the file, then whatever lies behind them.
        let mut places = Vec::new();
        for index in 0..self.sections.len() {
            let at = self.headers.section_offset(index).ok_or(Error::NotPe)?;
            let field = |offset| {
                le32(self.file, at + offset).and_then(|value| usize::try_from(value).ok()).ok_or(Error::NotPe)
            };
            let (length, start) = (field(16)?, field(20)?);
            if length > 0 {
                places.push((start, length));
            }
        }
        places.sort_unstable();
        let mut reached = headers_end;
        for (start, length) in places {
            let name = || Error::BadSection("in the file's order".into());
            pieces.push(bytes(self.file, start, length).ok_or_else(name)?);
            reached = reached.max(start.saturating_add(length));
        }
        if reached < end {
            pieces.push(piece(reached, end)?);
        }
        let padding = [0; 8];
        let missing = round_up(end as u64, STEP_BYTES).ok_or(Error::TooLarge)? - end as u64;
        pieces.push(padding.get(..usize::try_from(missing).unwrap_or(0)).unwrap_or_default());
        Ok(Digest::sha256(&pieces))
    }

    /// The file with this signature behind those that it has.
    ///
    /// # Errors
    /// [`Error::Signature`] if the table is not at the end of the file, where it has to be.
    pub fn with_signature(&self, pkcs7: &[u8]) -> Result<Vec<u8>, Error> {
        let mut file = self.file.to_vec();
        let start = match self.table_start() {
            Some(start) if start + self.table_bytes() == file.len() => start,
            Some(_) => return Err(Error::Signature),
            None => {
                fill(&mut file)?;
                file.len()
            }
        };
        let length = to_u32((HEADER_BYTES + pkcs7.len()) as u64)?;
        file.extend_from_slice(&length.to_le_bytes());
        file.extend_from_slice(&REVISION_2.to_le_bytes());
        file.extend_from_slice(&TYPE_PKCS7.to_le_bytes());
        file.extend_from_slice(pkcs7);
        fill(&mut file)?;
        let directory = self.headers.optional + DIRECTORY;
        put(&mut file, directory, &to_u32(start as u64)?.to_le_bytes());
        let table_bytes = to_u32((file.len() - start) as u64)?;
        put(&mut file, directory + 4, &table_bytes.to_le_bytes());
        let sum = checksum(&file, self.headers.optional + 64);
        put(&mut file, self.headers.optional + 64, &sum.to_le_bytes());
        Ok(file)
    }

    /// The file without its signatures.
    ///
    /// # Errors
    /// [`Error::Signature`] if the table is not at the end of the file.
    pub fn without_signatures(&self) -> Result<Vec<u8>, Error> {
        let mut file = self.file.to_vec();
        let Some(start) = self.table_start() else { return Ok(file) };
        if start + self.table_bytes() != file.len() {
            return Err(Error::Signature);
        }
        file.truncate(start);
        put(&mut file, self.headers.optional + DIRECTORY, &[0; 8]);
        let sum = checksum(&file, self.headers.optional + 64);
        put(&mut file, self.headers.optional + 64, &sum.to_le_bytes());
        Ok(file)
    }

    fn table_start(&self) -> Option<usize> {
        let start = le32(self.file, self.headers.optional + DIRECTORY)?;
        usize::try_from(start).ok().filter(|start| *start != 0)
    }

    fn table_bytes(&self) -> usize {
        let length = le32(self.file, self.headers.optional + DIRECTORY + 4).unwrap_or(0);
        usize::try_from(length).unwrap_or(0)
    }
}

/// Fills a file up to a whole step.
fn fill(file: &mut Vec<u8>) -> Result<(), Error> {
    let length = round_up(file.len() as u64, STEP_BYTES).ok_or(Error::TooLarge)?;
    file.resize(usize::try_from(length).map_err(|_| Error::TooLarge)?, 0);
    Ok(())
}
