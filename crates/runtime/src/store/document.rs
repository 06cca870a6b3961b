//! The machine config as resources hold it.
//!
//! Does not: derive Debug: it holds secrets.

use zeroize::Zeroizing;

/// A machine config: the text that was given and what it says.
#[derive(Clone, PartialEq)]
pub struct MachineDocument {
    /// The document as it was given.
    pub text: Zeroizing<String>,
    /// What it says.
    pub config: config::Config,
    /// The documents beside the main one, in their order.
    pub documents: Vec<config::Document>,
}
