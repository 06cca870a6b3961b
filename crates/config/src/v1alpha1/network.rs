//! The `machine.network` section.
//!
//! The fields that the first network (loopback, DHCPv4, host name, resolvers) can honour. Bonds, VLANs, WireGuard
//! and address families come with the network itself; until then they are unknown fields, hence refused by name.

use super::is_default;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Host name, resolvers, interfaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Network {
    /// Overrides every other source of a host name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hostname: String,
    /// Replaces the resolvers that DHCP gave.
    #[serde(default, skip_serializing_if = "is_default")]
    pub nameservers: Vec<IpAddr>,
    /// Per-interface settings; an interface without an entry uses DHCP.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interfaces: Vec<Interface>,
}

/// Settings of one interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Interface {
    /// Name of the link: `eth0`.
    pub interface: String,
    /// Leave the interface alone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignore: bool,
    /// Ask for an address by DHCPv4.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dhcp: bool,
    /// Addresses with prefix length, in CIDR text.
    #[serde(default, skip_serializing_if = "is_default")]
    pub addresses: Vec<String>,
    /// One address in CIDR text: the first generation's field.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cidr: String,
    /// Size of the largest packet; 0 keeps the driver's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mtu: u32,
    /// Static routes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub routes: Vec<Route>,
    /// Settings of the DHCP client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_options: Option<Dhcp>,
}

/// A static route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Route {
    /// Destination in CIDR text; empty for the default route.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network: String,
    /// Address of the next hop.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gateway: String,
    /// Priority; lower wins.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metric: u32,
}

/// Settings of the DHCP client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Dhcp {
    /// Priority of the routes that DHCP gives.
    #[serde(default, skip_serializing_if = "is_default")]
    pub route_metric: u32,
}
