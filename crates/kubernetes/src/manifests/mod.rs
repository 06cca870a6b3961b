//! Objects that a bootstrap creates, each manifest under the id by which clients know it.
//!
//! Owns: which manifests a configuration asks for, what their text says, and their order, which is that of their ids.
//! Does not: apply or download them (kubernetes-node does).
//! Source: docs/users/kubernetes.md (ids); the objects that Kubernetes needs to take nodes in.

mod core_dns;
mod documents;
mod flannel;
mod node_access;
mod objects;
mod order;
mod proxy;
mod roles;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::{Cluster, Error};

pub use documents::{MAX_TEXT_BYTES, TextError, objects};
pub use node_access::{API_SERVERS_PATH, MACHINE_CA_KEY, MACHINE_CA_PATH};
pub use order::{Manifest, defined, ordered};

/// A manifest that is downloaded.
#[derive(Clone, PartialEq, Eq)]
pub struct Download {
    /// `99-https://example.org/extra.yaml`; of two addresses that differ in their query alone it is the same.
    pub id: String,
    /// Where it lies.
    pub url: String,
    /// HTTP headers of the request; they may hold secrets.
    pub headers: BTreeMap<String, String>,
}

/// A manifest that the configuration holds as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Inline {
    /// `99-namespace-ci`.
    pub id: String,
    /// Its text: one object or several.
    pub text: String,
}

/// The manifests that are rendered.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`], [`Error::Missing`] without a token.
pub fn rendered(cluster: &Cluster<'_>) -> Result<Vec<Manifest>, Error> {
    let mut manifests: Vec<_> =
        roles::all(cluster)?.into_iter().map(|(id, objects)| of(id, objects)).collect();
    if cluster.cni() == "flannel" {
        manifests.push(of("05-flannel", flannel::objects(cluster)?));
    }
    if !cluster.proxy().disabled {
        manifests.push(of("10-kube-proxy", proxy::objects(cluster)?));
    }
    let dns = cluster.config().cluster.core_dns.as_ref();
    if dns.is_none_or(|dns| dns.disabled != Some(true)) {
        manifests.push(of("11-core-dns", core_dns::objects(cluster)));
        manifests.push(of("11-core-dns-svc", vec![core_dns::service(cluster)?]));
    }
    manifests.push(of("11-kube-config-in-cluster", vec![kubeconfig_in_cluster(cluster)?]));
    manifests.push(of("11-talos-node-rbac-template", node_access::objects(cluster)));
    Ok(manifests)
}

/// The manifests that are downloaded: those of the network before the others.
#[must_use]
pub fn downloads(cluster: &Cluster<'_>) -> Vec<Download> {
    let config = &cluster.config().cluster;
    let network = config.network.as_ref().and_then(|network| network.cni.as_ref());
    let cni = network.filter(|cni| cni.name == "custom").map(|cni| cni.urls.as_slice()).unwrap_or_default();
    let cloud = config.external_cloud_provider.as_ref().filter(|provider| provider.enabled == Some(true));
    let cloud = cloud.map(|provider| provider.manifests.as_slice()).unwrap_or_default();
    let of = |priority: &str, url: &String, headers: BTreeMap<String, String>| Download {
        id: format!("{priority}-{}", public(url)),
        url: url.clone(),
        headers,
    };
    let cni = cni.iter().map(|url| of("05", url, BTreeMap::new()));
    let cloud = cloud.iter().map(|url| of("30", url, BTreeMap::new()));
    // The headers are meant for these alone: others may lie on another server.
    let extra = config.extra_manifests.iter().map(|url| of("99", url, config.extra_manifest_headers.clone()));
    cni.chain(cloud).chain(extra).collect()
}

/// An address without user, password, query and fragment: ids are seen by everybody.
fn public(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// The manifests that the configuration holds.
#[must_use]
pub fn inline(cluster: &Cluster<'_>) -> Vec<Inline> {
    let manifests = &cluster.config().cluster.inline_manifests;
    manifests.iter().map(|m| Inline { id: format!("99-{}", m.name), text: m.contents.clone() }).collect()
}

/// Arguments of kube-proxy.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`].
pub fn proxy_arguments(cluster: &Cluster<'_>) -> Result<Arguments, Error> {
    proxy::arguments(cluster)
}

fn of(id: &str, objects: Vec<Value>) -> Manifest {
    Manifest { id: id.to_owned(), objects }
}

/// How programs in pods that use the host's network find the API server.
fn kubeconfig_in_cluster(cluster: &Cluster<'_>) -> Result<Value, Error> {
    const TOKENS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "local",
            "cluster": { "server": cluster.endpoint(), "certificate-authority": format!("{TOKENS}/ca.crt") },
        }],
        "users": [{ "name": "service-account", "user": { "tokenFile": format!("{TOKENS}/token") } }],
        "contexts": [{ "name": "local", "context": { "cluster": "local", "user": "service-account" } }],
        "current-context": "local",
    });
    let text = crate::yaml("kubeconfig-in-cluster", &kubeconfig)?;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "kubeconfig-in-cluster", "namespace": "kube-system" },
        "data": { "kubeconfig": text },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_holds_no_password() {
        let of = [
            (
                "https://me:secret@example.org:8443/a/b.yaml?token=secret#x",
                "https://example.org:8443/a/b.yaml",
            ),
            ("https://example.org", "https://example.org"),
            ("https://example.org/a@b", "https://example.org/a@b"),
            ("example.org/a?b", "example.org/a"),
        ];
        for (url, id) in of {
            assert_eq!(public(url), id);
        }
    }
}
