//! What a target is, and what an input did to it.

use crate::shape;

/// Something that reads what others wrote.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that mean something in them.
    pub words: &'static [&'static str],
    /// Reads one input.
    pub run: fn(&[u8]) -> Outcome,
}

/// What an input did.
pub struct Outcome {
    /// Whether it was good.
    pub accepted: bool,
    /// What each answer is like.
    pub shapes: Vec<String>,
}

impl Outcome {
    pub(crate) fn refused(message: &str) -> Self {
        Self { accepted: false, shapes: vec![shape::of(message)] }
    }
}
