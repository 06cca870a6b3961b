//! The machine configuration and the kernel command line.
//!
//! Owns: the types of the v1alpha1 document, one file for each section; reading it with positions, checking it,
//! writing a fresh one, patching one, rewriting one into its other form; the `billet.` and `talos.` kernel parameters.
//! Does not: fetch a configuration, apply it, or make keys (`api::pki`).
//! Fails by: [`LoadError`] with every error at once, each with its place and a hint. Secrets are in no error text and
//! have no `Debug`.
//! Source: docs/users/configuration.md.
#![warn(missing_docs)]

pub mod cmdline;
mod diagnostic;
pub mod documents;
mod encoded;
mod generate;
mod load;
pub mod own;
pub mod patch;
mod quirks;
pub mod rewrite;
pub mod schema;
mod secret;
pub mod selector;
mod text;
pub mod v1alpha1;
mod validate;
mod yaml;

pub use diagnostic::{Diagnostic, LoadError, Severity};
pub use documents::Document;
pub use encoded::{CertificateAndKey, EncodedPem, EncodedSecret, decode_base64};
pub use generate::{GenerateError, Input, Tokens, generate, write};
pub use load::{Loaded, MAX_BYTES, Mode, load, parse};
pub use secret::Secret;
pub use text::{endpoint_host, hardware_bytes, routing_table};
pub use v1alpha1::{Config, MachineType};
pub use validate::{NODE_ETC_FILES, Problem, ValidateError, lacks_authority, static_pod_id, validate};
