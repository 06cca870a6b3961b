//! Keys and certificates of the node API.
//!
//! Owns: making the CA, server and client certificates, signing requests for trustd, reading what others made.
//! Does not: keep anything on disk, decide who may get a certificate, use a certificate on a connection (`tls`).
//! Fails by: [`PkiError`], which names the object and never holds key material.
//! Source: docs/users/pki.md.

mod authority;
mod der;
mod facts;
mod key;
mod pem;
mod request;
mod subject;

pub use authority::{
    Authority, BACKDATE, CA_LIFETIME, Identity, LEAF_LIFETIME, Leaf, Lifetime, Usage, certificate_request,
    request_for, self_signed,
};
pub use facts::CertificateFacts;
pub use key::{Algorithm, PrivateKey};
pub use pem::{Block, blocks, certificates};
pub use request::{requested_names, requested_organizations};

/// What went wrong with a key or certificate.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// No block of the wanted label, or its inside is no base64.
    #[error("read {what}: {reason}")]
    Pem {
        /// What was to be read: `the CA certificate`.
        what: &'static str,
        /// Why it could not be.
        reason: &'static str,
    },
    /// The bytes are not what the label says, or of a kind that is not supported.
    #[error("use {what}: {reason}")]
    Unusable {
        /// What was to be used.
        what: &'static str,
        /// Why it could not be.
        reason: String,
    },
    /// Certificate and key are not a pair.
    #[error("the certificate of {what} does not belong to its private key")]
    Mismatch {
        /// Whose they are.
        what: &'static str,
    },
    /// A name that is neither an address nor a DNS name.
    #[error("`{0}` can not stand in a certificate: it is neither an IP address nor a DNS name")]
    Name(String),
    /// Making or signing failed.
    #[error("make {what}: {reason}")]
    Make {
        /// What was to be made.
        what: &'static str,
        /// Why it could not be.
        reason: String,
    },
}
