//! Single values: texts, numbers, addresses, durations, sizes, permissions, secrets.
//!
//! Fails by: a remark with what is allowed. The text of a secret is in none.

use super::{Decode, Shape, Walk};
use crate::{
    Secret,
    yaml::{Node, shortened},
};
use serde::{Serialize, Serializer};
use std::{fmt, net::IpAddr, time::Duration};

impl Decode for String {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        walk.scalar(node).map(str::to_owned)
    }

    fn shape() -> Shape {
        Shape::Single("text", "text")
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

impl Decode for bool {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        match walk.scalar(node)? {
            "true" | "True" | "TRUE" | "yes" | "Yes" | "on" | "On" => Some(true),
            "false" | "False" | "FALSE" | "no" | "No" | "off" | "Off" => Some(false),
            other => walk.not_allowed(node, other, &["true", "false"]),
        }
    }

    fn shape() -> Shape {
        Shape::Single("true or false", "true")
    }
}

macro_rules! number {
    ($($ty:ty),*) => {$(
        impl Decode for $ty {
            fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
                let text = walk.scalar(node)?;
                let read = integer(text).and_then(|n| Self::try_from(n).ok());
                if read.is_none() {
                    let (min, max) = (Self::MIN, Self::MAX);
                    walk.error(node.mark, format!("`{}` is not a whole number from {min} to {max}", shortened(text)));
                }
                read
            }

            fn shape() -> Shape {
                Shape::Single("whole number", "1")
            }
        }
    )*};
}

number!(u8, u16, u32, u64, i32);

/// Decimal, or with the prefixes that YAML 1.1 and 1.2 have; `_` between digits as in 1.1.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || digits.len() > 40 {
        return None;
    }
    let digits = digits.replace('_', "");
    let (digits, radix) = match digits.get(..2) {
        Some("0x" | "0X") => (&digits[2..], 16),
        Some("0o" | "0O") => (&digits[2..], 8),
        Some("0b" | "0B") => (&digits[2..], 2),
        _ if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        _ => (digits.as_str(), 10),
    };
    let value = i128::from_str_radix(digits, radix).ok()?;
    Some(if negative { -value } else { value })
}

impl Decode for IpAddr {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        let text = walk.scalar(node)?;
        let read = text.trim().parse().ok();
        if read.is_none() {
            walk.error(node.mark, format!("`{}` is not an IP address: 10.0.0.1 or fd00::1", shortened(text)));
        }
        read
    }

    fn shape() -> Shape {
        Shape::Single("IP address", "10.0.0.1")
    }
}

impl Decode for Secret {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        walk.hide(node);
        walk.scalar(node).map(Self::new)
    }

    fn shape() -> Shape {
        Shape::Single("secret text", "aaaaaa.bbbbbbbbbbbbbbbb")
    }
}

/// A span of time in the form of the Go language: `1h30m`, `250ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub Duration);

/// Units with their nanoseconds; longer names first.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl GoDuration {
    /// Reads `1h30m`; a bare number only if it is 0.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Self::default());
        }
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        let mut total: u128 = 0;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, tail) = rest.split_at(end);
            let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (_, nanos) = UNITS.iter().find(|(name, _)| *name == &tail[..unit_end])?;
            total = total.checked_add(fraction(number, *nanos)?)?;
            rest = &tail[unit_end..];
        }
        Some(Self(Duration::from_nanos(u64::try_from(total).ok()?)))
    }
}

/// `number`, possibly with a decimal point, times `unit`.
fn fraction(number: &str, unit: u64) -> Option<u128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if number.len() > 24 || (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let scale = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let below = digits(part)?.checked_mul(u128::from(unit))? / scale;
    digits(whole)?.checked_mul(u128::from(unit))?.checked_add(below)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < 1_000_000_000 {
            return match (nanos % 1_000_000, nanos % 1_000) {
                (0, _) => write!(f, "{}ms", nanos / 1_000_000),
                (_, 0) => write!(f, "{}µs", nanos / 1_000),
                _ => write!(f, "{nanos}ns"),
            };
        }
        let seconds = self.0.as_secs();
        if seconds >= 3600 {
            write!(f, "{}h", seconds / 3600)?;
        }
        if seconds >= 60 {
            write!(f, "{}m", seconds / 60 % 60)?;
        }
        match self.0.subsec_nanos() {
            0 => write!(f, "{}s", seconds % 60),
            below => {
                let below = format!("{below:09}");
                write!(f, "{}.{}s", seconds % 60, below.trim_end_matches('0'))
            }
        }
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Decode for GoDuration {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        let text = walk.scalar(node)?;
        let read = Self::parse(text);
        if read.is_none() {
            walk.error(node.mark, format!("`{}` is not a duration: 30s, 10m, 1h30m", shortened(text)));
        }
        read
    }

    fn shape() -> Shape {
        Shape::Single("duration", "1h30m")
    }
}

/// A number of bytes: `100 MB`, `1GiB`, or the plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Reads a number with an optional unit; decimal and binary units, in any case.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let unit = text[end..].trim().to_ascii_lowercase();
        let (base, unit) = match unit.strip_suffix("ib").or_else(|| unit.strip_suffix('i')) {
            Some(rest) => (1024_u64, rest),
            None => (1000, unit.strip_suffix('b').unwrap_or(&unit)),
        };
        let power = match unit {
            "" => 0,
            "k" => 1,
            "m" => 2,
            "g" => 3,
            "t" => 4,
            "p" => 5,
            _ => return None,
        };
        let bytes = fraction(&text[..end], base.checked_pow(power)?)?;
        Some(Self(u64::try_from(bytes).ok()?))
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl Decode for ByteSize {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        let text = walk.scalar(node)?;
        let read = Self::parse(text);
        if read.is_none() {
            walk.error(node.mark, format!("`{}` is not a size: 100 MB, 1GiB, or bytes", shortened(text)));
        }
        read
    }

    fn shape() -> Shape {
        Shape::Single("size", "1GiB")
    }
}

/// Permissions of a file, as in `0644`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl Decode for FileMode {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        let text = walk.scalar(node)?;
        let read = integer(text).and_then(|n| u32::try_from(n).ok()).filter(|mode| *mode <= 0o7777);
        if read.is_none() {
            walk.error(
                node.mark,
                format!("`{}` is not a file mode: write it in octal, 0644", shortened(text)),
            );
        } else if !text.starts_with('0') {
            walk.warn(
                node.mark,
                format!("`{text}` is read as a decimal number; octal starts with 0: 0{text}"),
            );
        }
        read.map(Self)
    }

    fn shape() -> Shape {
        Shape::Single("file mode, octal", "0644")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_go_reads_and_writes_them() {
        for (text, written) in [
            ("1h", "1h0m0s"),
            ("1.5h", "1h30m0s"),
            ("90s", "1m30s"),
            ("0", "0s"),
            ("250ms", "250ms"),
            ("1.5ms", "1500µs"),
            ("7ns", "7ns"),
            ("1m0.5s", "1m0.5s"),
        ] {
            let read = GoDuration::parse(text).unwrap();
            assert_eq!(read.to_string(), written);
            assert_eq!(GoDuration::parse(written), Some(read));
        }
        for wrong in ["", "1", "h", "1x", "-1s", "1h1", "1..5s", "99999999999999999999h"] {
            assert_eq!(GoDuration::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_with_and_without_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("100 MB", 100_000_000),
            ("1GiB", 1 << 30),
            ("1.5k", 1500),
            ("2Gi", 2 << 30),
            ("512", 512),
        ] {
            assert_eq!(ByteSize::parse(text), Some(ByteSize(bytes)), "{text}");
        }
        for wrong in ["", "GB", "1 XB", "-1", "1e3", "99999999999 PB"] {
            assert_eq!(ByteSize::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn integers_in_every_base() {
        assert_eq!(["0644", "0o644", "0x1a4", "420", "4_20"].map(integer), [Some(420); 5]);
        assert_eq!(["", "a", "08", "1e3", "0x"].map(integer), [None; 5]);
    }
}
