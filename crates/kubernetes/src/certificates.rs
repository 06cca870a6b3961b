//! Each certificate of a control plane node: who signs it, for whom, for how long, into which file.
//!
//! Does not: make keys or certificates; that is `api::pki`.
//! Source: docs/users/pki.md; RFC 5280; the names by which Kubernetes authorises its own parts.

use std::net::IpAddr;
use std::time::Duration;

use crate::file::Owner;
use crate::{Cluster, Error, Node, paths};

/// A year: Kubernetes' own certificates.
const YEAR: Duration = Duration::from_secs(8760 * 3600);

/// Which authority signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issuer {
    /// `cluster.ca`.
    Kubernetes,
    /// `cluster.aggregatorCA`.
    Aggregator,
    /// `cluster.etcd.ca`.
    Etcd,
}

/// On which end of a connection a certificate is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// By a server.
    Server,
    /// By a client.
    Client,
    /// By both.
    Both,
}

/// Where a certificate goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Files `<name>.crt` and `<name>.key` in a directory.
    Files {
        /// The directory.
        directory: &'static str,
        /// Its name there.
        name: &'static str,
        /// Who reads them.
        owner: Owner,
    },
    /// A kubeconfig of this name in a directory.
    Kubeconfig {
        /// The directory.
        directory: &'static str,
        /// Who reads it.
        owner: Owner,
    },
    /// machined's memory.
    Memory,
}

/// A certificate to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name in lists.
    pub id: &'static str,
    /// Who signs it.
    pub issuer: Issuer,
    /// Subject CN.
    pub common_name: String,
    /// Subject O: groups of Kubernetes.
    pub organizations: Vec<String>,
    /// Names and addresses of a server.
    pub names: Vec<String>,
    /// Ends of a connection.
    pub usage: Usage,
    /// How long it is valid.
    pub lifetime: Duration,
    /// Where it goes.
    pub place: Place,
}

/// All certificates of this node; none on a worker, whose kubelet asks for its own.
///
/// # Errors
/// [`Error::NetworkTooSmall`].
pub fn all(cluster: &Cluster<'_>, node: &Node) -> Result<Vec<Profile>, Error> {
    if !cluster.is_control_plane() {
        return Ok(Vec::new());
    }
    let api_server =
        |name| Place::Files { directory: paths::API_SERVER_SECRETS, name, owner: Owner::ApiServer };
    let etcd = |name| Place::Files { directory: paths::ETCD_SECRETS, name, owner: Owner::Etcd };
    let masters = ["system:masters"];
    Ok(vec![
        server("apiserver", "kube-apiserver", api_server_names(cluster, node)?, api_server("apiserver")),
        client(
            "apiserver-kubelet-client",
            "apiserver-kubelet-client",
            &masters,
            api_server("apiserver-kubelet-client"),
        ),
        Profile {
            issuer: Issuer::Aggregator,
            ..client("front-proxy-client", "front-proxy-client", &[], api_server("front-proxy-client"))
        },
        client(
            "controller-manager",
            "system:kube-controller-manager",
            &[],
            Place::Kubeconfig {
                directory: paths::CONTROLLER_MANAGER_SECRETS,
                owner: Owner::ControllerManager,
            },
        ),
        client(
            "scheduler",
            "system:kube-scheduler",
            &[],
            Place::Kubeconfig { directory: paths::SCHEDULER_SECRETS, owner: Owner::Scheduler },
        ),
        Profile { lifetime: admin_lifetime(cluster), ..client("admin", "admin", &masters, Place::Memory) },
        // etcd dials its own listener with the certificate of the server.
        of_etcd("etcd-server", &node.host_name, etcd_names(node), Usage::Both, etcd("server")),
        of_etcd("etcd-peer", &node.host_name, etcd_names(node), Usage::Both, etcd("peer")),
        of_etcd(
            "etcd-apiserver-client",
            "kube-apiserver",
            Vec::new(),
            Usage::Client,
            api_server("etcd-client"),
        ),
        of_etcd("etcd-admin", "etcd-admin", Vec::new(), Usage::Client, etcd("admin")),
    ])
}

/// That of the kubelet of a control plane node as a client. It is none of [`all`]: the kubelet renews it by itself.
#[must_use]
pub fn kubelet(cluster: &Cluster<'_>, node: &Node) -> Profile {
    let name = format!("system:node:{}", cluster.node_name(node));
    client("kubelet-client", &name, &["system:nodes"], Place::Memory)
}

fn client(id: &'static str, common_name: &str, organizations: &[&str], place: Place) -> Profile {
    Profile {
        id,
        issuer: Issuer::Kubernetes,
        common_name: common_name.to_owned(),
        organizations: organizations.iter().map(|text| (*text).to_owned()).collect(),
        names: Vec::new(),
        usage: Usage::Client,
        lifetime: YEAR,
        place,
    }
}

fn server(id: &'static str, common_name: &str, names: Vec<String>, place: Place) -> Profile {
    Profile { names, usage: Usage::Server, ..client(id, common_name, &["kube-master"], place) }
}

fn of_etcd(id: &'static str, common_name: &str, names: Vec<String>, usage: Usage, place: Place) -> Profile {
    Profile { issuer: Issuer::Etcd, names, usage, ..client(id, common_name, &[], place) }
}

/// How long the administrator's certificate is valid.
fn admin_lifetime(cluster: &Cluster<'_>) -> Duration {
    let given = cluster.config().cluster.admin_kubeconfig.as_ref();
    given.and_then(|admin| admin.cert_lifetime.as_ref()).map_or(YEAR, |lifetime| lifetime.0)
}

/// Names and addresses by which clients reach the API server.
fn api_server_names(cluster: &Cluster<'_>, node: &Node) -> Result<Vec<String>, Error> {
    let domain = cluster.dns_domain();
    let inside = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"];
    let addresses = node.addresses.iter().chain(&node.shared).copied();
    let addresses = cluster.api_addresses()?.into_iter().chain(addresses);
    let names = inside
        .into_iter()
        .map(str::to_owned)
        .chain([format!("kubernetes.default.svc.{domain}"), "127.0.0.1".to_owned()])
        .chain(cluster.endpoint_host().map(|host| host.trim_matches(['[', ']']).to_owned()))
        .chain([node.host_name.clone(), node.full_name()])
        .chain(cluster.api_server().cert_sans)
        .chain(addresses.map(|address| address.to_string()));
    Ok(once_each(names))
}

/// Names and addresses by which members reach each other.
fn etcd_names(node: &Node) -> Vec<String> {
    let loopback = node.addresses.iter().any(IpAddr::is_ipv6).then(|| "::1".to_owned());
    let names = [node.host_name.clone(), node.full_name(), "localhost".to_owned(), "127.0.0.1".to_owned()];
    let addresses = node.addresses.iter().map(IpAddr::to_string);
    once_each(names.into_iter().chain(loopback).chain(addresses))
}

fn once_each(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}
