//! An input as fields: what a target that needs more than bytes takes its choices from.
//!
//! Does not: fail; behind its end an input is zeros and empty pieces, so that every prefix of one is an input too.

/// Takes fields off the front of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn of(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// So many bytes, or all that are left.
    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Big-endian, as most of what targets read is.
    pub(crate) fn u16(&mut self) -> u16 {
        u16::from(self.u8()) << 8 | u16::from(self.u8())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        (0..8).fold(0, |value, _| value << 8 | u64::from(self.u8()))
    }

    /// A length of two bytes, and so many bytes.
    pub(crate) fn sized(&mut self) -> &'a [u8] {
        let count = self.u16();
        self.bytes(count.into())
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// A sized piece, as [`Fields::sized`] takes it: for seeds.
pub(crate) fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a piece of a seed has less than 64 KiB");
    [&length.to_be_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_ends_early_is_zeros() {
        let mut fields = Fields::of(b"\x01\x02\x03\x00\x02ab\x00\x09c");
        assert_eq!((fields.u8(), fields.u16(), fields.sized()), (1, 0x203, &b"ab"[..]));
        assert_eq!((fields.sized(), fields.is_empty(), fields.u64()), (&b"c"[..], true, 0));
        assert_eq!(Fields::of(&sized(b"ab")).sized(), b"ab");
    }
}
