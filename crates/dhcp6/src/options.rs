//! Options in bytes: codes, checked lengths, and names as DNS writes them.
//!
//! On the wire: code (2 bytes), length of the value in bytes (2), value; all numbers big-endian.
//! Does not: know what an option means.
//! Fails by: an [`Error`] that names the option.
//! Source: RFC 8415 §21.1 (format), RFC 1035 §3.1 and RFC 8415 §10 (names, never compressed).

use std::fmt;

pub(crate) const CLIENT_ID: u16 = 1;
pub(crate) const SERVER_ID: u16 = 2;
pub(crate) const IA_NA: u16 = 3;
pub(crate) const IA_ADDRESS: u16 = 5;
pub(crate) const OPTION_REQUEST: u16 = 6;
pub(crate) const PREFERENCE: u16 = 7;
pub(crate) const ELAPSED_TIME: u16 = 8;
pub(crate) const STATUS_CODE: u16 = 13;
pub(crate) const RAPID_COMMIT: u16 = 14;
pub(crate) const DNS_SERVERS: u16 = 23;
pub(crate) const DOMAIN_LIST: u16 = 24;
pub(crate) const REFRESH_TIME: u16 = 32;
pub(crate) const CLIENT_FQDN: u16 = 39;
pub(crate) const NTP_SERVER: u16 = 56;
pub(crate) const SOL_MAX_RT: u16 = 82;
pub(crate) const INF_MAX_RT: u16 = 83;

/// Longest label and longest name in bytes (RFC 1035 §2.3.4).
const LABEL_BYTES: usize = 63;
const NAME_BYTES: usize = 255;

/// Why bytes are no answer to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The message, or the head of an option, is cut off.
    Short,
    /// A message of this type is not for clients, or is a RECONFIGURE.
    Kind(u8),
    /// This option ends behind its message.
    Overrun {
        /// Its code.
        option: u16,
    },
    /// This option cannot have so many bytes.
    Length {
        /// Its code.
        option: u16,
        /// Length of its value.
        bytes: usize,
    },
    /// This option can be there once only.
    Twice {
        /// Its code.
        option: u16,
    },
    /// This option must be there.
    Missing {
        /// Its code.
        option: u16,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "message is cut off"),
            Self::Kind(kind) => write!(f, "message of type {kind} is not for a client"),
            Self::Overrun { option } => write!(f, "option {option} ends behind its message"),
            Self::Length { option, bytes } => write!(f, "option {option} cannot have {bytes} bytes"),
            Self::Twice { option } => write!(f, "option {option} is there twice"),
            Self::Missing { option } => write!(f, "option {option} is missing"),
        }
    }
}

impl std::error::Error for Error {}

/// The options of a message or of another option. The first malformed one is the last item.
#[derive(Debug, Clone)]
pub(crate) struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<(u16, &'a [u8]), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match std::mem::take(&mut self.0) {
            [] => None,
            [a, b, c, d, rest @ ..] => {
                let option = u16::from_be_bytes([*a, *b]);
                let Some((value, rest)) = rest.split_at_checked(u16::from_be_bytes([*c, *d]).into()) else {
                    return Some(Err(Error::Overrun { option }));
                };
                self.0 = rest;
                Some(Ok((option, value)))
            }
            _ => Some(Err(Error::Short)),
        }
    }
}

/// Appends an option. One whose value does not fit is left out.
pub(crate) fn put(out: &mut Vec<u8>, option: u16, value: &[u8]) {
    let Ok(length) = u16::try_from(value.len()) else { return };
    out.extend(option.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(value);
}

/// A value of exactly so many bytes.
pub(crate) fn exact<const N: usize>(option: u16, value: &[u8]) -> Result<[u8; N], Error> {
    value.try_into().map_err(|_| Error::Length { option, bytes: value.len() })
}

/// The first bytes of a value, and what follows them.
pub(crate) fn head<const N: usize>(option: u16, value: &[u8]) -> Result<(&[u8; N], &[u8]), Error> {
    value.split_first_chunk().ok_or(Error::Length { option, bytes: value.len() })
}

/// A name as labels; `None` if it is none. One without a dot is left open: the server completes it (RFC 4704 §4.2).
pub(crate) fn labels(name: &str) -> Option<Vec<u8>> {
    let name = name.trim_end_matches('.');
    let mut out = Vec::new();
    for label in name.split('.') {
        let length =
            u8::try_from(label.len()).ok().filter(|length| (1..=LABEL_BYTES).contains(&(*length).into()));
        out.push(length?);
        out.extend(label.bytes());
    }
    if name.contains('.') {
        out.push(0);
    }
    (plain(name).is_some() && out.len() <= NAME_BYTES).then_some(out)
}

/// The first `most` usable names of a list; `None` if the list is malformed.
pub(crate) fn names(mut bytes: &[u8], most: usize) -> Option<Vec<String>> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let (name, rest) = name(bytes)?;
        bytes = rest;
        // The list is read to its end: a malformed rest tells that the front means nothing either.
        if names.len() < most
            && let Some(name) = plain(&name)
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    Some(names)
}

/// One name, and what follows it.
fn name(mut bytes: &[u8]) -> Option<(String, &[u8])> {
    let (mut name, mut length) = (String::new(), 0);
    loop {
        let (&label, rest) = bytes.split_first()?;
        let (label, rest) =
            rest.split_at_checked(label.into()).filter(|(label, _)| label.len() <= LABEL_BYTES)?;
        bytes = rest;
        length += label.len() + 1;
        if length > NAME_BYTES {
            return None;
        }
        if label.is_empty() {
            return Some((name, bytes));
        }
        if !name.is_empty() {
            name.push('.');
        }
        // A byte that a name of a resolver cannot have, a dot above all, must not look like one that it can.
        let shown = |byte: &u8| if *byte == b'.' { '\0' } else { char::from(*byte) };
        name.extend(label.iter().map(shown));
    }
}

/// A name that can stand in the files of a resolver.
pub(crate) fn plain(text: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!text.is_empty() && text.len() <= 253 && text.chars().all(fits)).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_end_at_the_first_malformed_one() {
        let read = |bytes: &'static [u8]| Options::of(bytes).collect::<Vec<_>>();
        assert_eq!(read(&[]), []);
        assert_eq!(read(&[0, 7, 0, 1, 9, 0, 14, 0, 0]), [Ok((7, &[9][..])), Ok((14, &[][..]))]);
        assert_eq!(read(&[0, 7, 0, 2, 9]), [Err(Error::Overrun { option: 7 })]);
        assert_eq!(read(&[0, 14, 0, 0, 0, 7, 0]), [Ok((14, &[][..])), Err(Error::Short)]);
    }

    #[test]
    fn names_are_written_as_labels() {
        assert_eq!(labels("node-1"), Some(b"\x06node-1".to_vec()));
        assert_eq!(labels("a.bc."), Some(b"\x01a\x02bc\0".to_vec()));
        for name in ["", ".", "a..b", "a b", "\u{e9}", &"x".repeat(64), &"abc.".repeat(64)] {
            assert_eq!(labels(name), None, "{name}");
        }
    }

    #[test]
    fn lists_of_names_are_read_to_their_end() {
        let read = |bytes: &[u8]| names(bytes, 2);
        let texts = |list: &[&str]| Some(list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(b"\x01A\x02bc\0\x01d\0\x01d\0\x01e\0"), texts(&["a.bc", "d"]));
        assert_eq!(read(b"\x03a.b\0\x03a b\0\0\x01c\0"), texts(&["c"]), "unusable ones are left out");
        for bytes in [
            &b"\x01a"[..],
            b"\x05ab\0",
            b"\x01a\0\x01",
            b"\xc0\x00",
            &[b"\x01a".repeat(128), vec![0]].concat(),
        ] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
        assert_eq!(read(&[&[64][..], &[b'a'; 64], &[0]].concat()), None, "a label that is too long");
        assert_eq!(read(b""), texts(&[]));
    }
}
