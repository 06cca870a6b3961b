//! Kubernetes on a node: what `kubernetes` renders becomes files, services and calls.
//!
//! | module | what it does |
//! |---|---|
//! | [`facts`] | what rendering needs of the machine, from its resources |
//! | [`certificates`] | makes each certificate, keeps it while it is good, renews it at half of its life |
//! | [`certificate_list`] | which there are, and others in their place when a client asks |
//! | [`files`] | writes files for the users that read them |
//! | [`etcd`] | the service, its health, the bootstrap of a cluster, joining and leaving it |
//! | [`kubelet`] | the service, and when it starts again |
//! | `kubelet_credentials` | its first certificate on a control plane node, and what it keeps when authorities change |
//! | `kubelet_joining` | when the kubelet of a worker starts for the first time |
//! | [`health`] | whether the cluster is well, as its API server tells |
//! | `node_labels`, `node_taints` | labels, annotations and taints of the node's object in the cluster |
//! | `node_object` | the node's object: read, changed, and removed when the node goes for good |
//! | `drain` | pods go elsewhere before the node goes |
//! | `config_resources` | what clients see of what the node runs, and with what |
//! | `cluster_members` | the nodes of the cluster, as clients see them |
//! | `control_planes` | where the control plane nodes are, as the API server tells a kubelet |
//! | `static_pods` | when the manifests of static pods are there |
//! | `pod_statuses` | how static pods do, as the kubelet tells |
//! | `pods` | the end of pods, before the node ends |
//! | [`manifests`] | what a cluster needs from its first minute, brought into its API server |
//! | `api_server` | a client of the API server on this node |
//! | `api_servers` | which API servers the node's balancer begins with |
//! | [`admin`] | the administrator's kubeconfig |
//!
//! Owns: /system/secrets/kubernetes, /system/secrets/etcd, /system/config/kubernetes, /var/lib/etcd,
//! the files `talos-*` of /etc/kubernetes/manifests and of /system/config/kubernetes/manifests.
//! Does not: know machined; it stands on the runtime and on containers alone.
//! Order: keys and files of a program are there before the program starts.
//! Fails by: [`Error`], and by [`etcd::BootstrapError`] for the call; a service shows it and tries again.
#![warn(missing_docs)]

pub mod admin;
mod api_server;
mod api_servers;
pub mod certificate_list;
pub mod certificates;
mod cluster_members;
mod config_resources;
mod control_planes;
mod drain;
mod error;
pub mod etcd;
pub mod facts;
pub mod files;
pub mod health;
pub mod kubelet;
mod kubelet_credentials;
mod kubelet_joining;
pub mod manifests;
mod node_labels;
mod node_object;
mod node_taints;
mod pod_resources;
mod pod_statuses;
mod pods;
mod published;
#[cfg(test)]
mod samples;
mod static_pods;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use containers::Client;
use containers::service::Fetch;
use runtime::Runtime;
use tokio::sync::Notify;

pub use api_server::OwnApiServer;
pub use api_servers::Balanced;
pub use error::Error;
pub use static_pods::remove_static_pods;

/// What machined does of Kubernetes.
#[derive(Clone)]
pub struct KubernetesNode {
    runtime: Arc<Runtime>,
    engine: Client,
    fetch: Fetch,
    is_container: bool,
    /// Told when a bootstrap was asked for.
    asked: Arc<Notify>,
    /// The node leaves etcd's cluster.
    leaving: Arc<AtomicBool>,
    /// Pods are to go elsewhere, until the node restarts or is to stay after all.
    draining: Arc<AtomicBool>,
    /// Told when certificates are others than the static pods run with.
    renewed: Arc<Notify>,
    /// Held while a snapshot comes, and while data is made of it.
    recovering: Arc<tokio::sync::Mutex<()>>,
}

impl KubernetesNode {
    /// Its services run in this containerd; `fetch` brings their images. `is_container`: the machine is a set of namespaces.
    pub fn new(runtime: Arc<Runtime>, engine: Client, fetch: Fetch, is_container: bool) -> Self {
        Self {
            runtime,
            engine,
            fetch,
            is_container,
            asked: Arc::default(),
            leaving: Arc::default(),
            draining: Arc::default(),
            renewed: Arc::default(),
            recovering: Arc::default(),
        }
    }
}
