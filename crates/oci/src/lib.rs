//! OCI images: what they are called, what they hold, where they come from.
//!
//! Owns: references, manifests of OCI and of Docker's schema 2, layouts in tar files, the registry protocol, signatures,
//! and what makes an image an installer image of Billet.
//! Files that are no images come and go over the same connections: [`download()`], [`upload()`].
//! Does not: keep images, unpack them to a file system, push; decide what is done with one.
//! Order: [`Reference`] → [`registry::Client`] or [`archive::Archive`] → [`document`] → [`files`] → [`installer`].
//! Fails by: one [`Error`] that names the image or the address, and says what to do where a person can do something.
//! An image that is there and none to install from is an [`installer::Refusal`].
//! Memory: documents are at most 4 MiB, everything else streams; a blob counts only once its digest was compared.

#![warn(missing_docs)]

pub mod archive;
pub mod document;
pub mod files;
pub mod installer;
pub mod reference;
pub mod registry;
#[cfg(any(test, feature = "server"))]
pub mod server;
pub mod signature;
pub mod tarball;

mod digest;
mod download;
mod error;
mod upload;

pub use digest::Hasher;
pub use download::{answers, download};
pub use error::Error;
pub use reference::Reference;
pub use upload::{Content, upload};
