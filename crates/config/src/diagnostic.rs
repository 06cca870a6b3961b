//! One remark on a configuration: what, how bad, and where.
//!
//! Owns: the shape of errors and warnings and how they are printed. Does not: find them (`load`, `validate`).
//! Invariant: no text here holds a value of a secret field.

use std::fmt;

/// How bad a remark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration is taken all the same.
    Warning,
    /// The configuration is refused.
    Error,
}

/// A remark on one place of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the configuration is refused for it.
    pub severity: Severity,
    /// Which document of the stream, counted from 1.
    pub document: usize,
    /// Line in the stream, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Path of the field: `machine.network.interfaces[0].mtu`; empty for the whole document.
    pub path: String,
    /// What is wrong and what is allowed.
    pub message: String,
    /// The line in question, shortened, without secrets; may be empty.
    pub snippet: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if self.document > 1 {
            write!(f, "document {}, ", self.document)?;
        }
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if !self.snippet.is_empty() {
            write!(f, "\n{} | {}", self.line, self.snippet)?;
        }
        Ok(())
    }
}

/// Everything for which a configuration is refused, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError(pub Vec<Diagnostic>);

impl std::error::Error for LoadError {}

impl LoadError {
    /// The first faults whole and how many more there are, in at most `bytes` bytes.
    pub fn brief(&self, bytes: usize) -> String {
        brief(self.0.iter().map(ToString::to_string), bytes)
    }
}

/// Room for `… and 4294967295 more`.
const MORE_BYTES: usize = 64;

/// Joins lines as long as they fit. A first line that does not fit is cut.
pub(crate) fn brief(lines: impl ExactSizeIterator<Item = String>, bytes: usize) -> String {
    let (all, room) = (lines.len(), bytes.saturating_sub(MORE_BYTES));
    let mut text = String::new();
    for (index, line) in lines.enumerate() {
        let separator = usize::from(index > 0);
        if text.len() + separator + line.len() > room {
            if index == 0 {
                let cut = (0..=room).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
                text.push_str(&line[..cut]);
            }
            text.push_str(&format!("\n… and {} more", all - index));
            return text;
        }
        if index > 0 {
            text.push('\n');
        }
        text.push_str(&line);
    }
    text
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brief_refusal_has_the_first_faults_whole_and_counts_the_others() {
        let lines = |count: usize, bytes: usize| (0..count).map(move |_| "é".repeat(bytes / 2));
        assert_eq!(brief(lines(2, 4), 1000), "éé\néé");
        let text = brief(lines(1000, 1000), 4000);
        assert!(text.len() <= 4000 && text.ends_with("\n… and 997 more"), "{}", text.len());
        assert_eq!(text.lines().next().map(str::len), Some(1000));
        let text = brief(lines(2, 10_000), 101);
        assert!(text.len() <= 101 && text.ends_with("… and 2 more"), "{text}");
        assert_eq!(brief(lines(0, 1), 0), "");
    }
}
