//! What is wrong with an expression, and where.

use std::fmt;

/// How much of the text behind a fault is shown, in characters.
const SHOWN: usize = 16;

/// What is wrong with an expression, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The first character that is meant, from 1.
    pub character: usize,
    /// What stands there; empty at the end.
    pub near: String,
    /// What is wrong, and what to write.
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.near.as_str() {
            "" => write!(f, "at its end: {}", self.why),
            near => write!(f, "character {}, at `{near}`: {}", self.character, self.why),
        }
    }
}

/// A fault at a byte of the text.
#[derive(Debug)]
pub(super) struct At {
    byte: usize,
    why: String,
}

impl At {
    pub(super) fn new(byte: usize, why: impl Into<String>) -> Self {
        Self { byte, why: why.into() }
    }

    pub(super) fn in_text(self, text: &str) -> Fault {
        let before = text.get(..self.byte).unwrap_or(text);
        let behind = text.get(self.byte..).unwrap_or_default();
        let near = behind.chars().take(SHOWN).collect::<String>().trim_end().to_owned();
        Fault { character: before.chars().count() + 1, near, why: self.why }
    }
}
