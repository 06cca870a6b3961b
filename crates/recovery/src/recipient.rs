//! A public key of age: `age1…`, what `age-keygen` prints.
//!
//! Fails by: [`RecipientError`] with the place; a secret key in its place is told apart, and not repeated.

use std::fmt;
use std::str::FromStr;

use crate::bech32::{self, Bech32Error};

/// How many one key is encrypted to at most: the LUKS2 header has to hold them.
pub const MOST_RECIPIENTS: usize = 8;

const PREFIX: &str = "age";
/// Length of an X25519 key.
const BYTES: usize = 32;

/// Who a recovery key is encrypted to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Recipient([u8; BYTES]);

/// Why a text is no public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecipientError {
    /// The other half.
    #[error(
        "this is a secret key, which belongs in no config: take the public one, age1…, and make a new pair"
    )]
    Secret,
    /// Another kind of key.
    #[error("recipients are X25519 keys of age: age1…, as age-keygen prints them")]
    Other,
    /// It is damaged.
    #[error("no public key of age: {0}")]
    Damaged(#[from] Bech32Error),
}

impl Recipient {
    /// The key's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

impl FromStr for Recipient {
    type Err = RecipientError;

    fn from_str(text: &str) -> Result<Self, RecipientError> {
        if text.to_ascii_uppercase().starts_with("AGE-SECRET-KEY-") {
            return Err(RecipientError::Secret);
        }
        match bech32::decode::<BYTES>(PREFIX, text) {
            Ok(bytes) => Ok(Self(*bytes)),
            // Of a plugin (`age1yubikey1…`), an SSH key, a passphrase.
            Err(Bech32Error::Prefix(_)) => Err(RecipientError::Other),
            Err(Bech32Error::Character(_)) if text.get(4..).is_some_and(|rest| rest.contains('1')) => {
                Err(RecipientError::Other)
            }
            Err(error) => Err(RecipientError::Damaged(error)),
        }
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bech32::encode(PREFIX, &self.0))
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

    #[test]
    fn a_public_key_is_read_and_shown() {
        assert_eq!(TEXT.parse::<Recipient>().unwrap().to_string(), TEXT);
    }

    #[test]
    fn what_is_none_is_told_apart() {
        let wrong = |text: &str| text.parse::<Recipient>().unwrap_err().to_string();
        assert!(wrong("AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZ").contains("a secret key"));
        assert!(wrong("ssh-ed25519 AAAA").contains("X25519 keys of age"));
        assert!(
            wrong("age1yubikey1qwt50d05nh5vutpdzmlg5wn80xq5negm4uj9ghv0snvdd3yysf5yw3rhl3t")
                .contains("X25519")
        );
        assert_eq!(wrong(&TEXT.replacen('y', "b", 1)), "no public key of age: character 8 is none of bech32");
        assert_eq!(wrong(&TEXT[..61]), "no public key of age: it has 61 characters, not 62");
        assert!(wrong(&TEXT.replacen("zvky", "zvkk", 1)).ends_with("a character is mistyped"));
    }
}
