//! Changes to an input: of bytes, of lines, by words of the target, by pieces of another input.
//!
//! Does not: know a target; its words come with it.

use crate::Random;
use std::ops::Range;

/// Longest input that mutations make.
const MAX_BYTES: usize = 128 << 10;
/// Most changes at once.
const MOST_CHANGES: usize = 5;

/// Words that texts of every kind may stumble over.
const WORDS: &[&[u8]] = &[
    b":",
    b": ",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"&a ",
    b"*a",
    b"!x ",
    b"!!str ",
    b"|\n",
    b">-\n",
    b"\"",
    b"'",
    b"\t",
    b"- ",
    b"#",
    b"%YAML 1.1\n",
    b"\n",
    b"\r\n",
    b"\r",
    b"\0",
    b"...\n",
    b"---\n",
    b"<<: ",
    b"? ",
    b"\\x",
    b"\xff",
    b"\xc3",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"\xf0\x9f\xa7\xa8",
    b"~",
    b"null",
    b"true",
    b"-1",
    b"0x",
    b"0o7",
    b"1e3",
    b".inf",
    b"65536",
    b"4294967296",
    b"99999999999999999999",
    b"-9223372036854775809",
];

/// A changed copy of `input`; `other` is another input of the corpus.
pub(crate) fn mutated(input: &[u8], other: &[u8], words: &[&str], random: &mut Random) -> Vec<u8> {
    let mut out = input.to_vec();
    // Mostly one: what is good in many places and bad in one gets furthest.
    let most = random.below(MOST_CHANGES) + 1;
    for _ in 0..=random.below(most) {
        change(&mut out, other, words, random);
    }
    out.truncate(MAX_BYTES);
    out
}

fn change(out: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    match random.below(12) {
        0 => out.truncate(random.below(out.len() + 1)),
        1 => insert(out, WORDS[random.below(WORDS.len())], random),
        2 if !words.is_empty() => insert(out, words[random.below(words.len())].as_bytes(), random),
        3 => {
            let at = random.below(out.len());
            if let Some(byte) = out.get_mut(at) {
                *byte = random.byte();
            }
        }
        4 => {
            let cut = stretch(out.len(), 40, random);
            out.drain(cut);
        }
        5 => {
            let piece = out[stretch(out.len(), 200, random)].to_vec();
            insert(out, &piece, random);
        }
        6 => {
            let piece = &other[stretch(other.len(), 400, random)];
            insert(out, piece, random);
        }
        7 => move_line(out, random),
        8 => indent(out, random),
        9 => value(out, words, random),
        10 => number(out, random),
        _ => flip(out, random),
    }
}

fn insert(out: &mut Vec<u8>, piece: &[u8], random: &mut Random) {
    if out.len() + piece.len() <= MAX_BYTES {
        let at = random.below(out.len() + 1);
        out.splice(at..at, piece.iter().copied());
    }
}

/// A stretch of at most `most` of `length` bytes.
fn stretch(length: usize, most: usize, random: &mut Random) -> Range<usize> {
    let from = random.below(length + 1);
    from..(from + random.below(most)).min(length)
}

fn flip(out: &mut [u8], random: &mut Random) {
    let (at, bit) = (random.below(out.len()), random.below(8));
    if let Some(byte) = out.get_mut(at) {
        *byte ^= 1 << bit;
    }
}

/// Puts a number at the edge of something over 1, 2, 4 or 8 bytes, in either order of bytes.
fn number(out: &mut [u8], random: &mut Random) {
    let width = 1 << random.below(4);
    let edge = 1_u64 << random.below(8 * width);
    let value = match random.below(5) {
        0 => 0,
        1 => u64::MAX,
        2 => edge,
        3 => edge - 1,
        _ => u64::try_from(out.len()).unwrap_or(0),
    };
    let mut bytes = value.to_le_bytes();
    let bytes = &mut bytes[..width];
    if random.below(2) == 0 {
        bytes.reverse();
    }
    let at = random.below(out.len());
    for (to, from) in out.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

/// Where a random line stands, with its end.
fn line(text: &[u8], random: &mut Random) -> Range<usize> {
    let at = random.below(text.len());
    let from = text[..at].iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let to = text[at..].iter().position(|b| *b == b'\n').map_or(text.len(), |end| at + end + 1);
    from..to
}

/// Takes a line away, and puts it before another one, twice or not at all.
fn move_line(out: &mut Vec<u8>, random: &mut Random) {
    let range = line(out, random);
    let moved: Vec<u8> = out.drain(range).collect();
    for _ in 0..random.below(3) {
        let before = line(out, random).start;
        out.splice(before..before, moved.iter().copied());
    }
}

fn indent(out: &mut Vec<u8>, random: &mut Random) {
    let start = line(out, random).start;
    if random.below(2) == 0 {
        out.splice(start..start, *b"  ");
    } else if out[start..].starts_with(b"  ") {
        out.drain(start..start + 2);
    }
}

/// Puts a word where the value of a line `key: value` is.
fn value(out: &mut Vec<u8>, words: &[&str], random: &mut Random) {
    let range = line(out, random);
    let text = &out[range.clone()];
    let Some(colon) = text.windows(2).position(|pair| pair == b": ") else { return };
    let from = range.start + colon + 2;
    let to = if text.ends_with(b"\n") { range.end - 1 } else { range.end };
    let word = match words {
        [_, ..] if random.below(2) == 0 => words[random.below(words.len())].as_bytes(),
        _ => WORDS[random.below(WORDS.len())],
    };
    out.splice(from..to.max(from), word.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_input_is_too_short_or_too_long() {
        let mut random = Random::new(1);
        for input in ["", "\n", "a", "a: b\n", "a:\n  b: c\n"] {
            let changed: Vec<_> =
                (0..2000).map(|_| mutated(input.as_bytes(), b"", &["w"], &mut random)).collect();
            assert!(changed.iter().any(|c| c != input.as_bytes()));
        }
        let long = vec![b'a'; MAX_BYTES];
        assert!((0..200).all(|_| mutated(&long, &long, &[], &mut random).len() <= MAX_BYTES));
    }

    #[test]
    fn a_seed_repeats() {
        let change = |seed| mutated(b"a: b\nc: d\n", b"e", &["f"], &mut Random::new(seed));
        assert_eq!(change(3), change(3));
        assert!((0..50).any(|seed| change(seed) != change(3)));
    }
}
