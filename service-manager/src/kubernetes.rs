//! Kubernetes' part of the node: `kubernetes-node`, with what it needs of machined.
//!
//! Owns: which containerd runs it, and how its images come: by the config's registries, and signed where the config wants that;
//! and how its manifests come and its snapshots go: by the node's proxies and authorities.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use containers::Client;
use containers::service::Fetch;
use kubernetes_node::KubernetesNode;
use kubernetes_node::etcd::{Put, Upload, What};
use kubernetes_node::manifests::{Download, Request};
use runtime::Runtime;
use runtime::errors::chain;

use crate::node::Node;
use crate::{kube_prism, shared_address, upgrade};

/// The containerd of pods runs these services too, in a namespace of its own.
const SOCKET: &str = "/run/containerd/containerd.sock";
const NAMESPACE: &str = "system";

/// Gives the node its one.
pub(crate) fn join(node: &Arc<Node>) {
    let engine = Client::new(Path::new(SOCKET), NAMESPACE);
    let fetch = fetch(Arc::downgrade(node));
    let made = KubernetesNode::new(node.runtime.clone(), engine, fetch, node.is_container());
    let (download, upload) = (download(Arc::downgrade(node)), upload(Arc::downgrade(node)));
    let tasks = Tasks { runtime: &node.runtime, kubernetes: &made };
    tasks.start("etcd-certificates", "renews etcd's certificates", |it| async move {
        it.keep_etcd_certificates().await
    });
    tasks.start("etcd-membership", "promotes learners and follows the members of etcd", |it| async move {
        it.keep_etcd_membership().await
    });
    tasks.start("etcd-peers", "follows which nodes may reach etcd", |it| async move {
        it.keep_etcd_peers().await
    });
    tasks.start(
        "kubelet",
        "starts the kubelet again where it would run with something else",
        |it| async move { it.keep_kubelet().await },
    );
    tasks.start("static-pods", "has the static pods be as the config says", |it| async move {
        it.keep_static_pods().await
    });
    tasks.start("pod-statuses", "shows how static pods do", |it| async move { it.keep_pod_statuses().await });
    tasks.start("node-labels", "has the node's object be as the config says", |it| async move {
        it.keep_node_labels().await
    });
    tasks.start("kubernetes-config", "shows what Kubernetes runs with", |it| async move {
        it.keep_config_resources().await
    });
    tasks.start("members", "shows the nodes of the cluster", |it| async move { it.keep_members().await });
    tasks.start("manifests", "makes the objects of a bootstrap", |it| async move {
        it.keep_manifests(download).await
    });
    tasks.start(
        "etcd-snapshots",
        "takes snapshots of etcd",
        |it| async move { it.keep_snapshots(upload).await },
    );
    // It is joined once, where the node is made.
    drop(node.kubernetes.set(made));
    let runtime = &node.runtime;
    runtime.start_task(
        "shared-address",
        "holds the addresses that nodes share",
        shared_address::run(shared_address::Cluster::new(runtime.clone(), node.kubernetes.clone())),
    );
    runtime.start_task(
        "kube-prism",
        "passes connections on to the API servers",
        kube_prism::run(runtime.clone(), node.kubernetes.clone()),
    );
}

/// Starts tasks that have a handle of Kubernetes each.
struct Tasks<'a> {
    runtime: &'a Runtime,
    kubernetes: &'a KubernetesNode,
}

impl Tasks<'_> {
    fn start<F>(&self, name: &'static str, about: &'static str, work: impl FnOnce(KubernetesNode) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.runtime.start_task(name, about, work(self.kubernetes.clone()));
    }
}

/// Where a pull fails, the service that needs the image says so, and how the next attempts go.
fn fetch(node: Weak<Node>) -> Fetch {
    let failed: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    Arc::new(move |client, name| {
        let (node, failed) = (node.clone(), failed.clone());
        Box::pin(async move {
            let failed = || failed.lock().unwrap_or_else(PoisonError::into_inner);
            let node = node.upgrade().ok_or("machined ends")?;
            let admitted = upgrade::admit(&node.runtime, &name).await.map_err(|error| error.to_string())?;
            let registry =
                upgrade::registry_of(&node.runtime, &admitted).map_err(|error| error.to_string())?;
            if !failed().contains(&name) {
                node.runtime.journal.say(&format!("image {name}: pulling"));
            }
            if let Err(error) = client.fetch(&name, &registry).await {
                let text = format!("pull {name}: {}", chain(&error));
                failed().insert(name);
                return Err(text);
            }
            failed().remove(&name);
            node.runtime.journal.say(&format!("image {name}: pulled"));
            Ok(())
        })
    })
}

fn download(node: Weak<Node>) -> Download {
    Arc::new(move |request: Request| {
        let node = node.clone();
        Box::pin(async move {
            let node = node.upgrade().ok_or("machined ends")?;
            let settings = upgrade::download_settings(&node.runtime)?;
            oci::download(settings, &request.url, &request.headers, request.max_bytes).await
        })
    })
}

fn upload(node: Weak<Node>) -> Upload {
    Arc::new(move |put: Put| {
        let node = node.clone();
        Box::pin(async move {
            let node = node.upgrade().ok_or("machined ends")?;
            let settings = upgrade::download_settings(&node.runtime)?;
            let content = match put.what {
                What::File(file, length) => oci::Content::File(tokio::fs::File::from_std(file), length),
                What::Bytes(bytes) => oci::Content::Bytes(bytes),
            };
            oci::upload(settings, put.address.expose_secret(), &put.headers, content).await
        })
    })
}
