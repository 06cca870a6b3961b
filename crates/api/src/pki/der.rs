//! The few DER elements that keys and subjects are made of.
//!
//! Owns: reading and writing tag, length and content. Does not: know what an element means.
//! Fails by: `None` for bytes that are no element.
//! Source: X.690 §8.1.

use zeroize::Zeroizing;

/// A constructed sequence.
pub(super) const SEQUENCE: u8 = 0x30;
/// A constructed set.
pub(super) const SET: u8 = 0x31;
/// A bit string.
pub(super) const BIT_STRING: u8 = 0x03;
/// An octet string.
pub(super) const OCTET_STRING: u8 = 0x04;
/// Text in UTF-8.
pub(super) const UTF8_STRING: u8 = 0x0c;

/// Tag and content of the first DER element, and what follows it.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |acc, d| acc << 8 | usize::from(*d)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// An element, wiped when it is dropped: it may be a key.
pub(super) fn der(tag: u8, content: &[u8]) -> Zeroizing<Vec<u8>> {
    let bytes = content.len().to_be_bytes();
    let significant = &bytes[bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len() - 1)..];
    let mut out = Zeroizing::new(vec![tag]);
    match significant {
        [short] if *short < 0x80 => out.push(*short),
        long => {
            // At most eight length bytes: usize.
            out.push(0x80 | u8::try_from(long.len()).unwrap_or(8));
            out.extend_from_slice(long);
        }
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_lengths() {
        assert_eq!(der(4, &[]).as_slice(), [4, 0]);
        assert_eq!(der(4, &[9; 127])[..2], [4, 127]);
        assert_eq!(der(4, &[9; 128])[..3], [4, 0x81, 128]);
        assert_eq!(der(4, &[9; 300])[..4], [4, 0x82, 1, 44]);
    }
}
