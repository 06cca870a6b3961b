//! The bytes of a configuration to [`Loaded`]: the typed content, beside the text as it was sent.
//!
//! Owns: the stream as a whole and the meaning of its documents. Does not: fetch or keep it.
//! Fails by: [`LoadError`] with every error, each with its place.

use crate::{Diagnostic, LoadError, diagnostic::Severity, v1alpha1::Config};
use zeroize::Zeroizing;

/// Where a configuration is to be used: it decides which parts are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A machine with a disk of its own to install to.
    Metal,
    /// A virtual machine made from an image.
    Cloud,
    /// A container on somebody else's kernel.
    Container,
}

/// A document beside the v1alpha1 one.
#[derive(Clone, PartialEq)]
pub struct Document {
    /// `kind`: `HostnameConfig`.
    pub kind: String,
    /// `name`, where this kind has one.
    pub name: Option<String>,
}

/// A configuration that could be read. It holds secrets, hence no `Debug`.
#[derive(Clone)]
pub struct Loaded {
    /// As it was sent, with comments and order.
    pub text: Zeroizing<Vec<u8>>,
    /// The v1alpha1 document.
    pub config: Config,
    /// The other documents, in their order.
    pub documents: Vec<Document>,
    /// What was taken although it deserves a remark.
    pub warnings: Vec<Diagnostic>,
}

/// Reads a configuration: one v1alpha1 document and any number of others.
///
/// # Errors
/// [`LoadError`] with every unknown key, wrong type and syntax error.
pub fn load(text: &[u8]) -> Result<Loaded, LoadError> {
    let whole = |message: String| LoadError(vec![error(1, 1, String::new(), message, String::new())]);
    let string = std::str::from_utf8(text).map_err(|e| whole(format!("the text is not UTF-8: {e}")))?;
    let config = crate::parse(string).map_err(|e| {
        let number = |n: u64| usize::try_from(n).unwrap_or(1).max(1);
        LoadError(vec![error(number(e.line), number(e.column), String::new(), e.message, e.snippet)])
    })?;
    Ok(Loaded { text: Zeroizing::new(text.to_vec()), config, documents: Vec::new(), warnings: Vec::new() })
}

impl Loaded {
    /// Judges the values for a machine of this `mode`; the result is warnings.
    ///
    /// # Errors
    /// [`LoadError`] with every value that is refused.
    pub fn validate(&self, _mode: Mode) -> Result<Vec<Diagnostic>, LoadError> {
        match crate::validate(&self.config) {
            Ok(()) => Ok(Vec::new()),
            Err(e) => {
                let problems = e.0.into_iter();
                Err(LoadError(problems.map(|p| error(1, 1, p.field, p.message, String::new())).collect()))
            }
        }
    }
}

fn error(line: usize, column: usize, path: String, message: String, snippet: String) -> Diagnostic {
    Diagnostic { severity: Severity::Error, document: 1, line, column, path, message, snippet }
}
