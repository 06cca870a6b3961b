//! Checked fields over bytes: everything of a TPM is big-endian, a sized buffer has its length in front, in 16 bits.
//!
//! Fails by: `None` where bytes are missing; what is too long for its length field is a mistake in this crate alone.

use alloc::vec::Vec;

use zeroize::Zeroizing;

/// Bytes that are being put together. They may hold a secret.
#[derive(Clone, Default)]
pub(crate) struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    pub(crate) fn new() -> Self {
        // No command of ours is longer: what grows leaves copies behind.
        Self(Zeroizing::new(Vec::with_capacity(1024)))
    }

    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A sized buffer.
    pub(crate) fn sized(self, bytes: &[u8]) -> Self {
        let bytes = bytes.get(..usize::from(u16::MAX)).unwrap_or(bytes);
        self.u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX)).raw(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Bytes that are being read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn raw(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.raw(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A sized buffer.
    pub(crate) fn sized(&mut self) -> Option<&'a [u8]> {
        let count = self.u16()?;
        self.raw(count.into())
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_missing_bytes_are_none() {
        let writer = Writer::new().u8(1).u16(0x203).u32(0x0405_0607).sized(b"ab").raw(b"c");
        assert_eq!(writer.bytes(), b"\x01\x02\x03\x04\x05\x06\x07\x00\x02abc");
        let mut reader = Reader::new(writer.bytes());
        assert_eq!(
            (reader.u8(), reader.u16(), reader.u32(), reader.sized()),
            (Some(1), Some(0x203), Some(0x0405_0607), Some(&b"ab"[..]))
        );
        assert_eq!((reader.rest(), reader.u16(), reader.raw(1)), (&b"c"[..], None, Some(&b"c"[..])));
        assert_eq!(Reader::new(b"\x00\x05ab").sized(), None);
    }
}
