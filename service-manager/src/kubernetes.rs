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
    let (certificates, kubelet, pods, manifests) = (made.clone(), made.clone(), made.clone(), made.clone());
    let (labels, statuses, resources, members) = (made.clone(), made.clone(), made.clone(), made.clone());
    let (nodes, snapshots, peers) = (made.clone(), made.clone(), made.clone());
    let (download, upload) = (download(Arc::downgrade(node)), upload(Arc::downgrade(node)));
    let runtime = &node.runtime;
    runtime.start_task("etcd-certificates", "renews etcd's certificates", async move {
        certificates.keep_etcd_certificates().await
    });
    runtime.start_task("etcd-membership", "promotes learners and follows the members of etcd", async move {
        members.keep_etcd_membership().await
    });
    runtime.start_task("etcd-peers", "follows which nodes may reach etcd", async move {
        peers.keep_etcd_peers().await
    });
    runtime.start_task(
        "kubelet",
        "starts the kubelet again where it would run with something else",
        async move { kubelet.keep_kubelet().await },
    );
    runtime.start_task("static-pods", "has the static pods be as the config says", async move {
        pods.keep_static_pods().await
    });
    runtime.start_task("pod-statuses", "shows how static pods do", async move {
        statuses.keep_pod_statuses().await
    });
    runtime.start_task("node-labels", "has the node's object be as the config says", async move {
        labels.keep_node_labels().await
    });
    runtime.start_task("kubernetes-config", "shows what Kubernetes runs with", async move {
        resources.keep_config_resources().await
    });
    runtime.start_task(
        "members",
        "shows the nodes of the cluster",
        async move { nodes.keep_members().await },
    );
    runtime.start_task("manifests", "makes the objects of a bootstrap", async move {
        manifests.keep_manifests(download).await
    });
    runtime.start_task("etcd-snapshots", "takes snapshots of etcd", async move {
        snapshots.keep_snapshots(upload).await
    });
    // It is joined once, where the node is made.
    drop(node.kubernetes.set(made));
    runtime.start_task(
        "shared-address",
        "holds the addresses that nodes share",
        shared_address::run(node.clone()),
    );
    runtime.start_task(
        "kube-prism",
        "passes connections on to the API servers",
        kube_prism::run(node.clone()),
    );
}

/// Where a pull fails, the service that needs the image says so, and how the next attempts go.
fn fetch(node: Weak<Node>) -> Fetch {
    let failed: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    Arc::new(move |client, name| {
        let (node, failed) = (node.clone(), failed.clone());
        Box::pin(async move {
            let failed = || failed.lock().unwrap_or_else(PoisonError::into_inner);
            let node = node.upgrade().ok_or("machined ends")?;
            let admitted = upgrade::admit(&node, &name).await.map_err(|error| error.to_string())?;
            let registry = upgrade::registry_of(&node, &admitted).map_err(|error| error.to_string())?;
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
            let settings = upgrade::download_settings(&node)?;
            oci::download(settings, &request.url, &request.headers, request.max_bytes).await
        })
    })
}

fn upload(node: Weak<Node>) -> Upload {
    Arc::new(move |put: Put| {
        let node = node.clone();
        Box::pin(async move {
            let node = node.upgrade().ok_or("machined ends")?;
            let settings = upgrade::download_settings(&node)?;
            let content = match put.what {
                What::File(file, length) => oci::Content::File(tokio::fs::File::from_std(file), length),
                What::Bytes(bytes) => oci::Content::Bytes(bytes),
            };
            oci::upload(settings, put.address.expose_secret(), &put.headers, content).await
        })
    })
}
