//! Kubernetes on a node: what `kubernetes` renders becomes files, services and calls.
//!
//! | module | what it does |
//! |---|---|
//! | [`facts`] | what rendering needs of the machine, from its resources |
//! | [`certificates`] | makes each certificate, keeps it while it is good, renews it at half of its life |
//! | [`files`] | writes files for the users that read them |
//! | [`etcd`] | the service, its health, the bootstrap of a cluster |
//! | [`admin`] | the administrator's kubeconfig |
//!
//! Owns: /system/secrets/kubernetes, /system/secrets/etcd, /system/config/kubernetes, /var/lib/etcd.
//! Does not: know machined; it stands on the runtime and on containers alone.
//! Order: keys and files of a program are there before the program starts.
//! Fails by: [`Error`], and by [`etcd::BootstrapError`] for the call; a service shows it and tries again.
#![warn(missing_docs)]

pub mod admin;
pub mod certificates;
mod error;
pub mod etcd;
pub mod facts;
pub mod files;
#[cfg(test)]
mod samples;

use std::sync::Arc;

use containers::Client;
use containers::service::Fetch;
use runtime::Runtime;
use tokio::sync::Notify;

pub use error::Error;

/// What machined does of Kubernetes.
#[derive(Clone)]
pub struct KubernetesNode {
    runtime: Arc<Runtime>,
    engine: Client,
    fetch: Fetch,
    is_container: bool,
    /// Told when a bootstrap was asked for.
    asked: Arc<Notify>,
}

impl KubernetesNode {
    /// Its services run in this containerd; `fetch` brings their images. `is_container`: the machine is a set of namespaces.
    pub fn new(runtime: Arc<Runtime>, engine: Client, fetch: Fetch, is_container: bool) -> Self {
        Self { runtime, engine, fetch, is_container, asked: Arc::default() }
    }
}
