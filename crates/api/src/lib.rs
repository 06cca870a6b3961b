//! The node API: protobuf types, roles, PKI, TLS, client configuration and connection.
//!
//! Owns: everything that client and node must agree on. Does not: serve calls (service-manager), print (cli).
//! Source: crates/api/testdata/wire.txt.
#![warn(missing_docs)]

pub mod client;
pub mod definitions;
pub mod event;
pub mod file_mode;
pub mod generate;
pub mod pki;
pub mod proto;
pub mod roles;
pub mod talosconfig;
pub mod tls;
pub mod version;
