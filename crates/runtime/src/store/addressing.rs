//! Resource types that sum the network up: addresses, resolvers, what the network is good for.
//!
//! Source: the columns are those of the public reference of v1.13; crates/api/tests/data/resources.tsv for their form.

use serde::Serialize;

use super::Definition;
use super::definition::{PLAIN, column};

const NETWORK: Definition = Definition { namespace: "network", ..PLAIN };

/// Sets of the node's addresses.
pub static NODE_ADDRESS: Definition = Definition {
    kind: "NodeAddresses.net.talos.dev",
    display: "NodeAddress",
    columns: &[column("Addresses", "{.addresses}")],
    writer: "network.NodeAddressController",
    ..NETWORK
};

/// The hardware address that stands for the node.
pub static HARDWARE_ADDRESS: Definition = Definition {
    kind: "HardwareAddresses.net.talos.dev",
    display: "HardwareAddress",
    writer: "network.HardwareAddressController",
    ..NETWORK
};

/// Who resolves names.
pub static RESOLVER_STATUS: Definition = Definition {
    kind: "ResolverStatuses.net.talos.dev",
    display: "ResolverStatus",
    aliases: &["resolvers", "resolver"],
    columns: &[column("Resolvers", "{.dnsServers}"), column("Search Domains", "{.searchDomains}")],
    abbreviated: false,
    writer: "network.ResolverController",
    ..NETWORK
};

/// How far the network is.
pub static NETWORK_STATUS: Definition = Definition {
    kind: "NetworkStatuses.net.talos.dev",
    display: "NetworkStatus",
    aliases: &["netstatus", "netstatuses"],
    columns: &[
        column("Address", "{.addressReady}"),
        column("Connectivity", "{.connectivityReady}"),
        column("Hostname", "{.hostnameReady}"),
        column("Etc", "{.etcFilesReady}"),
    ],
    abbreviated: false,
    writer: "network.NetworkStatusController",
    ..NETWORK
};

/// What servers of DHCP answered to a link's client.
pub static DHCP_STATUS: Definition = Definition {
    kind: "DhcpStatuses.net.billet.dev",
    display: "DhcpStatus",
    columns: &[
        column("State", "{.state}"),
        column("Since", "{.since}"),
        column("Requests", "{.requests}"),
        column("Message", "{.message}"),
    ],
    writer: "networkd",
    ..NETWORK
};

/// Whether the gateway of a default route answers on its link.
pub static GATEWAY_STATUS: Definition = Definition {
    kind: "GatewayStatuses.net.billet.dev",
    display: "GatewayStatus",
    columns: &[
        column("Link", "{.link}"),
        column("Gateway", "{.gateway}"),
        column("State", "{.state}"),
        column("Since", "{.since}"),
    ],
    writer: "networkd",
    ..NETWORK
};

/// A rule that chooses the table of routes for a packet, as the kernel has it.
pub static ROUTING_RULE_STATUS: Definition =
    Definition::published("RoutingRuleStatuses.net.talos.dev", "network.RoutingRuleStatusController");

/// The node's own resolver.
pub static HOST_DNS_CONFIG: Definition =
    Definition::published("HostDNSConfigs.net.talos.dev", "network.HostDNSController");

/// A server that the node's own resolver asks.
pub static DNS_UPSTREAM: Definition =
    Definition::published("DNSUpstreams.net.talos.dev", "network.HostDNSController");

/// A listener of the node's own resolver.
pub static DNS_RESOLVE_CACHE: Definition =
    Definition::published("DNSResolveCaches.net.talos.dev", "network.HostDNSController");

/// The chain of the firewall.
pub static NF_TABLES_CHAIN: Definition =
    Definition::published("NfTablesChains.net.talos.dev", "network.NfTablesChainController");

/// A rule that the config wants.
pub static ROUTING_RULE_SPEC: Definition =
    Definition::published("RoutingRuleSpecs.net.talos.dev", "network.RoutingRuleSpecController");

/// What a resource of these types says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Addressing {
    /// `NodeAddresses`.
    Addresses(NodeAddresses),
    /// `HardwareAddresses`.
    Hardware(HardwareAddress),
    /// `ResolverStatuses`.
    Resolvers(Resolvers),
    /// `NetworkStatuses`.
    Status(NetworkStatus),
    /// `RoutingRuleStatuses`.
    Rule(RoutingRule),
    /// `HostDNSConfigs`.
    HostDns(HostDnsConfig),
    /// `DNSUpstreams`.
    Upstream(DnsUpstream),
    /// `DNSResolveCaches`.
    ResolveCache {
        /// `running`.
        status: &'static str,
    },
    /// `RoutingRuleSpecs`.
    RuleSpec {
        /// As the kernel is to have it.
        #[serde(flatten)]
        rule: RoutingRule,
        /// `configuration`.
        layer: &'static str,
    },
}

/// The node's own resolver, as it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostDnsConfig {
    /// It listens.
    pub enabled: bool,
    /// With their ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen_addresses: Vec<String>,
    /// Where pods ask.
    #[serde(rename = "serviceHostDNSAddress", skip_serializing_if = "Option::is_none")]
    pub service_host_dns_address: Option<String>,
    /// It answers for the names of the cluster's machines.
    pub resolve_member_names: bool,
}

/// A server that the node's own resolver asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DnsUpstream {
    /// It answers, or was not asked yet.
    pub healthy: bool,
    /// With its port.
    pub addr: String,
}

/// A rule that chooses the table of routes for a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutingRule {
    /// `inet4` or `inet6`.
    pub family: &'static str,
    /// CIDR text of the senders, empty for all.
    pub src: String,
    /// CIDR text of the receivers, empty for all.
    pub dst: String,
    /// `main`, `local`, `default`, or a number.
    pub table: Box<str>,
    /// The lowest number is asked first.
    pub priority: u32,
    /// `unicast`, `blackhole`, `unreachable`, `prohibit`, or the kernel's number.
    pub action: Box<str>,
    /// Link that the packet came by; empty: any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub iif_name: String,
    /// Link that the sender is bound to; empty: any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub oif_name: String,
    /// Mark of the firewall.
    #[serde(skip_serializing_if = "is_zero")]
    pub fw_mark: u32,
    /// Bits of the mark that count.
    #[serde(skip_serializing_if = "is_zero")]
    pub fw_mask: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A set of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeAddresses {
    /// With their prefix lengths.
    pub addresses: Vec<String>,
}

/// The hardware address that stands for the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareAddress {
    /// The link.
    pub name: String,
    /// Its address.
    pub hardware_addr: String,
}

/// Who resolves names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resolvers {
    /// Servers, by preference.
    pub dns_servers: Vec<String>,
    /// Domains that are tried behind short names.
    pub search_domains: Vec<String>,
}

/// How far the network is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// There is an address that others can reach.
    pub address_ready: bool,
    /// There is a default route.
    pub connectivity_ready: bool,
    /// The node has a name.
    pub hostname_ready: bool,
    /// hosts and resolv.conf are written.
    pub etc_files_ready: bool,
    /// Where there is no address, no default route or no gateway that answers: what is known of each link, a sentence each.
    /// Not in the binary form.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}
