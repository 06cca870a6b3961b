//! The machine config as resources hold it.
//!
//! Does not: derive Debug: it holds secrets.

use std::sync::Arc;

use zeroize::Zeroizing;

/// A machine config: the text that was given and what it says.
#[derive(Clone)]
pub struct MachineDocument {
    /// The document as it was given.
    pub text: Zeroizing<String>,
    /// What it says; shared with those that follow the config in force.
    pub config: Arc<config::Config>,
    /// The documents beside the main one, in their order.
    pub documents: Vec<config::Document>,
}

impl MachineDocument {
    /// Of a text and what was read from it.
    pub fn new(text: Zeroizing<String>, config: config::Config, documents: Vec<config::Document>) -> Self {
        Self { text, config: Arc::new(config), documents }
    }
}

/// The text decides: the rest follows from it, and of ten thousand routes takes many times longer to compare.
impl PartialEq for MachineDocument {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for MachineDocument {}
