//! The `machine.network` section.

use super::Interface;
use crate::schema::section;
use std::net::IpAddr;

section! {
    /// Host name, resolvers, interfaces.
    Network {
        /// Overrides every other source of a host name.
        hostname "hostname": String { example "node-1" };
        /// Per-interface settings; an interface without an entry uses DHCP.
        interfaces "interfaces": Vec<Interface> {};
        /// Replaces the resolvers that DHCP gave.
        nameservers "nameservers": Vec<IpAddr> { default "those of DHCP, else 1.1.1.1 and 8.8.8.8", example "[10.0.0.1]" };
        /// Domains that are tried behind short names.
        search_domains "searchDomains": Vec<String> { newer true, example "[example.org]" };
        /// Lines of /etc/hosts.
        extra_host_entries "extraHostEntries": Vec<HostEntry> {};
        /// The mesh between nodes.
        kubespan "kubespan": Option<KubeSpan> { newer true, later "KubeSpan" };
        /// Do not derive a search domain from the host's name.
        disable_search_domain "disableSearchDomain": Option<bool> { newer true };
    }
}

section! {
    /// A line of /etc/hosts.
    HostEntry {
        /// The address.
        ip "ip": Option<IpAddr> {};
        /// Its names.
        aliases "aliases": Vec<String> { example "[example.org, www.example.org]" };
    }
}

section! {
    /// The mesh between nodes.
    KubeSpan {
        /// Whether it is used.
        enabled "enabled": Option<bool> { newer true, default "false" };
        /// Route pods and services through it.
        advertise_kubernetes_networks "advertiseKubernetesNetworks": Option<bool> { newer true };
        /// Send in the clear to a peer that is down.
        allow_down_peer_bypass "allowDownPeerBypass": Option<bool> { newer true };
        /// Learn further endpoints from peers.
        harvest_extra_endpoints "harvestExtraEndpoints": Option<bool> { newer true };
        /// Largest packet.
        mtu "mtu": Option<u32> { newer true, default "1420", example "1420" };
        /// What is announced.
        filters "filters": Option<KubeSpanFilters> { newer true };
    }
}

section! {
    /// What is announced to the mesh.
    KubeSpanFilters {
        /// Networks of endpoints that are used.
        endpoints "endpoints": Vec<String> { newer true, example "[0.0.0.0/0, \"!192.168.0.0/16\"]" };
        /// Networks that are not announced.
        exclude_advertised_networks "excludeAdvertisedNetworks": Vec<String> { newer true, example "[192.168.1.0/24]" };
    }
}
