//! etcd on this node: the service, its health, and the bootstrap of a cluster.
//!
//! | file | what |
//! |---|---|
//! | `service` | how it runs: certificates, image, arguments, mounts |
//! | `client` | a client of this node's member |
//! | `state` | what the disk says of the member |
//! | `bootstrap` | the call that makes this node the first member of a new cluster |
//!
//! Owns: /var/lib/etcd, and the mark beside it that says that a bootstrap was asked for.
//! Order: the mark is on the disk before a bootstrap is acknowledged, and goes when the member answers: a machined that is killed
//! in between, or a power cut, goes on. etcd with data takes no argument of a bootstrap: its data says what it is.

mod bootstrap;
mod client;
pub(crate) mod mutex;
mod service;
mod state;
#[cfg(test)]
mod tests;

pub use bootstrap::BootstrapError;
pub use client::Member;
pub use state::{ID, is_member};
