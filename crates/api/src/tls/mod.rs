//! Mutual TLS of the node API.
//!
//! | task | in | out | ends |
//! |---|---|---|---|
//! | `accept` loop | TCP connections of a listener | one `handshake` task each | when the receiver of connections is dropped |
//! | `handshake` | one connection | an authenticated stream, or a [`Refusal`] | after the handshake or [`HANDSHAKE_DEADLINE`] |
//!
//! Owns: the TLS profile of both ends and the reasons for refusing a peer. Does not: judge roles (`roles`).
//! Fails by: [`TlsError`] when a configuration can not be made, [`Refusal`] for a peer.
//! Source: docs/users/pki.md; RFC 8446.

mod accept;
mod client;
mod refusal;
mod server;
mod verify;

pub use accept::{FIRST_BYTE_DEADLINE, HANDSHAKE_DEADLINE, Incoming, accept, network};
pub use client::{Trust, client};
pub use refusal::{Refusal, reason};
pub use server::{Identities, server, server_without_clients};
pub use verify::{Clients, check_server};

use crate::pki::PkiError;
use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// gRPC runs over HTTP/2 only, and both client generations insist on its name.
const ALPN: &[u8] = b"h2";

/// Why a TLS configuration can not be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate or key is no good.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The TLS library refuses it.
    #[error("set up TLS with {what}: {reason}")]
    Refused {
        /// What was handed over.
        what: &'static str,
        /// The library's reason.
        reason: String,
    },
}

/// ring, named here so that no process depends on a default installed in its `main`.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn refused(what: &'static str) -> impl Fn(rustls::Error) -> TlsError {
    move |e| TlsError::Refused { what, reason: e.to_string() }
}
