//! The few DER elements that messages are made of.
//!
//! Source: X.690 §8, §10, §11.6 (a set's members are in the order of their bytes).

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const NULL: u8 = 0x05;
pub(super) const IDENTIFIER: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// Tag of a constructed element that a message numbers itself.
pub(super) fn numbered(number: u8) -> u8 {
    0xa0 | number
}

/// Tag of a plain one.
pub(super) fn numbered_plain(number: u8) -> u8 {
    0x80 | number
}

/// An element of these pieces.
pub(super) fn element(tag: u8, pieces: &[&[u8]]) -> Vec<u8> {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short @ 0..0x80) => out.push(short),
        _ => {
            let digits: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            // At most eight of them: a usize.
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or(8));
            out.extend(digits);
        }
    }
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
    out
}

/// A set, whose members are sorted.
pub(super) fn set(mut members: Vec<Vec<u8>>) -> Vec<u8> {
    members.sort();
    element(SET, &members.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// An object identifier.
pub(super) fn identifier(arcs: &[u32]) -> Vec<u8> {
    let [first, second, rest @ ..] = arcs else { return element(IDENTIFIER, &[]) };
    let mut content = Vec::new();
    for arc in std::iter::once(first * 40 + second).chain(rest.iter().copied()) {
        let groups: Vec<u32> = (0..5).rev().map(|group| arc >> (7 * group)).collect();
        let begin = groups.iter().position(|group| *group != 0).unwrap_or(4);
        for (at, group) in groups.iter().enumerate().skip(begin) {
            let more = if at < 4 { 0x80 } else { 0 };
            content.push(more | u8::try_from(group & 0x7f).unwrap_or(0));
        }
    }
    element(IDENTIFIER, &[&content])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_those_of_the_standard() {
        assert_eq!(
            identifier(&[1, 2, 840, 113_549, 1, 7, 2]),
            [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 7, 2]
        );
        assert_eq!(identifier(&[2, 5, 4, 3]), [6, 3, 0x55, 4, 3]);
        assert_eq!(element(OCTET_STRING, &[&[1], &[2, 3]]), [4, 3, 1, 2, 3]);
        assert_eq!(element(OCTET_STRING, &[&[9; 128]])[..3], [4, 0x81, 128]);
        assert_eq!(element(OCTET_STRING, &[&[9; 300]])[..4], [4, 0x82, 1, 44]);
        assert_eq!(set(vec![vec![2, 1, 9], vec![2, 1, 3]]), [SET, 6, 2, 1, 3, 2, 1, 9]);
    }
}
