//! etcd on this node: the service, its health, and the bootstrap of a cluster.
//!
//! | file | what |
//! |---|---|
//! | `service` | how it runs: certificates, image, arguments, mounts |
//! | `program` | user, rights and environment of the programs of its image |
//! | `member` | a member as it is listed |
//! | `client` | clients of the members |
//! | `state` | what the disk says of the member |
//! | `record` | which member of which cluster the data is of |
//! | `bootstrap` | the call that makes this node the first member of a new cluster |
//! | `recover` | a cluster that begins with the content of a snapshot |
//! | `snapshots` | snapshots that the node takes by itself |
//! | `join` | how a further node becomes a member of a cluster |
//! | `members` | the calls about members: remove, leave, the leader, alarms, snapshots |
//! | `consistency` | whether the members agree, and are the control plane nodes |
//! | `peers` | which nodes reach its ports |
//! | [`quorum`] | whether the cluster outlives a removal |
//! | [`election`] | which control plane node has a shared address |
//! | `upgrade` | whether etcd bears that this node is upgraded |
//! | `mutex` | a mutex that the control plane nodes share |
//!
//! Owns: /var/lib/etcd, and beside it the mark that a bootstrap was asked for, the record of the member, and a snapshot that the
//! data is made of; the snapshots that the node takes.
//! Order: the mark is on the disk before a bootstrap is acknowledged, and goes when the member answers: a machined that is killed
//! in between, or a power cut, goes on. etcd with data takes no argument of a bootstrap: its data says what it is.

mod bootstrap;
mod client;
mod consistency;
pub mod election;
mod join;
mod member;
mod members;
pub(crate) mod mutex;
mod peers;
mod program;
pub mod quorum;
mod record;
mod recover;
mod service;
mod snapshots;
mod state;
#[cfg(test)]
mod tests;
mod upgrade;

pub use bootstrap::BootstrapError;
pub use join::JoinError;
pub use member::{Health, Member};
pub use members::{Alarm, AlarmKind, Downgrade, MemberError, MemberStatus, Snapshot};
pub use recover::SnapshotUpload;
pub(crate) use recover::restored;
pub use service::HEALTH_PLACE;
pub use snapshots::{Put, Upload, What};
pub use state::{ID, is_member};
pub use upgrade::UpgradeError;
