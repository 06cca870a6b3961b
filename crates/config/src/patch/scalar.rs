//! A single value as it was written.
//!
//! Owns: what a plain word of YAML means (the core schema: `no` and `on` are text), and when two values are equal.
//! The text is kept, so that `0644` and `1.20` survive. It may be a secret: no `Debug`.

/// A single value.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Scalar {
    /// The text, quotes and escapes resolved.
    pub(super) text: String,
    /// Whether it stood there without quotes, so that its text decides what it is.
    pub(super) plain: bool,
}

/// What a value means.
#[derive(PartialEq)]
enum Meaning<'a> {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(&'a str),
}

impl Scalar {
    /// No value.
    pub(super) fn null() -> Self {
        Self { text: "null".to_owned(), plain: true }
    }

    /// Whether it stands for no value.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.meaning(), Meaning::Null)
    }

    /// Whether it is what Go takes for unset: null, the empty text, or zero. `false` is not.
    pub(super) fn is_unset(&self) -> bool {
        match self.meaning() {
            Meaning::Null | Meaning::Text("") | Meaning::Integer(0) => true,
            Meaning::Float(f) => f == 0.0,
            Meaning::Bool(_) | Meaning::Integer(_) | Meaning::Text(_) => false,
        }
    }

    /// Whether both mean the same: `1` and `1.0` do, `1` and `"1"` do not.
    pub(super) fn same(&self, other: &Self) -> bool {
        match (self.meaning(), other.meaning()) {
            (Meaning::Integer(i), Meaning::Float(f)) | (Meaning::Float(f), Meaning::Integer(i)) => {
                f.fract() == 0.0 && format!("{f:.0}").parse::<i128>() == Ok(i)
            }
            (a, b) => a == b,
        }
    }

    /// The kind in words.
    pub(super) fn kind(&self) -> &'static str {
        match self.meaning() {
            Meaning::Null => "null",
            Meaning::Bool(_) => "a boolean",
            Meaning::Integer(_) | Meaning::Float(_) => "a number",
            Meaning::Text(_) => "a text",
        }
    }

    /// Whether it would be text if it stood there without quotes.
    pub(super) fn is_text_when_plain(text: &str) -> bool {
        matches!(meaning(text), Meaning::Text(_))
    }

    fn meaning(&self) -> Meaning<'_> {
        if self.plain { meaning(&self.text) } else { Meaning::Text(&self.text) }
    }
}

fn meaning(text: &str) -> Meaning<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
        "true" | "True" | "TRUE" => return Meaning::Bool(true),
        "false" | "False" | "FALSE" => return Meaning::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" => return Meaning::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Meaning::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let Some(first) = text.bytes().next().filter(|b| b.is_ascii_digit() || b"+-.".contains(b)) else {
        return Meaning::Text(text);
    };
    integer(text).map(Meaning::Integer).or_else(|| float(text, first)).unwrap_or(Meaning::Text(text))
}

fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        // As Go reads it: permissions are written so.
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    // `from_str_radix` would take a second sign.
    let value = digits.starts_with(|c: char| c.is_ascii_alphanumeric()).then_some(digits)?;
    let value = i128::from_str_radix(value, radix).ok()?;
    Some(if negative { -value } else { value })
}

fn float(text: &str, first: u8) -> Option<Meaning<'static>> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
        && (first != b'.' || text.len() > 1)
        && text.bytes().any(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).map(Meaning::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Scalar {
        Scalar { text: text.into(), plain: true }
    }

    #[test]
    fn plain_words_mean_what_the_core_schema_says() {
        for (text, kind) in [
            ("", "null"),
            ("~", "null"),
            ("true", "a boolean"),
            ("no", "a text"),
            ("on", "a text"),
            ("0644", "a number"),
            ("0o644", "a number"),
            ("-1", "a number"),
            ("1.20", "a number"),
            ("1e3", "a number"),
            ("1.20.6", "a text"),
            ("-", "a text"),
            (".", "a text"),
            ("10.0.0.1", "a text"),
            ("+-1", "a text"),
            ("0x", "a text"),
        ] {
            assert_eq!(plain(text).kind(), kind, "{text:?}");
        }
    }

    #[test]
    fn equality_is_of_meaning() {
        assert!(plain("1").same(&plain("1.0")) && plain("0644").same(&plain("420")));
        assert!(plain("a").same(&Scalar { text: "a".into(), plain: false }));
        assert!(!plain("1").same(&Scalar { text: "1".into(), plain: false }));
        assert!(plain("~").same(&plain("null")) && !plain("false").same(&plain("null")));
    }

    #[test]
    fn unset_is_what_go_calls_zero_but_for_booleans() {
        assert!(["", "~", "0", "0.0"].iter().all(|t| plain(t).is_unset()));
        assert!(["false", "a", "1"].iter().all(|t| !plain(t).is_unset()));
    }
}
