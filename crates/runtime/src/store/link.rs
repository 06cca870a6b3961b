//! Links as resources: `LinkStatuses`.
//!
//! Does not: hold a secret: a tunnel's private key and preshared keys have no field.
//! Source: crates/api/tests/data/resources.tsv; the keys of `binary::OURS` are ours.

use api::definitions::interface_flags;
use serde::{Serialize, Serializer};

/// A network link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkStatus {
    /// Kernel's index.
    pub index: u32,
    /// `ether`, `loopback`, …
    #[serde(rename = "type")]
    pub kind_of_link: String,
    /// `bridge`, `vlan`, …; empty for hardware.
    pub kind: String,
    /// Index of the link that it stands on, as a VLAN's parent.
    pub link_index: u32,
    /// `IFF_UP` and so on (linux/if.h).
    #[serde(serialize_with = "flag_words")]
    pub flags: u32,
    /// MAC address.
    pub hardware_addr: String,
    /// The one that the card was made with.
    pub permanent_addr: String,
    /// The one that all on the link have.
    pub broadcast_addr: String,
    /// Largest packet.
    pub mtu: u32,
    /// How packets wait: `fq_codel`, `noqueue`.
    pub queue_disc: String,
    /// Index of the bond, bridge or VRF that it is a member of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_index: Option<u32>,
    /// `up`, `down`, `unknown`, …
    pub operational_state: String,
    /// `bond`, `bridge`, `vrf` of a member; else empty.
    pub slave_kind: String,
    /// The device's place on its bus: `0000:00:03.0`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bus_path: String,
    /// Vendor and product: `1af4:1000`.
    #[serde(rename = "pciID", skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
    /// `virtio_net`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// Of the driver.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_version: String,
    /// Of the card's firmware.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub firmware_version: String,
    /// `0x1000`
    #[serde(rename = "productID", skip_serializing_if = "String::is_empty")]
    pub product_id: String,
    /// `0x1af4`
    #[serde(rename = "vendorID", skip_serializing_if = "String::is_empty")]
    pub vendor_id: String,
    /// What its maker calls it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub product: String,
    /// Who made it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vendor: String,
    /// A further name, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alias: String,
    /// Additional names, for programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alt_names: Vec<String>,
    /// Whether it has a carrier.
    pub link_state: bool,
    /// Megabits a second, of a card with a carrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mbit: Option<u32>,
    /// `TwistedPair`, `Fibre`, …; `Other` of what is no card.
    pub port: &'static str,
    /// `Half`, `Full`; `Unknown` of what is no card.
    pub duplex: &'static str,
    /// Of a VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanStatus>,
    /// Of a bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge_master: Option<BridgeStatus>,
    /// Of a bond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond_master: Option<Box<BondStatus>>,
    /// Of a tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wireguard: Option<WireguardStatus>,
    /// Of a VRF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf_master: Option<VrfStatus>,
}

/// What makes a link a VLAN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VlanStatus {
    /// 1 to 4094.
    #[serde(rename = "vlanID")]
    pub id: u16,
    /// `802.1q` or `802.1ad`.
    #[serde(rename = "vlanProtocol")]
    pub protocol: &'static str,
}

/// What a bridge does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BridgeStatus {
    /// Loops are found and cut.
    pub stp: Enabled,
    /// Ports have VLANs.
    pub vlan: Filtering,
}

/// Whether something is on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Enabled {
    /// It is.
    pub enabled: bool,
}

/// Whether VLANs are told apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Filtering {
    /// They are.
    pub filtering_enabled: bool,
}

/// What a VRF is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VrfStatus {
    /// Name or number of its table.
    pub table: Box<str>,
}

/// What a bond does. A word that clients do not know is the kernel's number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BondStatus {
    /// `802.3ad`, `active-backup`, …
    pub mode: String,
    /// `layer3+4`, …
    pub xmit_hash_policy: String,
    /// `slow` or `fast`.
    pub lacp_rate: String,
    /// `none`, `active`, …
    pub arp_validate: String,
    /// `any` or `all`.
    pub arp_all_targets: String,
    /// Index of the member that it prefers.
    #[serde(skip_serializing_if = "is_zero")]
    pub primary: u32,
    /// `always`, `better`, `failure`.
    pub primary_reselect: String,
    /// `none`, `active`, `follow`.
    pub fail_over_mac: String,
    /// `stable`, `bandwidth`, `count`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ad_select: String,
    /// Milliseconds between two looks at the members.
    #[serde(skip_serializing_if = "is_zero")]
    pub miimon: u32,
    /// Milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub updelay: u32,
    /// Milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub downdelay: u32,
    /// Milliseconds between two questions by ARP.
    #[serde(skip_serializing_if = "is_zero")]
    pub arp_interval: u32,
    /// Reports of multicast groups after a failover.
    #[serde(skip_serializing_if = "is_zero")]
    pub resend_igmp: u32,
    /// Members with a carrier that it needs for its own.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_links: u32,
    /// Seconds between two packets that teach switches.
    #[serde(skip_serializing_if = "is_zero")]
    pub lp_interval: u32,
    /// Packets that one member sends before the next one does.
    #[serde(skip_serializing_if = "is_zero")]
    pub packets_per_slave: u32,
    /// Announcements after a failover.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_peer_notif: u32,
    /// Flows move between members.
    #[serde(rename = "tlbLogicalLb", skip_serializing_if = "is_zero")]
    pub tlb_dynamic_lb: u32,
    /// Members that are not in use receive, too.
    #[serde(skip_serializing_if = "is_zero")]
    pub all_slaves_active: u32,
    /// A look at a member is one at its carrier.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub use_carrier: bool,
    /// Priority of the node in LACP.
    #[serde(skip_serializing_if = "is_zero")]
    pub ad_actor_sys_prio: u32,
    /// Part of the key of its ports in LACP.
    #[serde(skip_serializing_if = "is_zero")]
    pub ad_user_port_key: u32,
    /// Milliseconds between two announcements.
    #[serde(skip_serializing_if = "is_zero")]
    pub peer_notify_delay: u32,
    /// Who is asked by ARP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arp_ip_targets: Vec<String>,
    /// The same by IPv6.
    #[serde(rename = "nsIp6Targets", skip_serializing_if = "Vec::is_empty")]
    pub ns_ip6_targets: Vec<String>,
    /// `on`: it speaks LACP first; `off`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ad_lacp_active: String,
    /// Questions by ARP that may go without an answer.
    #[serde(skip_serializing_if = "is_zero")]
    pub missed_max: u32,
}

/// A tunnel of WireGuard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WireguardStatus {
    /// In base64.
    pub public_key: String,
    /// Of UDP.
    pub listen_port: u16,
    /// On its packets; 0: none.
    pub firewall_mark: u32,
    /// The other ends.
    pub peers: Vec<WireguardPeerStatus>,
}

/// Another end of a tunnel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WireguardPeerStatus {
    /// In base64.
    pub public_key: String,
    /// Where it was last; empty: it has not said.
    pub endpoint: String,
    /// `25s`; `0s`: none is sent.
    pub persistent_keepalive_interval: String,
    /// What comes from it and goes to it.
    #[serde(rename = "allowedIPs")]
    pub allowed_ips: Vec<String>,
    /// When both ends last agreed on keys; empty: never.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_handshake: String,
    /// Bytes that came from it.
    pub received_bytes: u64,
    /// Bytes that went to it.
    pub transmitted_bytes: u64,
}

/// `UP,BROADCAST,…`, as clients read them.
fn flag_words<S: Serializer>(flags: &u32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&interface_flags(*flags))
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
