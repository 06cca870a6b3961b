//! The image of each program with its version, and the list of all that a node pulls.
//!
//! Owns: images where a configuration has none. They are those of the first generation, whose configurations may leave them
//! out; current ones name every image.
//! Source: docs/users/configuration.md (defaults).

use std::collections::BTreeSet;

use crate::{Cluster, Error, Version};

/// Registry of Kubernetes' own images.
const KUBERNETES: &str = "registry.k8s.io";
/// Version of Kubernetes where a configuration names none.
const KUBERNETES_VERSION: &str = "v1.20.6";
/// Image of the kubelet where a configuration has none.
const KUBELET: &str = "ghcr.io/siderolabs/kubelet:v1.20.6";
/// Image of etcd where a configuration has none, by the first minor version of Kubernetes that it belongs to: kubeadm's.
/// From one to the next is one minor version of etcd, which is what etcd itself can upgrade.
const ETCD: [(u32, &str); 4] = [(37, "3.7.0-0"), (34, "3.6.4-0"), (22, "3.5.21-0"), (0, "3.4.13-0")];
/// Image of the cluster DNS where a configuration has none, by the first minor version of Kubernetes that has what it asks
/// for: the second one knows slices of endpoints by their final name alone.
const CORE_DNS: [(u32, &str); 2] = [(21, "1.12.4"), (0, "1.8.0")];
/// Flannel, which no configuration names.
const FLANNEL: &str = "ghcr.io/siderolabs/flannel:v0.26.7";
/// What every pod's sandbox runs.
const PAUSE: &str = "registry.k8s.io/pause:3.10";

fn given(image: &str) -> Option<String> {
    (!image.is_empty()).then(|| image.to_owned())
}

fn of_kubernetes(program: &str) -> String {
    format!("{KUBERNETES}/{program}:{KUBERNETES_VERSION}")
}

/// Image of the kubelet.
#[must_use]
pub fn kubelet(cluster: &Cluster<'_>) -> String {
    given(&cluster.kubelet().image).unwrap_or_else(|| KUBELET.to_owned())
}

/// Image of the API server.
#[must_use]
pub fn api_server(cluster: &Cluster<'_>) -> String {
    given(&cluster.api_server().image).unwrap_or_else(|| of_kubernetes("kube-apiserver"))
}

/// Image of the controller manager.
#[must_use]
pub fn controller_manager(cluster: &Cluster<'_>) -> String {
    given(&cluster.controller_manager().image).unwrap_or_else(|| of_kubernetes("kube-controller-manager"))
}

/// Image of the scheduler.
#[must_use]
pub fn scheduler(cluster: &Cluster<'_>) -> String {
    given(&cluster.scheduler().image).unwrap_or_else(|| of_kubernetes("kube-scheduler"))
}

/// Image of kube-proxy.
#[must_use]
pub fn proxy(cluster: &Cluster<'_>) -> String {
    given(&cluster.proxy().image).unwrap_or_else(|| of_kubernetes("kube-proxy"))
}

/// Image of etcd: without one in the configuration the one that belongs to the version of the API server. Where that has
/// no version, which [`api_server_version`] refuses, it is the newest.
#[must_use]
pub fn etcd(cluster: &Cluster<'_>) -> String {
    let by_default = || format!("{KUBERNETES}/etcd:{}", by_minor(cluster, &ETCD));
    given(&cluster.config().cluster.etcd.image).unwrap_or_else(by_default)
}

/// The row of a table that belongs to the version of the API server. Without one, it is the newest.
fn by_minor<'t>(cluster: &Cluster<'_>, table: &[(u32, &'t str)]) -> &'t str {
    let minor = api_server_version(cluster).map_or(u32::MAX, |version| version.minor);
    table.iter().find(|(first, _)| *first <= minor).map_or("", |(_, tag)| tag)
}

/// Image of the cluster DNS.
#[must_use]
pub fn core_dns(cluster: &Cluster<'_>) -> String {
    let dns = cluster.config().cluster.core_dns.as_ref();
    let by_default = || format!("docker.io/coredns/coredns:{}", by_minor(cluster, &CORE_DNS));
    dns.and_then(|dns| given(&dns.image)).unwrap_or_else(by_default)
}

/// Image of flannel.
#[must_use]
pub fn flannel() -> String {
    FLANNEL.to_owned()
}

/// Image of the sandbox of pods.
#[must_use]
pub fn pause() -> String {
    PAUSE.to_owned()
}

/// Every image that a cluster of this configuration pulls, each once, in order of their names.
#[must_use]
pub fn all(cluster: &Cluster<'_>) -> Vec<String> {
    let mut images = BTreeSet::from([kubelet(cluster), pause()]);
    images.extend([api_server(cluster), controller_manager(cluster), scheduler(cluster), etcd(cluster)]);
    if !cluster.proxy().disabled {
        images.insert(proxy(cluster));
    }
    let dns = cluster.config().cluster.core_dns.as_ref();
    if dns.is_none_or(|dns| dns.disabled != Some(true)) {
        images.insert(core_dns(cluster));
    }
    if cluster.cni() == "flannel" {
        images.insert(flannel());
    }
    images.into_iter().collect()
}

/// Version of the kubelet.
///
/// # Errors
/// [`Error::Version`].
pub fn kubelet_version(cluster: &Cluster<'_>) -> Result<Version, Error> {
    version("machine.kubelet.image", &kubelet(cluster))
}

/// Version of the API server.
///
/// # Errors
/// [`Error::Version`].
pub fn api_server_version(cluster: &Cluster<'_>) -> Result<Version, Error> {
    version("cluster.apiServer.image", &api_server(cluster))
}

/// Version of the controller manager.
///
/// # Errors
/// [`Error::Version`].
pub fn controller_manager_version(cluster: &Cluster<'_>) -> Result<Version, Error> {
    version("cluster.controllerManager.image", &controller_manager(cluster))
}

/// Version of the scheduler.
///
/// # Errors
/// [`Error::Version`].
pub fn scheduler_version(cluster: &Cluster<'_>) -> Result<Version, Error> {
    version("cluster.scheduler.image", &scheduler(cluster))
}

/// Version of kube-proxy.
///
/// # Errors
/// [`Error::Version`].
pub fn proxy_version(cluster: &Cluster<'_>) -> Result<Version, Error> {
    version("cluster.proxy.image", &proxy(cluster))
}

/// Version of etcd.
///
/// # Errors
/// [`Error::Version`].
pub fn etcd_version(cluster: &Cluster<'_>) -> Result<Version, Error> {
    let field = "cluster.etcd.image";
    Version::of_etcd(&etcd(cluster)).map_err(|source| Error::Version { field, source })
}

fn version(field: &'static str, image: &str) -> Result<Version, Error> {
    Version::of_kubernetes(image).map_err(|source| Error::Version { field, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etcd_of(api_server: &str, image: &str) -> String {
        let text =
            include_str!("../testdata/current.yaml").replace("VERSION", "v1.34.10").replace("ETCD", "v3.6.4");
        let mut config = config::load(text.as_bytes()).unwrap().config;
        config.cluster.api_server.get_or_insert_default().image = api_server.to_owned();
        config.cluster.etcd.image = image.to_owned();
        etcd(&Cluster::new(&config).unwrap())
    }

    #[test]
    fn etcd_belongs_to_the_version_of_the_api_server() {
        for (version, tag) in [
            ("v1.19.0", "3.4.13-0"),
            ("v1.21.14", "3.4.13-0"),
            ("v1.22.0", "3.5.21-0"),
            ("v1.33.4", "3.5.21-0"),
            ("v1.34.10", "3.6.4-0"),
            ("v1.36.1", "3.6.4-0"),
            ("v1.37.2", "3.7.0-0"),
        ] {
            let found = etcd_of(&format!("registry.example.org/kube-apiserver:{version}"), "");
            assert_eq!(found, format!("{KUBERNETES}/etcd:{tag}"), "{version}");
        }
        let named = "registry.example.org/etcd:v3.5.1";
        assert_eq!(etcd_of("registry.example.org/kube-apiserver:v1.34.10", named), named);
    }
}
