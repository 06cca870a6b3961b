//! The machine configuration and the kernel command line.
//!
//! Owns: the types of the v1alpha1 document, one file for each section; reading it with positions, checking it,
//! writing a fresh one, patching one; the `billet.` and `talos.` kernel parameters.
//! Does not: fetch a configuration, apply it, or make keys (`api::pki`).
//! Fails by: [`ParseError`] and [`ValidateError`], each with the place and a hint. Secrets are in no error text and
//! have no `Debug`.
//! Source: shared/spec/machine-facts.md §1.
#![warn(missing_docs)]

pub mod cmdline;
mod diagnostic;
mod encoded;
mod generate;
mod load;
mod parse;
pub mod patch;
mod secret;
pub mod v1alpha1;
mod validate;

pub use diagnostic::{Diagnostic, LoadError, Severity};
pub use encoded::{CertificateAndKey, EncodedPem, EncodedSecret, decode_base64};
pub use generate::{GenerateError, Input, Tokens, generate};
pub use load::{Document, Loaded, Mode, load};
pub use parse::{ParseError, parse};
pub use secret::Secret;
pub use v1alpha1::{Config, MachineType};
pub use validate::{Problem, ValidateError, endpoint_host, validate};
