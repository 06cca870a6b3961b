//! The binary form of resources, from the same values as the YAML form.
//!
//! Owns: proto/definitions (field number, type and YAML key of every published type in one place; types.tsv names
//! the message of each type), the encoder that writes a message from the tree that YAML shows, the way back, and what a
//! typed client sees in the spelling of YAML (`shown`).
//! Does not: know what a resource means (service-manager), or read YAML text.
//! Fails by: [`Problem`], with the path of the field. A key that a message does not have is such a problem, so that
//! a field cannot appear in one form only.
//! Source: crates/api/tests/data/resources.tsv.

mod decode;
mod encode;
mod schema;
mod shown;
mod text;

#[cfg(test)]
mod tests;

pub use decode::decode;
pub use encode::encode;
pub use schema::{Column, PUBLISHED, Published, published};
pub use shown::shown;
pub use text::interface_flags;

/// Why a value has no binary form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct Problem {
    /// Message and keys, for instance `network.LinkStatusSpec.bondMaster.mode`.
    pub path: String,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The YAML form has a key that the message has no field for.
    #[error("the message has no field with this key")]
    UnknownKey,
    /// The schema names a message or an enum that it does not define.
    #[error("the schema does not define {0}")]
    Undefined(String),
    /// The value has another shape than the field.
    #[error("expected {expected}, found {found}")]
    Shape {
        /// What the field takes.
        expected: &'static str,
        /// The value, shortened.
        found: String,
    },
    /// An enum has no value of this name.
    #[error("{0:?} is not a value of {1}")]
    UnknownWord(String, String),
}
