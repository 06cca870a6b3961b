//! Bech32: bytes as letters that are told apart, with a checksum that finds up to four wrong ones.
//!
//! Owns: reading and writing. Does not: limit the length to 90, as age does not.
//! Fails by: [`Bech32Error`] with the position of a wrong character, counted from 1; its text is not repeated, since it may
//! be a secret's.
//! Source: BIP 173.

use zeroize::Zeroizing;

const ALPHABET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
/// Between the prefix and the data.
const SEPARATOR: char = '1';
const CHECKSUM_LENGTH: usize = 6;
/// The generator of the code, by the bits that leave the register.
const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];

/// Why a text is no Bech32 of that prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bech32Error {
    /// It begins otherwise.
    #[error("it does not begin with {0}1")]
    Prefix(&'static str),
    /// A character that is none of the 32.
    #[error("character {0} is none of bech32")]
    Character(usize),
    /// Capitals and small letters.
    #[error("character {0} is written large, others small: take one of both")]
    Case(usize),
    /// It is not whole, or something else.
    #[error("it has {have} characters, not {want}")]
    Length {
        /// How many there are.
        have: usize,
        /// How many there should be.
        want: usize,
    },
    /// The checksum, or the bits that are left over.
    #[error("its checksum does not match: a character is mistyped")]
    Checksum,
}

/// Bytes as text, in small letters.
pub(crate) fn encode(prefix: &str, bytes: &[u8]) -> Zeroizing<String> {
    let mut values = Zeroizing::new(Vec::with_capacity(length(bytes.len())));
    let (mut bits, mut count) = (0_u32, 0);
    for byte in bytes {
        (bits, count) = (bits << 8 | u32::from(*byte), count + 8);
        while count >= 5 {
            count -= 5;
            values.push(five(bits >> count));
        }
    }
    if count > 0 {
        values.push(five(bits << (5 - count)));
    }
    let sum = checksum(prefix, &values) ^ 1;
    for at in (0..CHECKSUM_LENGTH).rev() {
        values.push(five(sum >> (5 * at)));
    }
    // Long enough from the start: no copy of it is left behind.
    let mut text = Zeroizing::new(String::with_capacity(prefix.len() + 1 + values.len()));
    text.push_str(prefix);
    text.push(SEPARATOR);
    text.extend(values.iter().map(|value| char::from(ALPHABET[usize::from(*value)])));
    text
}

/// The `N` bytes of a text with this prefix.
pub(crate) fn decode<const N: usize>(
    prefix: &'static str,
    text: &str,
) -> Result<Zeroizing<[u8; N]>, Bech32Error> {
    let values = values(prefix, text)?;
    let want = prefix.len() + 1 + length(N);
    if values.len() != length(N) {
        return Err(Bech32Error::Length { have: text.chars().count(), want });
    }
    if checksum_of_all(prefix, &values) != 1 {
        return Err(Bech32Error::Checksum);
    }
    let mut bytes = Zeroizing::new([0; N]);
    let (mut bits, mut count, mut at) = (0_u32, 0, 0);
    for value in values.iter().take(values.len() - CHECKSUM_LENGTH) {
        (bits, count) = ((bits << 5 | u32::from(*value)) & 0xfff, count + 5);
        if count >= 8 {
            count -= 8;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = (bits >> count & 0xff) as u8;
            }
            at += 1;
        }
    }
    // What is behind the last byte has to be nothing, or one key would have several texts.
    if bits & ((1 << count) - 1) != 0 { Err(Bech32Error::Checksum) } else { Ok(bytes) }
}

/// Characters behind the separator.
const fn length(bytes: usize) -> usize {
    (bytes * 8).div_ceil(5) + CHECKSUM_LENGTH
}

fn values(prefix: &'static str, text: &str) -> Result<Zeroizing<Vec<u8>>, Bech32Error> {
    let is_upper = text.starts_with(char::is_uppercase);
    let begins = text.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix));
    if !begins || !text.get(prefix.len()..).is_some_and(|rest| rest.starts_with(SEPARATOR)) {
        return Err(Bech32Error::Prefix(prefix));
    }
    let mut values = Zeroizing::new(Vec::with_capacity(text.len()));
    for (at, character) in text.chars().enumerate() {
        if character.is_alphabetic() && character.is_uppercase() != is_upper {
            return Err(Bech32Error::Case(at + 1));
        }
        if at <= prefix.len() {
            continue;
        }
        let value = ALPHABET.iter().position(|letter| char::from(*letter) == character.to_ascii_lowercase());
        let value = value.and_then(|value| u8::try_from(value).ok());
        values.push(value.ok_or(Bech32Error::Character(at + 1))?);
    }
    Ok(values)
}

fn five(bits: u32) -> u8 {
    (bits & 31) as u8
}

/// Of data that has no checksum yet.
fn checksum(prefix: &str, values: &[u8]) -> u32 {
    [0; CHECKSUM_LENGTH].iter().fold(checksum_of_all(prefix, values), |sum, value| step(sum, *value))
}

fn checksum_of_all(prefix: &str, values: &[u8]) -> u32 {
    let high = prefix.bytes().map(|byte| byte >> 5);
    let low = prefix.bytes().map(|byte| byte & 31);
    let all = high.chain([0]).chain(low).chain(values.iter().copied());
    all.fold(1, step)
}

fn step(sum: u32, value: u8) -> u32 {
    let out = sum >> 25;
    let shifted = (sum & 0x1ff_ffff) << 5 ^ u32::from(value);
    GENERATOR
        .iter()
        .enumerate()
        .fold(shifted, |sum, (bit, with)| sum ^ if out >> bit & 1 == 1 { *with } else { 0 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of BIP 173's list, and of age's specification.
    #[test]
    fn known_texts_are_read() {
        assert_eq!(decode::<0>("a", "a12uel5l").unwrap().as_slice(), b"");
        assert_eq!(decode::<0>("a", "A12UEL5L").unwrap().as_slice(), b"");
        let text = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
        let bytes = decode::<32>("age", text).unwrap();
        assert_eq!(encode("age", bytes.as_slice()).as_str(), text);
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        let text = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
        let at = |text: &str| decode::<32>("age", text).unwrap_err();
        assert_eq!(at("AGE-SECRET-KEY-1"), Bech32Error::Prefix("age"));
        assert_eq!(at("ssh-ed25519 AAAA"), Bech32Error::Prefix("age"));
        assert_eq!(at("ag"), Bech32Error::Prefix("age"));
        assert_eq!(at("ä"), Bech32Error::Prefix("age"));
        assert_eq!(at(&text.replacen('k', "b", 1)), Bech32Error::Character(7));
        assert_eq!(at(&text.replacen('k', "ü", 1)), Bech32Error::Character(7));
        assert_eq!(at(&text.replacen('k', "K", 1)), Bech32Error::Case(7));
        assert_eq!(at(&text[..40]), Bech32Error::Length { have: 40, want: 62 });
        assert_eq!(at(&text.replacen('k', "h", 1)), Bech32Error::Checksum);
        assert_eq!(decode::<31>("age", text).unwrap_err(), Bech32Error::Length { have: 62, want: 60 });
    }

    proptest! {
        #[test]
        fn a_wrong_character_is_always_found(bytes: [u8; 32], at in 9..67_usize, by in 1..32_usize) {
            let text = encode("recovery", &bytes);
            let read = decode::<32>("recovery", &text).unwrap();
            prop_assert_eq!(read.as_slice(), &bytes);
            let mut wrong: Vec<u8> = text.bytes().collect();
            let value = ALPHABET.iter().position(|letter| *letter == wrong[at]).unwrap();
            wrong[at] = ALPHABET[(value + by) % 32];
            let wrong = String::from_utf8(wrong).unwrap();
            prop_assert_eq!(decode::<32>("recovery", &wrong).unwrap_err(), Bech32Error::Checksum);
        }

        #[test]
        fn no_text_is_a_panic(text: String) {
            let _ = decode::<32>("age", &text);
            let _ = decode::<32>("age", &format!("age1{text}"));
        }
    }
}
