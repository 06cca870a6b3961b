//! Why a part of Kubernetes cannot run here.

use std::net::IpAddr;
use std::path::PathBuf;

/// Why a part of Kubernetes cannot run here, for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no machine configuration yet.
    #[error("the node has no machine configuration yet")]
    NoConfig,
    /// The node has no name yet.
    #[error("the node has no host name yet")]
    NoName,
    /// The node has no address by which others reach it.
    #[error("the node has no address yet by which others reach it")]
    NoAddress,
    /// The only addresses of the node are those of services: what they are sent to would never leave the node.
    #[error(
        "the node's address {address} lies in the Service network {network}; give the node an address outside of it, or the \
         cluster another cluster.network.serviceSubnets"
    )]
    AddressOfServices {
        /// The node's address.
        address: IpAddr,
        /// The network of services.
        network: String,
    },
    /// The configuration.
    #[error(transparent)]
    Config(#[from] kubernetes::Error),
    /// An authority of the configuration.
    #[error("{field}: {source}")]
    Authority {
        /// Its field.
        field: &'static str,
        /// What is wrong with it.
        source: api::pki::PkiError,
    },
    /// A certificate.
    #[error("certificate {id}: {source}")]
    Certificate {
        /// Which.
        id: &'static str,
        /// Why it cannot be made.
        source: api::pki::PkiError,
    },
    /// A key that cannot be read.
    #[error("{field}: {source}")]
    Key {
        /// Its field.
        field: &'static str,
        /// What is wrong with it.
        source: api::pki::PkiError,
    },
    /// A file.
    #[error("{what} {path}: {source}", path = path.display())]
    File {
        /// `write`, `read`, `remove`.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The API server: on a control plane node its own.
    #[error("{what} the API server: {reason}")]
    ApiServer {
        /// `connect to`, `ask`.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// A service that does not end.
    #[error("stop {what}: {reason}")]
    Stop {
        /// Which.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// A service that does not start again.
    #[error("restart {service}: {reason}")]
    Restart {
        /// Which.
        service: &'static str,
        /// Why not.
        reason: String,
    },
    /// A snapshot of which no data could be made.
    #[error(
        "no data of etcd is made of the snapshot: {reason}. `bootstrap --recover-from` takes another snapshot"
    )]
    Restore {
        /// The words of the tool, or of containerd.
        reason: String,
    },
    /// etcd has never started here.
    #[error("etcd has not started on this node yet; `service etcd` says what it waits for")]
    NoEtcd,
    /// etcd.
    #[error("ask etcd at {place}: {reason}")]
    Etcd {
        /// Where.
        place: String,
        /// Its words.
        reason: String,
    },
}
