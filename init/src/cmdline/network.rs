//! How the network root reaches its servers: `ip=`, `vlan=`, `bond=` and `BOOTIF=`.
//!
//! Owns: what these words mean before the root is there; networkd reads them for the node itself.
//! Does not: IPv6 addresses, which are passed over; bonds: of their cards one is used.
//! Source: `network_line`; PXELINUX's `BOOTIF=01-MAC`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use netroot::Lease;
use network_line::{Address, Line, Static};

use crate::failure::Failure;

/// Which card, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// `BOOTIF=`: the card that the firmware started from.
    pub mac: Option<[u8; 6]>,
    /// Names of cards, one of which is used; empty: any.
    pub cards: Vec<String>,
    /// The VLAN on that card.
    pub vlan: Option<u16>,
    /// `None`: DHCP.
    pub lease: Option<Lease>,
}

/// Reads the words of a command line.
pub(super) fn parse(words: &[(String, String)]) -> Result<Network, Failure> {
    let line = Line::read(words.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    if let Some(fault) = line.faults.first() {
        let reason = alloc::format!("\"{}\" {}", fault.value, fault.what);
        return Err(Failure::reason("read kernel parameter", fault.parameter, reason));
    }
    let mut network = Network { lease: line.statics().find_map(lease), ..Network::default() };
    // The first with an address counts, else the last that names a link.
    let fixed = line.statics().find(|address| lease(address).is_some()).map(|address| &address.link);
    let named = line.addresses.iter().rev().find_map(|address| match address {
        Address::Auto { link, .. } => Some(link),
        Address::Static(_) => None,
    });
    let device = fixed.or(named).map_or("", String::as_str);
    let mut vlans = line.vlans.iter();
    let vlan = if device.is_empty() { vlans.next() } else { vlans.find(|vlan| vlan.name == device) };
    network.vlan = vlan.map(|vlan| vlan.id);
    let parent = vlan.map_or(device, |vlan| vlan.parent.as_str());
    let bond = line.bonds.iter().find(|bond| bond.name == parent);
    let alone = || Some(parent.to_string()).filter(|parent| !parent.is_empty()).into_iter().collect();
    network.cards = bond.map_or_else(alone, |bond| bond.members.clone());
    network.mac = words.iter().find(|(name, _)| name == "BOOTIF").and_then(|(_, value)| mac(value));
    Ok(network)
}

/// Of IPv4.
fn lease(address: &Static) -> Option<Lease> {
    let of_v4 = |address: &IpAddr| if let IpAddr::V4(address) = address { Some(*address) } else { None };
    Some(Lease {
        address: of_v4(&address.address)?,
        prefix: address.prefix,
        gateway: address.gateway.as_ref().and_then(of_v4),
        dns: address.resolvers.iter().filter_map(of_v4).collect(),
        from: None,
    })
}

/// `01-52-54-00-12-34-56`; the first part, the kind of hardware, may be missing.
fn mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = text.split(['-', ':']).map(|part| u8::from_str_radix(part, 16).ok());
    if text.split(['-', ':']).count() == 7 {
        bytes.next();
    }
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(line: &str) -> Network {
        parse(&crate::cmdline::split(line)).unwrap()
    }

    #[test]
    fn an_address_with_all_that_belongs_to_it() {
        let found = network("ip=10.0.0.5::10.0.0.1:255.255.255.0:node:eth1:off:10.0.0.2:0.0.0.0");
        assert_eq!(found.cards, ["eth1"]);
        let lease = found.lease.unwrap();
        assert_eq!(lease.to_string(), "address 10.0.0.5/24, gateway 10.0.0.1, name server 10.0.0.2");
        let lease = network("ip=[fd00::1]:::64:node:eth0 ip=10.0.0.5:::16").lease.unwrap();
        assert_eq!(lease.to_string(), "address 10.0.0.5/16");
    }

    #[test]
    fn dhcp_in_all_its_spellings() {
        for line in ["", "ip=dhcp", "ip=on", "ip=:::::eth1:dhcp", "ip=eth1:dhcp"] {
            let found = network(line);
            assert_eq!(found.lease, None, "{line}");
            assert_eq!(found.cards.len(), usize::from(line.contains("eth1")), "{line}");
        }
    }

    #[test]
    fn vlans_and_bonds_lead_to_cards() {
        for (line, cards, vlan) in [
            ("vlan=eth0.5:eth0 ip=eth0.5:dhcp", &["eth0"][..], Some(5)),
            ("vlan=storage7:eth2", &["eth2"], Some(7)),
            ("ip=eth0.12:dhcp", &["eth0"], Some(12)),
            ("bond=bond0:eth0,eth1:mode=802.3ad ip=bond0:dhcp", &["eth0", "eth1"], None),
            ("bond=bond0:eth0,eth1 vlan=bond0.9:bond0 ip=bond0.9:dhcp", &["eth0", "eth1"], Some(9)),
        ] {
            let found = network(line);
            assert_eq!(found.cards, cards, "{line}");
            assert_eq!(found.vlan, vlan, "{line}");
        }
    }

    #[test]
    fn the_card_of_the_firmware() {
        let wanted = Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        assert_eq!(network("BOOTIF=01-52-54-00-12-34-56").mac, wanted);
        assert_eq!(network("BOOTIF=52:54:00:12:34:56").mac, wanted);
        assert_eq!(network("BOOTIF=${mac}").mac, None);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (line, wanted) in [
            ("ip=10.0.0.x:::24", "\"10.0.0.x:::24\" has no address in its first field"),
            ("ip=10.0.0.1:::255.0.255.0", "\"10.0.0.1:::255.0.255.0\" has no netmask in its fourth field"),
            ("ip=10.0.0.1:::33", "\"10.0.0.1:::33\" has no netmask in its fourth field"),
            ("ip=eth0.5000:dhcp", "\"eth0.5000\" names a link that ends in no number of a VLAN"),
        ] {
            let failure = parse(&crate::cmdline::split(line)).unwrap_err();
            assert!(failure.to_string().ends_with(wanted), "{failure}");
        }
    }
}
