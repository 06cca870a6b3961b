//! Links: those that a machine has, and what they are to be.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use config::Secret;
use config::documents::ClientIdentifier;
use netlink_packet_route::link::InfoBond;

/// An address and the length of its network's prefix in bits.
pub type Prefix = (IpAddr, u8);

/// Metric of routes that DHCP gives, if none is said.
pub const DHCP_METRIC: u32 = 1024;
/// The main routing table.
pub const MAIN_TABLE: u32 = 254;
/// Where pods ask the node's own resolver; the node's loopback has it. The same on every node: no packet to it leaves one.
pub const HOST_DNS_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 116, 108);

/// A link that the machine has, by what selectors ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Present {
    /// `enp1s0`.
    pub name: String,
    /// Its further names.
    pub alt_names: Vec<String>,
    /// The kernel's word for links that a program made, `vlan`; empty for those of the machine.
    pub kind: String,
    /// Six bytes for Ethernet. Members of a bond have that of the bond: theirs is the permanent one.
    pub hardware: Vec<u8>,
    /// The address that the card was made with; empty where it tells none.
    pub permanent: Vec<u8>,
    /// `virtio_net`; empty for links without a device.
    pub driver: String,
    /// The device's place on its bus: `0000:00:03.0`.
    pub bus_path: String,
    /// Vendor and product of a PCI device: `1af4:1000`.
    pub pci_id: String,
    /// It is a wired Ethernet card, no link that a program made.
    pub is_physical: bool,
}

/// What a link is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// How it is made; `None` for one that the machine has.
    pub kind: Option<Kind>,
    /// The bond, bridge or VRF that it is a member of.
    pub controller: Option<String>,
    /// Switched off on purpose.
    pub is_down: bool,
    /// Largest packet in bytes; `None`: the kernel's choice.
    pub mtu: Option<u32>,
    /// Whether it takes multicast; `None`: the kernel's choice.
    pub multicast: Option<bool>,
    /// Of a link that is made.
    pub hardware: Option<[u8; 6]>,
    /// What it is reached at.
    pub addresses: Vec<Prefix>,
    /// Metrics of the routes that come with addresses; the kernel's choice for those that are not here.
    pub priorities: BTreeMap<IpAddr, u32>,
    /// Through it.
    pub routes: Vec<Route>,
    /// An address is asked for by DHCPv4, and how.
    pub dhcp: Option<Dhcp>,
    /// Addresses are asked for by DHCPv6, and how.
    pub dhcp6: Option<Dhcp6>,
    /// Settings of the card.
    pub ethernet: Option<Ethernet>,
    /// The configuration names it.
    pub is_configured: bool,
}

impl Link {
    /// Whether an address is asked for by DHCPv4.
    #[must_use]
    pub fn asks_dhcp(&self) -> bool {
        self.dhcp.is_some()
    }
}

/// Settings of a card. What is not named stays as the card has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ethernet {
    /// By the kernel's names: on or off.
    pub features: BTreeMap<String, bool>,
    /// Sizes of queues, by the names of the config; switches are 0 and 1.
    pub rings: BTreeMap<String, u32>,
    /// Numbers of queues, by the names of the config.
    pub channels: BTreeMap<String, u32>,
    /// Everything that wakes the machine, by the kernel's names.
    pub wake_on_lan: Option<Vec<String>>,
}

/// How an address is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcp {
    /// Of the routes that come with it.
    pub metric: u32,
    /// The host's name may come with it.
    pub takes_hostname: bool,
    /// Routes may come with it.
    pub takes_routes: bool,
    /// Who the client says it is.
    pub identifier: ClientIdentifier,
    /// Its identifier, if that is a DUID.
    pub duid: Vec<u8>,
}

impl Default for Dhcp {
    fn default() -> Self {
        let identifier = ClientIdentifier::Mac;
        Self { metric: DHCP_METRIC, takes_hostname: true, takes_routes: true, identifier, duid: Vec::new() }
    }
}

/// How addresses of IPv6 are asked for. Routes do not come with them: routers tell those.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcp6 {
    /// Of routes. It has no effect, and is shown.
    pub metric: u32,
    /// The host's name is told to the server.
    pub tells_hostname: bool,
    /// Who the client says it is; empty: by its hardware address.
    pub duid: Vec<u8>,
}

impl Default for Dhcp6 {
    fn default() -> Self {
        Self { metric: DHCP_METRIC, tells_hostname: true, duid: Vec::new() }
    }
}

/// How a link is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A link that leads nowhere.
    Dummy,
    /// A numbered part of another link.
    Vlan {
        /// The other link.
        parent: String,
        /// 1 to 4094.
        id: u16,
        /// Tags are those of 802.1ad, not of 802.1Q.
        is_service: bool,
    },
    /// Several links as one.
    Bond {
        /// Options as the kernel takes them.
        options: Vec<InfoBond>,
        /// The member that is preferred.
        primary: Option<String>,
    },
    /// A switch.
    Bridge {
        /// Loops are found and cut.
        stp: bool,
        /// Ports have VLANs.
        vlan_filtering: bool,
    },
    /// A routing table of its own for the members.
    Vrf {
        /// Its number.
        table: u32,
    },
    /// An encrypted tunnel.
    Wireguard(Wireguard),
    /// One end of a wire.
    Veth {
        /// The other end.
        peer: String,
        /// It comes and goes with the other end.
        is_second: bool,
    },
}

/// A public or shared key.
pub type Key = [u8; 32];

/// Keys and peers of a tunnel. Without `Debug`: it holds secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Wireguard {
    /// Base64 of 32 bytes.
    pub private_key: Secret,
    /// UDP port; `None`: the kernel chooses one.
    pub listen_port: Option<u16>,
    /// Mark of the tunnel's own packets.
    pub firewall_mark: Option<u32>,
    /// Who is at the other ends.
    pub peers: Vec<Peer>,
}

/// One other end of a tunnel.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    /// By which it is known.
    pub public_key: Key,
    /// Base64 of 32 bytes that both ends share besides.
    pub preshared_key: Option<Secret>,
    /// `HOST:PORT`; `None`: it comes by itself.
    pub endpoint: Option<String>,
    /// Between two packets that keep a way through firewalls open; 0: none are sent.
    pub keepalive_seconds: u16,
    /// Whose packets come from it, and which go to it.
    pub allowed: Vec<Prefix>,
}

impl fmt::Debug for Wireguard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wireguard({} peers)", self.peers.len())
    }
}

impl Kind {
    /// The kernel's word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Dummy => "dummy",
            Self::Vlan { .. } => "vlan",
            Self::Bond { .. } => "bond",
            Self::Bridge { .. } => "bridge",
            Self::Vrf { .. } => "vrf",
            Self::Wireguard(_) => "wireguard",
            Self::Veth { .. } => "veth",
        }
    }
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Where to; a length of 0 is everywhere.
    pub destination: Prefix,
    /// Through which neighbour; `None`: the link itself.
    pub gateway: Option<IpAddr>,
    /// Where packets say they come from.
    pub source: Option<IpAddr>,
    /// Of several routes to one place the lowest counts.
    pub metric: u32,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
    /// The number of its table.
    pub table: u32,
    /// What becomes of a packet.
    pub kind: RouteKind,
}

/// A rule: which packets are led by which table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Rules with lower numbers come first.
    pub priority: u32,
    /// For packets of IPv6, not of IPv4.
    pub is_v6: bool,
    /// Where packets come from.
    pub source: Option<Prefix>,
    /// Where they go to.
    pub destination: Option<Prefix>,
    /// The link that they come in by; empty: any.
    pub input: String,
    /// The link that their sender chose; empty: any.
    pub output: String,
    /// Their mark, as far as `mask` goes; 0: any.
    pub mark: u32,
    /// Bits of the mark that count; 0: all.
    pub mask: u32,
    /// The number of the table.
    pub table: u32,
    /// What becomes of them.
    pub action: RouteKind,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// It is passed on.
    #[default]
    Unicast,
    /// It is dropped without a word.
    Blackhole,
    /// It is dropped, and the sender is told that there is no way.
    Unreachable,
    /// It is dropped, and the sender is told that it may not.
    Prohibit,
}

/// An address without a prefix length stands alone.
#[must_use]
pub fn prefix(text: &str) -> Option<Prefix> {
    match text.parse::<IpAddr>() {
        Ok(address) => Some((address, if address.is_ipv4() { 32 } else { 128 })),
        Err(_) => {
            let (address, length) = text.split_once('/')?;
            Some((address.parse().ok()?, length.parse().ok()?))
        }
    }
}
