//! The key as a person types it: `recovery1-` and 58 letters and digits in groups of four.
//!
//! Owns: the text, what of it does not count (spaces, dashes, capitals), what is said of a wrong one.
//! Fails by: [`KeyError`] with the group that is wrong, where that is known; a mistyped key is told from another volume's.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::bech32::{self, Bech32Error};

/// Length of a key.
pub const KEY_BYTES: usize = 32;

const PREFIX: &str = "recovery";
const GROUP: usize = 4;
/// More than any text of a key with whatever stands between its characters.
const MOST_TEXT_BYTES: usize = 512;

/// A recovery key. Zeroised; has no Debug.
#[derive(Clone, PartialEq, Eq)]
pub struct RecoveryKey(Zeroizing<[u8; KEY_BYTES]>);

/// Why a text is no recovery key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing was given.
    #[error("no recovery key was given")]
    Empty,
    /// It is something else.
    #[error("this is no recovery key: one begins with recovery1")]
    Prefix,
    /// A character that is in no key.
    #[error("the recovery key is mistyped: group {0} behind recovery1 has a character that is in no key")]
    Character(usize),
    /// Too short or too long.
    #[error("the recovery key is mistyped: it has {have} characters behind recovery1, not {want}")]
    Length {
        /// How many there are.
        have: usize,
        /// How many there should be.
        want: usize,
    },
    /// All of it may be.
    #[error("the recovery key is mistyped: its checksum does not match")]
    Checksum,
}

impl RecoveryKey {
    /// With these bytes; `None` unless there are [`KEY_BYTES`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// Reads what a person typed or passed on.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > MOST_TEXT_BYTES {
            return Err(KeyError::Prefix);
        }
        // Long enough from the start: no copy of it is left behind.
        let mut plain = Zeroizing::new(String::with_capacity(text.len()));
        let counts = |character: &char| !character.is_whitespace() && *character != '-';
        plain.extend(text.chars().filter(counts).map(|character| character.to_ascii_lowercase()));
        let bytes = bech32::decode(PREFIX, &plain).map_err(KeyError::from)?;
        Ok(Self(bytes))
    }

    /// As it is shown.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        let plain = bech32::encode(PREFIX, self.0.as_slice());
        let (prefix, data) = plain.split_at(PREFIX.len() + 1);
        let mut text = Zeroizing::new(String::with_capacity(2 * plain.len()));
        text.push_str(prefix);
        for (at, character) in data.chars().enumerate() {
            if at % GROUP == 0 {
                text.push('-');
            }
            text.push(character);
        }
        text
    }

    /// The key itself.
    #[must_use]
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for RecoveryKey {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryKey")
    }
}

impl Zeroize for RecoveryKey {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

impl From<Bech32Error> for KeyError {
    fn from(error: Bech32Error) -> Self {
        let behind = PREFIX.len() + 1;
        match error {
            Bech32Error::Prefix(_) => Self::Prefix,
            Bech32Error::Character(at) | Bech32Error::Case(at) => {
                Self::Character(at.saturating_sub(behind + 1) / GROUP + 1)
            }
            Bech32Error::Length { have, want } => {
                Self::Length { have: have.saturating_sub(behind), want: want.saturating_sub(behind) }
            }
            Bech32Error::Checksum => Self::Checksum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_typed_in_groups_and_read_however_it_is_spaced() {
        let key = RecoveryKey::new(&[0x5a; 32]).unwrap();
        let text = key.text();
        assert_eq!(text.len(), "recovery1".len() + 58 + 15);
        assert!(text.starts_with("recovery1-tfd9-"), "{}", text.as_str());
        for typed in [
            text.to_string(),
            text.replace('-', ""),
            text.replace('-', " "),
            text.to_uppercase(),
            format!("  {}\r\n", text.as_str()),
        ] {
            assert!(RecoveryKey::parse(&typed).unwrap() == key, "{typed}");
        }
        assert!(RecoveryKey::new(&[0; 31]).is_none());
        assert_eq!(format!("{key:?}"), "RecoveryKey");
    }

    #[test]
    fn a_mistyped_key_is_told_from_a_wrong_one() {
        let text = RecoveryKey::new(&[0x5a; 32]).unwrap().text();
        let wrong = |text: &str| RecoveryKey::parse(text).unwrap_err();
        assert_eq!(wrong(" \n"), KeyError::Empty);
        assert_eq!(wrong("supersecret"), KeyError::Prefix);
        assert_eq!(wrong(&"recovery1".repeat(100)), KeyError::Prefix);
        // The fifth character behind the prefix is the first of the second group.
        let mut typed = text.to_string();
        typed.replace_range(15..16, "b");
        assert_eq!(wrong(&typed), KeyError::Character(2));
        typed.replace_range(15..16, if &text[15..16] == "q" { "p" } else { "q" });
        assert_eq!(wrong(&typed), KeyError::Checksum);
        assert_eq!(wrong(&text[..text.len() - 3]), KeyError::Length { have: 56, want: 58 });
        assert!(wrong(&typed).to_string().contains("mistyped"));
    }
}
