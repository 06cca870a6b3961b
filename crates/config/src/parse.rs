//! YAML text to [`Config`], with the place of what is wrong.
//!
//! Owns: positions, a hint for a misspelt field, and a drawing of the line in question from which a secret's value
//! is cut. Does not: judge values (`validate`).
//! Fails by: [`ParseError`]; the first error ends the reading.

use crate::v1alpha1::{Config, VERSION};
use serde_saphyr::Error as YamlError;
use std::fmt;

/// Values of these keys are never repeated in an error.
const SECRET_KEYS: &[&str] =
    &["token", "key", "secret", "aescbcEncryptionSecret", "crt", "passphrase", "password", "auth"];
/// Longest piece of a line that an error shows.
const SHOWN_CHARS: usize = 100;

/// What is wrong with a configuration's text, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Line, counted from 1; 0 if unknown.
    pub line: u64,
    /// Column, counted from 1; 0 if unknown.
    pub column: u64,
    /// What is wrong, and what would be right.
    pub message: String,
    /// The line, shortened, without secrets.
    pub snippet: String,
}

impl std::error::Error for ParseError {}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str(&self.message);
        }
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)?;
        if self.snippet.is_empty() {
            return Ok(());
        }
        let gutter = self.line.to_string();
        write!(f, "\n{gutter} | {}", self.snippet)
    }
}

/// Reads a machine configuration. Other documents in the stream are not looked at yet.
///
/// # Errors
/// [`ParseError`] for text that is no YAML, fields that do not exist, and values of a wrong kind.
pub fn parse(text: &str) -> Result<Config, ParseError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let config: Config = serde_saphyr::from_str_with_options(text, options).map_err(|e| located(text, &e))?;
    if config.version == VERSION {
        return Ok(config);
    }
    let line = text.lines().position(|l| l.starts_with("version:")).map_or(0, |index| index + 1);
    let message =
        format!("version `{}` is not known; write `version: {VERSION}`", shortened(&config.version));
    Err(ParseError { line: u64::try_from(line).unwrap_or(0), column: 1, message, snippet: String::new() })
}

fn located(text: &str, error: &YamlError) -> ParseError {
    let error = error.without_snippet();
    let (line, column) = error.location().map_or((0, 0), |l| (l.line(), l.column()));
    let shown = usize::try_from(line).ok().and_then(|n| text.lines().nth(n.checked_sub(1)?)).unwrap_or("");
    ParseError { line, column, message: message(error, shown), snippet: without_secret(shown) }
}

fn message(error: &YamlError, line: &str) -> String {
    match error {
        YamlError::SerdeUnknownField { field, expected, .. } => {
            let (what, known) = (shortened(field), expected.join(", "));
            match nearest(field, expected) {
                Some(near) => format!("unknown field `{what}`; did you mean `{near}`? (known here: {known})"),
                None => format!("unknown field `{what}` (known here: {known})"),
            }
        }
        // The reader repeats the value it could not use, and this line's value is not to be repeated.
        _ if holds_secret(line) => "the value is not of the kind that this field takes".to_owned(),
        other => other.to_string(),
    }
}

/// The known name that a typo of at most two letters turns into `field`.
fn nearest<'a>(field: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|name| (distance(field, name), *name))
        .filter(|(d, _)| *d <= 2)
        .min()
        .map(|(_, name)| name)
}

/// Edit distance without regard to case.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[row.len() - 1]
}

fn holds_secret(line: &str) -> bool {
    let key = line.trim_start_matches([' ', '-']).split(':').next().unwrap_or("").trim_matches(['"', '\'']);
    SECRET_KEYS.contains(&key) || !line.contains(':')
}

fn without_secret(line: &str) -> String {
    match line.split_once(':') {
        Some((key, _)) if holds_secret(line) => format!("{key}: …"),
        Some(_) => shortened(line.trim_end()),
        // A line of a block scalar, or of base64 with line breaks: nothing of it is shown.
        None => String::new(),
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARS {
        text.to_owned()
    } else {
        text.chars().take(SHOWN_CHARS).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> ParseError {
        parse(text).err().expect("an error")
    }

    #[test]
    fn an_unknown_field_is_named_with_its_place_and_the_nearest_field() {
        let e = error("version: v1alpha1\nmachine:\n  type: worker\n  certSAN: [a]\n");
        assert_eq!((e.line, e.column), (4, 3));
        assert!(e.message.starts_with("unknown field `certSAN`; did you mean `certSANs`?"), "{e}");
        assert_eq!(e.snippet, "  certSAN: [a]");
    }

    #[test]
    fn a_wrong_kind_is_shown_with_its_line() {
        let e = error("version: v1alpha1\nmachine:\n  network:\n    nameservers: [here]\n");
        assert_eq!(e.line, 4);
        assert!(e.to_string().contains("4 |     nameservers: [here]"), "{e}");
    }

    #[test]
    fn no_error_repeats_a_secret() {
        for text in [
            "version: v1alpha1\nmachine:\n  token: [hunter2]\n",
            "version: v1alpha1\nmachine:\n  ca:\n    key: hunter2!\n",
            "version: v1alpha1\nmachine:\n  ca:\n    key: |\n      hunter2!\n      hunter2\n",
            "version: v1alpha1\nmachine: {}\ncluster:\n  secret: {hunter2: 1}\n",
        ] {
            let e = error(text);
            assert!(!format!("{e} {e:?}").contains("hunter2"), "{e:?}");
        }
    }

    #[test]
    fn another_version_is_refused() {
        let e = error("version: v2\nmachine: {}\n");
        assert_eq!(e.to_string(), "line 1, column 1: version `v2` is not known; write `version: v1alpha1`");
    }

    #[test]
    fn a_second_value_for_a_field_is_refused() {
        assert_eq!(error("version: v1alpha1\nmachine: {}\ndebug: true\ndebug: false\n").line, 4);
    }

    #[test]
    fn distances() {
        assert_eq!(distance("certSAN", "certSANs"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("Kitten", "sitting"), 3);
    }
}
