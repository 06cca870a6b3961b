//! Rules on what all documents of a configuration say together.
//!
//! Source: the second generation's refusals, worded as there.

use super::{Problems, static_pods, text};
use crate::{
    Mode,
    documents::{Document, ResolverProtocol, SECTION_NETWORKS},
    v1alpha1::{Config, HostDns},
};

/// `config` is the v1alpha1 document with what `documents` put into it.
pub(super) fn check(config: &Config, documents: &[Document], mode: Mode, problems: &mut Problems) {
    host_resolver(config, documents, mode, problems);
    mesh(config, documents, problems);
    addresses_of_services(config, problems);
    for id in static_pods::doubles(&config.machine.pods) {
        let message = format!("the node has a static pod {id} already; write another name or namespace");
        problems.add("machine.pods", message);
    }
}

/// The resolver's settings, from whichever form has them.
fn host_dns<'a>(config: &'a Config, documents: &'a [Document]) -> Option<&'a HostDns> {
    let of_document = documents.iter().find_map(|document| match document {
        Document::ResolverConfig(d) => d.host_dns.as_ref(),
        _ => None,
    });
    of_document.or_else(|| config.machine.features.as_ref()?.host_dns.as_ref())
}

fn host_resolver(config: &Config, documents: &[Document], mode: Mode, problems: &mut Problems) {
    const FIELD: &str = "machine.features.hostDNS";
    let settings = host_dns(config, documents);
    let enabled = settings.is_some_and(HostDns::runs);
    if mode == Mode::Container {
        // The container's own resolver cannot be reached from pods. Configs of the first generation have no `features`.
        match settings {
            None if config.machine.features.is_some() => {
                problems.add(FIELD, "hostDNS config is required in container mode");
            }
            None => {}
            Some(_) if !enabled => problems.add(FIELD, "hostDNS must be enabled in container mode"),
            Some(settings) if settings.forward_kube_dns_to_host != Some(true) => {
                problems.add(FIELD, "forwardKubeDNSToHost must be enabled in container mode");
            }
            Some(_) => {}
        }
    }
    let encrypted = documents.iter().any(|document| match document {
        Document::ResolverConfig(d) => {
            d.nameservers.iter().any(|n| n.protocol.is_some_and(|p| p != ResolverProtocol::Plain))
        }
        _ => false,
    });
    if encrypted && !enabled {
        problems.add(FIELD, "hostDNS must be enabled when using non-default DNS protocols");
    }
}

/// What is sent to an address of services never leaves the node: with one as its own it would be cut off once kube-proxy runs.
fn addresses_of_services(config: &Config, problems: &mut Problems) {
    let named = config.cluster.network.as_ref().map(|network| network.service_subnets.as_slice());
    let usual = [SECTION_NETWORKS.2.to_owned()];
    let services = named.filter(|subnets| !subnets.is_empty()).unwrap_or(&usual);
    let mut check = |field: String, address: &str| {
        if let Some(network) = services.iter().find(|network| text::is_inside(address, network)) {
            let message = format!(
                "`{address}` lies in the Service network {network}; write an address outside of it, or another network in \
                 cluster.network.serviceSubnets"
            );
            problems.add(field, message);
        }
    };
    for (index, interface) in config.machine.network.interfaces.iter().enumerate() {
        let field = format!("machine.network.interfaces[{index}]");
        let mut all = |field: &str, cidr: &str, addresses: &[String]| {
            check(format!("{field}.cidr"), cidr);
            for (index, address) in addresses.iter().enumerate() {
                check(format!("{field}.addresses[{index}]"), address);
            }
        };
        all(&field, &interface.cidr, &interface.addresses);
        for (index, vlan) in interface.vlans.iter().enumerate() {
            all(&format!("{field}.vlans[{index}]"), &vlan.cidr, &vlan.addresses);
        }
    }
}

/// Nodes of a mesh find each other by the cluster's identity.
fn mesh(config: &Config, documents: &[Document], problems: &mut Problems) {
    let legacy = config.machine.network.kubespan.as_ref().is_some_and(|mesh| mesh.enabled == Some(true));
    let document = documents.iter().any(|document| match document {
        Document::KubeSpanConfig(d) => d.enabled == Some(true),
        _ => false,
    });
    if !legacy && !document {
        return;
    }
    if config.cluster.id.is_empty() {
        let message = "cluster ID (.cluster.id or DiscoveryIdentityConfig) should be set when \
                       .machine.network.kubespan is enabled";
        problems.add("cluster.id", message);
    }
    if config.cluster.secret.is_none() {
        let message = "cluster secret (.cluster.secret or DiscoveryIdentityConfig) should be set when \
                       .machine.network.kubespan is enabled";
        problems.add("cluster.secret", message);
    }
}
