//! What rendering needs of the machine, from its resources.
//!
//! Owns: which addresses are the node's own, among those of pods and services.

use std::net::IpAddr;
use std::path::Path;

use config::own::Vrrp;
use kubernetes::{Cluster, Node};
use runtime::Runtime;
use runtime::store::{Addressing, HOSTNAME_STATUS, NODE_ADDRESS, OPERATOR_SPEC, Spec};

use crate::Error;

/// A machine without this file has control groups of version 1.
const CGROUP2: &str = "/sys/fs/cgroup/cgroup.controllers";
/// Resolvers for pods that use the node's: what is behind its own resolver, or that one's address for pods.
pub const RESOLV_CONF: &str = "/system/resolved/resolv.conf";
/// What the kubelet sees of it: a directory shows a file that is replaced, too.
pub const RESOLV_DIRECTORY: &str = "/system/resolved";

/// The machine as it is now.
///
/// # Errors
/// [`Error::NoName`], [`Error::NoAddress`]; [`Error::AddressOfServices`] if the node has no other address.
pub fn node(runtime: &Runtime, cluster: &Cluster<'_>, is_container: bool) -> Result<Node, Error> {
    let (host_name, domain) = names(runtime).ok_or(Error::NoName)?;
    let shared = shared(runtime);
    let mut all = addresses(runtime);
    all.retain(|address| !shared.contains(address));
    Ok(Node {
        host_name,
        domain,
        addresses: own(&all, cluster)?,
        shared,
        is_container,
        has_cgroup_v1: !Path::new(CGROUP2).exists(),
        resolv_conf: RESOLV_CONF.to_owned(),
    })
}

pub(crate) fn names(runtime: &Runtime) -> Option<(String, String)> {
    match &runtime.store.get(&HOSTNAME_STATUS, "hostname")?.spec {
        Spec::HostnameStatus(name) => Some((name.hostname.clone(), name.domainname.clone())),
        _ => None,
    }
}

fn addresses(runtime: &Runtime) -> Vec<IpAddr> {
    let resource = runtime.store.get(&NODE_ADDRESS, "current");
    let Some(Spec::Addressing(Addressing::Addresses(all))) = resource.as_ref().map(|resource| &resource.spec)
    else {
        return Vec::new();
    };
    all.addresses.iter().filter_map(|text| text.split('/').next()?.parse().ok()).collect()
}

/// Those that nodes share.
fn shared(runtime: &Runtime) -> Vec<IpAddr> {
    let operators = runtime.store.list(&OPERATOR_SPEC);
    let elected = operators.iter().filter_map(|resource| Some(resource.spec.shared_address()?.1));
    let document = runtime.document();
    let documents = document.as_ref().map(|document| document.documents.as_slice()).unwrap_or_default();
    let routed = Vrrp::of(documents).into_iter().map(|router| router.address);
    elected.chain(routed).collect()
}

/// Those that belong to the machine: what pods and services have on it (bridges, tunnels) does not.
fn own(all: &[IpAddr], cluster: &Cluster<'_>) -> Result<Vec<IpAddr>, Error> {
    let inside = |networks: &[kubernetes::cluster::Network], address: IpAddr| {
        networks.iter().find(|network| network.contains(address)).map(|network| network.text().to_owned())
    };
    let is_own = |address: &IpAddr| {
        inside(cluster.pod_networks(), *address).is_none()
            && inside(cluster.service_networks(), *address).is_none()
    };
    let own: Vec<IpAddr> = all.iter().copied().filter(is_own).collect();
    if !own.is_empty() {
        return Ok(own);
    }
    let of_services =
        all.iter().find_map(|address| Some((*address, inside(cluster.service_networks(), *address)?)));
    match of_services {
        Some((address, network)) => Err(Error::AddressOfServices { address, network }),
        None => Err(Error::NoAddress),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_pods_and_services_are_not_the_node_s() {
        let config = config::parse(
            "version: v1alpha1\nmachine: {type: worker, token: a.b}\ncluster:\n  controlPlane: {endpoint: https://10.0.0.1:6443}\n",
        )
        .unwrap();
        let cluster = Cluster::new(&config).unwrap();
        let of = |texts: &[&str]| {
            let all: Vec<IpAddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
            own(&all, &cluster).map(|own| own.iter().map(IpAddr::to_string).collect::<Vec<_>>())
        };
        assert_eq!(of(&["10.244.0.1", "10.0.0.5", "10.96.0.1", "fd00::5"]).unwrap(), ["10.0.0.5", "fd00::5"]);
        assert!(matches!(of(&["10.244.0.1"]), Err(Error::NoAddress)));
        let error = of(&["10.96.3.4"]).unwrap_err().to_string();
        assert!(
            error.starts_with("the node's address 10.96.3.4 lies in the Service network 10.96.0.0/12"),
            "{error}"
        );
    }
}
