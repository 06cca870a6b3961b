//! Why a configuration cannot be rendered.

use crate::version::VersionError;

/// Why a configuration cannot be rendered. Each names the field that has to change.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image does not say which version it holds, or one that is not supported.
    #[error("{field}: {source}")]
    Version {
        /// The field of the image.
        field: &'static str,
        /// What is wrong with its tag.
        source: VersionError,
    },
    /// An argument that would break what the node relies on.
    #[error("{field}: {name} is set by the node and cannot be replaced; remove it")]
    Denied {
        /// The field with further arguments.
        field: &'static str,
        /// The argument, without dashes.
        name: String,
    },
    /// A network that is none.
    #[error("{field}: {text:?} is not a network; write an address and a prefix length: 10.96.0.0/12")]
    Network {
        /// The field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// A service network without room for the addresses that every cluster has.
    #[error("{field}: {text} has no {number}th address; use a larger network")]
    NetworkTooSmall {
        /// The field.
        field: &'static str,
        /// The network.
        text: String,
        /// Which address is needed.
        number: u32,
    },
    /// A field that is needed on this node.
    #[error("{field} is missing; {hint}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What to write.
        hint: &'static str,
    },
    /// A free-form value that is not a mapping.
    #[error("{field} has to be a mapping of names to values")]
    NotAMapping {
        /// The field.
        field: &'static str,
    },
    /// A value that YAML or JSON cannot say.
    #[error("{what} cannot be written: {reason}")]
    Write {
        /// The file or object.
        what: &'static str,
        /// The serializer's words.
        reason: String,
    },
}
