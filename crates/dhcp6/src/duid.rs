//! DUIDs: who a client or a server is.
//!
//! Owns: their limits, the DUID of a hardware address, the number of a link's association.
//! Source: RFC 8415 §11 (DUID), §12 (IAID).

use std::fmt;
use std::str::FromStr;

/// Length of an Ethernet address in bytes.
pub const HARDWARE_BYTES: usize = 6;
/// Shortest DUID in bytes: a type and one byte (RFC 8415 §11.1).
pub const LEAST_BYTES: usize = 3;
/// Longest DUID in bytes: a type and 128 bytes (RFC 8415 §11.1).
pub const MOST_BYTES: usize = 130;
/// DUID-LL, and Ethernet in it (RFC 8415 §11.4).
const LINK_LAYER: [u8; 4] = [0, 3, 0, 1];

/// The identifier of a client or a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duid(Vec<u8>);

/// Bytes or text that are no DUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// So many bytes, of which a DUID has [`LEAST_BYTES`] to [`MOST_BYTES`].
    Length(usize),
    /// A character that is no hexadecimal digit, or half a byte.
    Text,
}

impl Duid {
    /// A DUID of any type, with the two bytes of its type.
    ///
    /// # Errors
    /// The length is out of range.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        let fits = (LEAST_BYTES..=MOST_BYTES).contains(&bytes.len());
        if fits { Ok(Self(bytes.to_vec())) } else { Err(Error::Length(bytes.len())) }
    }

    /// The DUID-LL of an Ethernet address.
    #[must_use]
    pub fn of_hardware(hardware: &[u8; HARDWARE_BYTES]) -> Self {
        Self([&LINK_LAYER[..], hardware].concat())
    }

    /// With the two bytes of the type.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The number of the link's association: the last four bytes of its address.
#[must_use]
pub fn iaid(hardware: &[u8; HARDWARE_BYTES]) -> u32 {
    let [_, _, a, b, c, d] = *hardware;
    u32::from_be_bytes([a, b, c, d])
}

/// Hexadecimal digits, two a byte.
impl fmt::Display for Duid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads hexadecimal digits; colons between bytes are allowed.
impl FromStr for Duid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // Before anything is copied: the text may be of any length.
        if text.len() > MOST_BYTES * 3 {
            return Err(Error::Length(text.len()));
        }
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        Self::new(&bytes.ok_or(Error::Text)?)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => {
                write!(f, "a DUID of {bytes} bytes: it has {LEAST_BYTES} to {MOST_BYTES}")
            }
            Self::Text => write!(f, "a DUID is written as pairs of hexadecimal digits"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_makes_a_duid_and_a_number() {
        let hardware = [0x52, 0x54, 0, 1, 2, 3];
        assert_eq!(Duid::of_hardware(&hardware).bytes(), [0, 3, 0, 1, 0x52, 0x54, 0, 1, 2, 3]);
        assert_eq!(iaid(&hardware), 0x0001_0203);
    }

    #[test]
    fn lengths_are_limited() {
        for (bytes, fits) in [(0, false), (2, false), (3, true), (130, true), (131, false)] {
            assert_eq!(Duid::new(&vec![7; bytes]).is_ok(), fits, "{bytes}");
        }
    }

    #[test]
    fn text_is_read_back() {
        let duid = Duid::of_hardware(&[0x52, 0x54, 0, 1, 2, 0xfe]);
        assert_eq!(duid.to_string(), "00030001525400 0102fe".replace(' ', ""));
        assert_eq!(duid.to_string().parse(), Ok(duid.clone()));
        assert_eq!("00:03:00:01:52:54:00:01:02:FE".parse(), Ok(duid));
        assert_eq!("00030".parse::<Duid>(), Err(Error::Text));
        assert_eq!("0003zz".parse::<Duid>(), Err(Error::Text));
        assert_eq!("0003".parse::<Duid>(), Err(Error::Length(2)));
        assert_eq!("00".repeat(500).parse::<Duid>(), Err(Error::Length(1000)));
    }
}
