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

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}
