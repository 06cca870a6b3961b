//! Containers of a node by containerd: a client of its API over its unix socket, and services that run as containers.
//!
//! | module | what |
//! |---|---|
//! | [`service`] | services of the node's own as containers: what a supervisor asks for |
//! | `client` | the connection; lists of what is here and what runs |
//! | `fetch` | an image from a registry into the store |
//! | `unpack` | an image's layers as a snapshot |
//! | `run` | containers and their tasks |
//! | `pods` | pods of Kubernetes, and their end |
//! | `wire`, `run_wire`, `pods_wire` | messages |
//!
//! Owns: the calls this node makes. Does not: decide which containerd or namespace; its callers do.
//! Source: containerd's published API (1.7 and later); grpc.health.v1.
#![warn(missing_docs)]

mod client;
mod fetch;
mod pods;
mod pods_wire;
mod run;
mod run_wire;
pub mod service;
mod size;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod unpack;
mod wire;

pub use client::Client;
pub use fetch::FetchError;
pub use pods::{Pod, Stopped};
pub use run::NewContainer;
pub use unpack::Unpacked;
pub use wire::{Container, Descriptor, Image, Ingest, Task, TaskStatus};
