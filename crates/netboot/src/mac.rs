//! A machine's hardware address, by which it is told from others.

use std::fmt;

/// A hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Reads six pairs of digits with `:` or `-` between them.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2)?;
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(bytes))
    }

    /// With `-` between the pairs, as names of files have it.
    #[must_use]
    pub fn dashed(&self) -> String {
        self.to_string().replace(':', "-")
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);

    #[test]
    fn addresses_have_two_spellings() {
        assert_eq!(Mac::parse("52:54:00:12:34:56"), Some(MAC));
        assert_eq!(Mac::parse(&MAC.dashed()), Some(MAC));
        for bad in ["", "52:54:00:12:34", "52:54:00:12:34:56:78", "5:54:00:12:34:567", "zz:54:00:12:34:56"] {
            assert_eq!(Mac::parse(bad), None, "{bad}");
        }
    }
}
