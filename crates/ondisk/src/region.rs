//! Pieces of a device or image: what a writer hands out and what a reader asks for.
//!
//! Owns: [`Extent`], [`Step`] and [`ReadAt`], the only ways in which formats larger than a slice meet the outside.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

/// Bytes that belong at an offset of a device or image. What no extent names is not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent<'a> {
    /// Where the bytes go, in bytes from the start.
    pub offset: u64,
    /// What goes there.
    pub bytes: Cow<'a, [u8]>,
}

impl<'a> Extent<'a> {
    /// An extent that owns or borrows its bytes.
    pub fn new(offset: u64, bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { offset, bytes: bytes.into() }
    }

    /// The same bytes `by` further on, for example in the partition that holds them.
    #[must_use]
    pub fn shifted(self, by: u64) -> Self {
        Self { offset: self.offset.saturating_add(by), bytes: self.bytes }
    }
}

/// One step of a change to what a device already holds: writes that may reach it in any order, none of them in part
/// of a sector. All must be durable before the next step begins.
pub type Step<'a> = Vec<Extent<'a>>;

/// A read that did not deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadError {
    /// Where the read started, in bytes.
    pub offset: u64,
    /// How many bytes were wanted.
    pub length: usize,
    /// The system's error number; 0 for an end that came too early.
    pub errno: i32,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read {} bytes at {}: ", self.length, self.offset)?;
        match self.errno {
            0 => f.write_str("end of device"),
            errno => write!(f, "errno {errno}"),
        }
    }
}

impl core::error::Error for ReadError {}

/// Something that can be read at any offset: a device, a file, a slice.
pub trait ReadAt {
    /// Fills `buffer` from `offset` or fails; there are no short reads.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError>;
}

impl ReadAt for &[u8] {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let failed = ReadError { offset, length: buffer.len(), errno: 0 };
        let start = usize::try_from(offset).map_err(|_| failed)?;
        let end = start.checked_add(buffer.len()).ok_or(failed)?;
        buffer.copy_from_slice(self.get(start..end).ok_or(failed)?);
        Ok(())
    }
}

impl<R: ReadAt + ?Sized> ReadAt for &mut R {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        (**self).read_at(offset, buffer)
    }
}
