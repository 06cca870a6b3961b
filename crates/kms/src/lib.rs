//! Keys of volumes, sealed by a server.
//!
//! | module | part |
//! |---|---|
//! | `endpoint` | where the server answers, as configs write it |
//! | `client` | what a node asks |
//! | `server` (feature) | a small server: AES-256-GCM under a key in a file |
//!
//! Owns: the protocol, which is that of Talos' `kms` keys.
//! Does not: know volumes or slots, or keep a key.
//! Fails by: [`Error`] with the server's address.
//! Source: proto/kms/kms.proto.

mod client;
mod endpoint;
#[cfg(feature = "server")]
pub mod server;

pub use client::{Client, Error, Trust};
pub use endpoint::{Endpoint, EndpointError};

/// Messages and services of the wire.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod proto {
    tonic::include_proto!("sidero.kms");
}
