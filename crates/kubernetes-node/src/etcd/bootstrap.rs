//! The call that makes this node the first member of a new cluster.
//!
//! Owns: when it is refused. A second cluster beside a living one loses what the first one knows, so it is refused where this
//! node has data, and where etcd or an API server of the same authorities answers at the endpoint.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::tls::{self, Trust};
use config::Config;
use kubernetes::snapshot::SnapshotError;
use kubernetes::{Cluster, certificates};
use runtime::services::machine::State;
use runtime::store::{Spec, TIME_STATUS};
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::record;
use super::state::{Data, ID, data};
use crate::{Error, KubernetesNode, certificates as issuing, facts};

/// For one answer of what may run at the endpoint.
const ANSWER_DEADLINE: Duration = Duration::from_secs(3);
/// Port of etcd for clients.
const ETCD_PORT: u16 = 2379;
/// The profile with which etcd is asked.
const ETCD_CLIENT: &str = "etcd-admin";

/// Why a bootstrap is refused.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// A worker.
    #[error("bootstrap can only be performed on a control plane node")]
    Worker,
    /// etcd is not ready to start.
    #[error("bootstrap is not available yet: {0}")]
    NotYet(String),
    /// Certificates would be valid at another time.
    #[error("time is not in sync yet")]
    NoTime,
    /// This node has data.
    #[error(
        "etcd data directory is not empty: this node is a member of a cluster already. A cluster is mended with apply-config; to \
         begin a new one, reset the node's EPHEMERAL partition first"
    )]
    HasData,
    /// A bootstrap was asked for before.
    #[error("a bootstrap of this node is under way already; see `service etcd`")]
    UnderWay,
    /// The cluster has taken this node.
    #[error(
        "this node joins a cluster already: its etcd has been asked to take it. If that cluster is gone, reset the node's EPHEMERAL \
         partition first"
    )]
    Joins,
    /// There is a cluster.
    #[error(
        "{what} of this cluster answers at {address}: bootstrap would begin a second cluster beside it; a node joins by itself"
    )]
    Answers {
        /// `etcd` or `an API server`.
        what: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// The snapshot comes first.
    #[error(
        "no snapshot of etcd was sent to this node: `bootstrap --recover-from FILE` sends one before it asks for the bootstrap"
    )]
    NoSnapshot,
    /// What was sent is none.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// More than a database of etcd has.
    #[error("the snapshot is longer than {0} bytes, which no database of etcd is")]
    TooLong(u64),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] Error),
}

impl KubernetesNode {
    /// Has etcd begin a new cluster. It answers when the request is on the disk; etcd starts behind that.
    ///
    /// # Errors
    /// [`BootstrapError`]; nothing has changed then.
    pub async fn bootstrap(&self) -> Result<(), BootstrapError> {
        let config = self.refuse_member()?;
        if data(&self.runtime.root)? != Data::None {
            return Err(BootstrapError::UnderWay);
        }
        self.may_begin(&config).await?;
        self.mark(None)?;
        self.runtime.journal.say("etcd begins a new cluster: bootstrap was asked for");
        Ok(())
    }

    /// The configuration, if this node is a control plane node that is no member and does not become one.
    pub(super) fn refuse_member(&self) -> Result<Arc<Config>, BootstrapError> {
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        if !config.machine.machine_type.is_control_plane() {
            return Err(BootstrapError::Worker);
        }
        match data(&self.runtime.root)? {
            Data::Member => return Err(BootstrapError::HasData),
            Data::Asked => return Err(BootstrapError::UnderWay),
            // etcd has not started: what was asked for can be another thing yet.
            Data::Recover(_) | Data::None => {}
        }
        if record::read(&self.runtime.root)?.is_some() {
            return Err(BootstrapError::Joins);
        }
        Ok(config)
    }

    /// Whether etcd would start, and no other cluster answers.
    pub(super) async fn may_begin(&self, config: &Config) -> Result<(), BootstrapError> {
        let record = self.runtime.services.record(ID);
        let record = record
            .ok_or_else(|| BootstrapError::NotYet("etcd is not defined before the node has booted".into()))?;
        if !matches!(record.state, State::Preparing | State::Waiting | State::Pausing) {
            return Err(BootstrapError::NotYet(format!("etcd is {}", record.state.text())));
        }
        if !self.has_time() {
            return Err(BootstrapError::NoTime);
        }
        let cluster = Cluster::new(config).map_err(Error::from)?;
        self.refuse_second_cluster(&cluster).await
    }

    fn has_time(&self) -> bool {
        self.runtime.store.list(&TIME_STATUS).iter().any(|resource| match &resource.spec {
            Spec::TimeStatus(status) => status.synced || status.sync_disabled,
            _ => false,
        })
    }

    async fn refuse_second_cluster(&self, cluster: &Cluster<'_>) -> Result<(), BootstrapError> {
        let node = facts::node(&self.runtime, cluster, self.is_container)?;
        let profiles = certificates::all(cluster, &node).map_err(Error::from)?;
        let Some(profile) = profiles.iter().find(|profile| profile.id == ETCD_CLIENT) else { return Ok(()) };
        let identity = issuing::issue(cluster, profile)?;
        let (authorities, etcd_ca) = (cluster.authorities(), &cluster.config().cluster.etcd.ca.crt.0);
        for address in endpoint(cluster).await {
            let etcd = SocketAddr::new(address.ip(), ETCD_PORT);
            let asked =
                [("an API server", address, &authorities, None), ("etcd", etcd, etcd_ca, Some(&identity))];
            for (what, address, authority, identity) in asked {
                if answers(address, authority, identity).await {
                    return Err(BootstrapError::Answers { what, address });
                }
            }
        }
        Ok(())
    }
}

/// Addresses of the endpoint; none while its name is unknown.
pub(super) async fn endpoint(cluster: &Cluster<'_>) -> Vec<SocketAddr> {
    let port = cluster.endpoint_port();
    let Some(host) = cluster.endpoint_host() else { return Vec::new() };
    let found =
        tokio::time::timeout(ANSWER_DEADLINE, lookup_host((host.trim_matches(['[', ']']), port))).await;
    found.ok().and_then(Result::ok).map(Iterator::collect).unwrap_or_default()
}

/// Whether a server there has a certificate of this authority. One of another cluster, or a load balancer without a server
/// behind it, is none.
async fn answers(address: SocketAddr, authority: &str, identity: Option<&api::pki::Identity>) -> bool {
    let Ok(config) = tls::client(Trust::Authority(authority), identity) else { return false };
    let shake = async {
        let stream = TcpStream::connect(address).await.ok()?;
        TlsConnector::from(config).connect(ServerName::from(address.ip()), stream).await.ok()
    };
    tokio::time::timeout(ANSWER_DEADLINE, shake).await.is_ok_and(|shaken| shaken.is_some())
}
