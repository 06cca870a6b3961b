//! What a person is told of a certificate.
//!
//! Owns: its issuer's name, the names it is for, days; all of it cleaned, since a server that is not believed wrote it.
//! Does not: judge.
//! Source: RFC 5280 §4.1.2.4 (names); X.690 (DER).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use rustls_pki_types::{CertificateDer, UnixTime};

/// Longest name that a line has room for.
const MOST_CHARACTERS: usize = 64;

/// Names of a certificate that are told; it may have hundreds.
const MOST_NAMES: usize = 3;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
/// UTF8String, PrintableString, TeletexString, IA5String.
const TEXTS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];

/// Attributes that name somebody, the best first: common name, organisational unit, organisation.
const ATTRIBUTES: [[u8; 3]; 3] = [[0x55, 4, 3], [0x55, 4, 11], [0x55, 4, 10]];

/// Who issued a certificate.
pub(super) fn issuer(certificate: &CertificateDer<'_>) -> String {
    let found = webpki::EndEntityCert::try_from(certificate).ok().and_then(|read| name(read.issuer()));
    found.map_or_else(|| "nobody by name".to_string(), |name| alloc::format!("\"{name}\""))
}

/// Whether it names itself as its issuer.
pub(super) fn is_self_issued(certificate: &CertificateDer<'_>) -> bool {
    webpki::EndEntityCert::try_from(certificate).is_ok_and(|read| read.issuer() == read.subject())
}

/// The first names that a certificate is for, of those that webpki read: `DnsName("a")`, `IpAddress(1.2.3.4)`.
pub(super) fn presented(names: &[String]) -> String {
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
        clean(inner.trim_matches('"').as_bytes())
    };
    match names {
        [] => "no name at all".to_string(),
        names => {
            let mut text = names.iter().take(MOST_NAMES).map(bare).collect::<Vec<_>>().join(", ");
            if names.len() > MOST_NAMES {
                text.push_str(", …");
            }
            text
        }
    }
}

/// The best attribute of a name, which is a sequence of sets of pairs.
fn name(mut sets: &[u8]) -> Option<String> {
    let mut pairs = Vec::new();
    while let Some((SET, mut set, rest)) = element(sets) {
        sets = rest;
        while let Some((SEQUENCE, pair, rest)) = element(set) {
            set = rest;
            if let Some((OBJECT, kind, value)) = element(pair)
                && let Some((tag, text, _)) = element(value)
                && TEXTS.contains(&tag)
            {
                pairs.push((kind, text));
            }
        }
    }
    let best = ATTRIBUTES.iter().find_map(|wanted| pairs.iter().find(|(kind, _)| kind == wanted));
    best.map(|(_, text)| clean(text))
}

/// Tag, content and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        short @ 0..=0x7f => (usize::from(short), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        0x82 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

fn clean(text: &[u8]) -> String {
    let printable = |c: char| if c.is_control() { '?' } else { c };
    String::from_utf8_lossy(text).chars().map(printable).take(MOST_CHARACTERS).collect()
}

/// A day: `2026-06-01`.
pub(super) struct Date(pub(super) UnixTime);

impl fmt::Display for Date {
    /// Days since 0000-03-01 in eras of 400 years, so that a leap day is the last of its year.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.as_secs() / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        write!(f, "{:04}-{month:02}-{day:02}", year_of_era + era * 400 + next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        for (seconds, wanted) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (super::super::EARLIEST_S, "2025-01-01"),
            (4_102_444_799, "2099-12-31"),
        ] {
            let time = UnixTime::since_unix_epoch(core::time::Duration::from_secs(seconds));
            assert_eq!(Date(time).to_string(), wanted);
        }
    }

    #[test]
    fn names_of_strangers_are_cleaned() {
        let attribute = |kind: u8, tag: u8, text: &[u8]| {
            let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
            let pair = [&[OBJECT, 3, 0x55, 4, kind, tag, length(text)], text].concat();
            let pair = [&[SEQUENCE, length(&pair)], &pair[..]].concat();
            [&[SET, length(&pair)], &pair[..]].concat()
        };
        let organisation = attribute(10, 0x13, b"Example");
        let common = attribute(3, 0x0c, b"a\nb\x1b[2J");
        assert_eq!(name(&organisation).unwrap(), "Example");
        assert_eq!(name(&[&organisation[..], &common].concat()).unwrap(), "a?b?[2J");
        assert_eq!(name(&common[..common.len() - 1]), None);
        assert_eq!(name(&[]), None);
        for length in 0..common.len() {
            let _ = name(&common[..length]);
        }
    }

    #[test]
    fn names_it_is_for() {
        let names: Vec<String> = ["DnsName(\"a\")", "IpAddress(1.2.3.4)", "DnsName(\"b\")", "DirectoryName"]
            .map(String::from)
            .into();
        assert_eq!(presented(&names), "a, 1.2.3.4, b, …");
        assert_eq!(presented(&names[3..]), "DirectoryName");
        assert_eq!(presented(&[]), "no name at all");
    }
}
