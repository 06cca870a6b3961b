//! A client of containerd's API, over its unix socket.
//!
//! | file | calls |
//! |---|---|
//! | `client` | the connection; lists of what is here and what runs |
//! | `fetch` | an image from a registry into the store |
//! | `unpack` | an image's layers as a snapshot |
//! | `run` | containers and their tasks |
//! | `wire`, `run_wire` | messages |
//!
//! Owns: the calls this node makes. Does not: decide which containerd or namespace; its callers do.
//! Source: containerd's published API (1.7 and later); grpc.health.v1.

mod client;
mod fetch;
#[cfg(test)]
mod mirror_tests;
mod run;
mod run_wire;
mod size;
#[cfg(test)]
pub(crate) mod tests;
mod unpack;
mod wire;

pub use client::Client;
pub use fetch::FetchError;
pub use run::NewContainer;
pub use unpack::Unpacked;
pub use wire::{Container, Descriptor, Image, Ingest, Task, TaskStatus};
