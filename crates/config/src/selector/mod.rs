//! `diskSelector.match` and `LinkAliasConfig.selector.match`: which disks or links are meant, in a subset of CEL, the Common
//! Expression Language.
//!
//! | part | owns |
//! |---|---|
//! | `fault` | what is wrong, and where |
//! | `lexer` | texts, numbers, names and signs, each with its place |
//! | `parser` | what binds how strongly, which names there are |
//! | `types` | what fits together: checked once, when an expression is read |
//! | `evaluate` | the answer for one disk or link |
//! | `subject` | what an expression is about, and values |
//! | `properties`, `links` | what is known of a disk and of a link, under the names that expressions have for it |
//!
//! Owns: the operators, functions and constants that the public guides use. What is accepted means what it means in CEL;
//! what is not known here is an error, never another meaning.
//! Does not: look at disks and links; choose one of several.
//! Fails by: [`Fault`], with the character where it is and what to write.
//! Source: the CEL specification (grammar, errors absorbed by `&&` and `||`); the second generation's pages on common
//! elements of volume documents; docs/decisions/0013.

mod evaluate;
mod fault;
mod lexer;
mod links;
mod parser;
mod properties;
mod subject;
mod types;

#[cfg(test)]
mod tests;

pub use fault::Fault;
pub use links::LinkProperties;
pub use properties::Properties;

use fault::At;
use subject::Words;

/// Longest expression, in bytes.
pub const MOST_BYTES: usize = 2048;

/// An expression that was read, and that is true or false of a disk.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    root: types::Node,
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`Fault`] for one that is not CEL, that uses what is not known here, or that is neither true nor false.
    pub fn read(text: &str) -> Result<Self, Fault> {
        Self::about(text, Words::of::<Properties>())
    }

    fn about(text: &str, words: Words) -> Result<Self, Fault> {
        let fault = |at: At| at.in_text(text);
        if text.len() > MOST_BYTES {
            return Err(fault(At::new(0, format!("longer than {MOST_BYTES} bytes"))));
        }
        let root = lexer::tokens(text)
            .and_then(|tokens| parser::parse(&tokens, text.len(), words))
            .map_err(fault)?;
        Ok(Self { text: text.to_owned(), root })
    }

    /// The text that was read.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a disk is meant.
    ///
    /// # Errors
    /// [`Fault`] for what is not known of it, and for numbers that are too large.
    pub fn matches(&self, disk: &Properties) -> Result<bool, Fault> {
        evaluate::truth(&self.root, disk).map_err(|at| at.in_text(&self.text))
    }
}

/// An expression that was read, and that is true or false of a link.
#[derive(Debug, Clone)]
pub struct LinkExpression(Expression);

impl LinkExpression {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`Fault`], as of [`Expression::read`].
    pub fn read(text: &str) -> Result<Self, Fault> {
        Expression::about(text, Words::of::<LinkProperties>()).map(Self)
    }

    /// Whether a link is meant.
    ///
    /// # Errors
    /// [`Fault`] for numbers that are too large.
    pub fn matches(&self, link: &LinkProperties) -> Result<bool, Fault> {
        evaluate::truth(&self.0.root, link).map_err(|at| at.in_text(&self.0.text))
    }
}
