//! Resource types of what the network is to be: the config's word and the leases', layer by layer.
//!
//! Names, namespaces, aliases, columns and sensitivity come from the table of published types.
//! Source: crates/api/tests/data/resources.tsv.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::Definition;

/// The one that says what the network is to be.
const WRITER: &str = "network.SpecController";

/// An address that a link is to have.
pub static ADDRESS_SPEC: Definition = Definition::published("AddressSpecs.net.talos.dev", WRITER);

/// A name that the config gives a link.
pub static LINK_ALIAS_SPEC: Definition =
    Definition::published("LinkAliasSpecs.net.talos.dev", "network.LinkAliasConfigController");

/// What a link is to be.
pub static LINK_SPEC: Definition = Definition::published("LinkSpecs.net.talos.dev", WRITER);

/// A route that is to be there.
pub static ROUTE_SPEC: Definition = Definition::published("RouteSpecs.net.talos.dev", WRITER);

/// A name that the node is to have.
pub static HOSTNAME_SPEC: Definition = Definition::published("HostnameSpecs.net.talos.dev", WRITER);

/// Servers that are to resolve names.
pub static RESOLVER_SPEC: Definition = Definition::published("ResolverSpecs.net.talos.dev", WRITER);

/// Servers that are to tell the time.
pub static TIME_SERVER_SPEC: Definition =
    Definition::published("TimeServerSpecs.net.talos.dev", "network.TimeServerSpecController");

/// A client of DHCP that is to run.
pub static OPERATOR_SPEC: Definition = Definition::published("OperatorSpecs.net.talos.dev", WRITER);

/// A line of /etc/hosts that the config adds.
pub static STATIC_HOST: Definition = Definition::published("StaticHosts.net.talos.dev", WRITER);

/// What a card is to do.
pub static ETHERNET_SPEC: Definition =
    Definition::published("EthernetSpecs.net.talos.dev", "network.EthernetController");

/// What a card does.
pub static ETHERNET_STATUS: Definition =
    Definition::published("EthernetStatuses.net.talos.dev", "network.EthernetController");

/// A service that is looked for, again and again.
pub static PROBE_SPEC: Definition =
    Definition::published("ProbeSpecs.net.talos.dev", "network.ProbeController");

/// Whether it was found.
pub static PROBE_STATUS: Definition =
    Definition::published("ProbeStatuses.net.talos.dev", "network.ProbeController");

/// What a resource of these types says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum NetworkSpec {
    /// `AddressSpecs`.
    Address(AddressSpec),
    /// `LinkSpecs`.
    Link(LinkSpec),
    /// `RouteSpecs`.
    Route(RouteSpec),
    /// `HostnameSpecs`.
    Hostname(HostnameSpec),
    /// `ResolverSpecs`.
    Resolver(ResolverSpec),
    /// `OperatorSpecs`.
    Operator(OperatorSpec),
    /// `TimeServerSpecs`.
    TimeServers(TimeServerSpec),
    /// `EthernetSpecs`.
    Ethernet(EthernetSpec),
    /// `EthernetStatuses`.
    EthernetStatus(Box<EthernetStatus>),
    /// `ProbeSpecs`.
    Probe(ProbeSpec),
    /// `ProbeStatuses`.
    ProbeStatus(ProbeStatus),
    /// `StaticHosts`.
    StaticHost {
        /// Its addresses.
        addresses: Vec<String>,
    },
}

/// An address that a link is to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressSpec {
    /// With its prefix length.
    pub address: String,
    /// The link.
    pub link_name: String,
    /// `inet4` or `inet6`.
    pub family: &'static str,
    /// `global`.
    pub scope: &'static str,
    /// Flags by name; `permanent`.
    pub flags: &'static str,
    /// `configuration`, `operator`, …
    pub layer: &'static str,
}

/// What a link is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// The node makes it: never here.
    pub logical: bool,
    /// It is in use.
    pub up: bool,
    /// Largest packet; 0: the driver's.
    pub mtu: u32,
    /// Empty for hardware.
    pub kind: &'static str,
    /// `ether` or `loopback`.
    #[serde(rename = "type")]
    pub kind_of_link: &'static str,
    /// `default` or `configuration`.
    pub layer: &'static str,
}

/// A route that is to be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// `inet4` or `inet6`.
    pub family: &'static str,
    /// With its prefix length; empty for everything.
    pub dst: String,
    /// Source hint.
    pub src: String,
    /// Next hop; empty: the link itself.
    pub gateway: String,
    /// The link.
    pub out_link_name: String,
    /// `main`.
    pub table: &'static str,
    /// Metric.
    pub priority: u32,
    /// `global` or `link`.
    pub scope: &'static str,
    /// `unicast`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// None.
    pub flags: &'static str,
    /// `static` or `dhcp`.
    pub protocol: &'static str,
    /// Where it comes from.
    pub layer: &'static str,
}

/// A name that the node is to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostnameSpec {
    /// Up to the first dot.
    pub hostname: String,
    /// The rest.
    pub domainname: String,
    /// Where it comes from.
    pub layer: &'static str,
}

/// Servers that are to resolve names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolverSpec {
    /// By preference.
    pub dns_servers: Vec<String>,
    /// Where they come from.
    pub layer: &'static str,
    /// Domains behind short names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search_domains: Vec<String>,
}

/// Servers that are to tell the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeServerSpec {
    /// Names or addresses.
    pub time_servers: Vec<String>,
    /// Where they come from.
    pub layer: &'static str,
    /// Never: the node asks by plain NTP only.
    #[serde(rename = "useNTS")]
    pub use_nts: bool,
}

/// What brings addresses to a link: a client of DHCP, or the election of an address's holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorSpec {
    /// `dhcp4`, `dhcp6` or `vip`.
    pub operator: &'static str,
    /// The link.
    pub link_name: String,
    /// It waits for a carrier.
    pub require_up: bool,
    /// Settings of a client of DHCPv4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp4: Option<Dhcp4>,
    /// Settings of a client of DHCPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp6: Option<Dhcp6>,
    /// The shared address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip: Option<Vip>,
    /// Where it comes from.
    pub layer: &'static str,
}

/// Settings of a client of DHCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dhcp4 {
    /// Metric of its routes.
    pub route_metric: u32,
}

/// Settings of a client of DHCPv6.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dhcp6 {
    /// Metric of its routes.
    pub route_metric: u32,
}

/// An address that control plane nodes share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vip {
    /// The address.
    pub ip: String,
    /// Whoever takes it says so by ARP.
    #[serde(rename = "gratuitousARP")]
    pub gratuitous_arp: bool,
}

/// What a card is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EthernetSpec {
    /// Sizes of queues.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rings: BTreeMap<String, Value>,
    /// On or off.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, bool>,
    /// Numbers of queues.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, Value>,
    /// What wakes the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wake_on_lan: Vec<String>,
}

/// What a card does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EthernetStatus {
    /// It has a carrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_state: Option<bool>,
    /// Megabits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mbit: Option<u32>,
    /// `TwistedPair`, `Fibre`, …
    pub port: &'static str,
    /// `Half`, `Full`, `Unknown`.
    pub duplex: &'static str,
    /// What it offers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub our_modes: Vec<String>,
    /// What the other end offers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peer_modes: Vec<String>,
    /// Sizes of queues, and the largest.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rings: BTreeMap<String, Value>,
    /// By the kernel's names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<EthernetFeature>,
    /// Numbers of queues, and the most.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, Value>,
    /// What wakes the machine.
    #[serde(rename = "wakeOnLAN", skip_serializing_if = "Vec::is_empty")]
    pub wake_on_lan: Vec<String>,
}

/// A feature of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EthernetFeature {
    /// The kernel's name.
    pub name: String,
    /// `on` or `off`; `[fixed]` behind it if the card cannot switch it.
    pub status: String,
}

/// A service that is looked for, again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeSpec {
    /// Between two looks: `1s`.
    pub interval: String,
    /// So many failures in a row do not count.
    pub failure_threshold: u32,
    /// By a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpProbe>,
    /// By a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProbe>,
    /// `configuration`.
    pub layer: &'static str,
}

/// A look by a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TcpProbe {
    /// Host and port.
    pub endpoint: String,
    /// `10s`.
    pub timeout: String,
}

/// A look by a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HttpProbe {
    /// What is asked for.
    pub url: String,
    /// `10s`.
    pub timeout: String,
}

/// Whether a service was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeStatus {
    /// It was.
    pub success: bool,
    /// Why not.
    pub last_error: String,
}
