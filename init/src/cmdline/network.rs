//! How the network root reaches its servers: `ip=`, `vlan=`, `bond=` and `BOOTIF=`.
//!
//! Owns: what these words mean before the root is there, and no longer: the node's own network is its config's.
//! Does not: IPv6 addresses, which are passed over; bonds: of their cards one is used.
//! Source: spec machine-facts §8.5; Documentation/admin-guide/nfs/nfsroot.rst (`ip=`); dracut.cmdline(7) (`vlan=`,
//! `bond=`); PXELINUX's `BOOTIF=01-MAC`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use netroot::Lease;

use crate::failure::Failure;

/// The largest number of a VLAN (IEEE 802.1Q).
const MOST_VLAN: u16 = 4094;

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
    let mut network = Network::default();
    let mut device = String::new();
    for (_, value) in words.iter().filter(|(name, value)| name == "ip" && !value.contains('[')) {
        let wrong = |what: &str| Failure::reason("read kernel parameter", "ip", format_reason(value, what));
        let fields: Vec<&str> = value.split(':').collect();
        let field = |number: usize| fields.get(number).copied().unwrap_or_default();
        if fields.len() == 2 {
            device = field(0).to_string();
        } else if fields.len() >= 4 {
            device = field(5).to_string();
            network.lease = lease(&field).map_err(wrong)?;
            // The first with an address counts.
            if network.lease.is_some() {
                break;
            }
        }
    }
    let value = |wanted: &str| words.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let mut vlans = words.iter().filter(|(name, _)| name == "vlan").filter_map(|(_, v)| v.split_once(':'));
    let vlan = if device.is_empty() { vlans.next() } else { vlans.find(|(name, _)| *name == device) };
    let (name, parent) = match vlan {
        Some((name, parent)) => (name, parent),
        None => (device.as_str(), device.rsplit_once('.').map_or(device.as_str(), |(parent, _)| parent)),
    };
    if name != parent {
        let number = vlan_number(name).ok_or_else(|| {
            Failure::reason(
                "read kernel parameter",
                "vlan",
                format_reason(name, "ends in no number of a VLAN"),
            )
        })?;
        network.vlan = Some(number);
    }
    let bonds = words.iter().filter(|(name, _)| name == "bond").filter_map(|(_, v)| v.split_once(':'));
    let slaves = bonds.filter(|(bond, _)| *bond == parent).map(|(_, rest)| rest).next();
    let cards = slaves.map_or(parent, |rest| rest.split(':').next().unwrap_or_default());
    network.cards = cards.split(',').filter(|card| !card.is_empty()).map(ToString::to_string).collect();
    network.mac = value("BOOTIF").and_then(mac);
    Ok(network)
}

fn format_reason(value: &str, what: &str) -> String {
    alloc::format!("\"{value}\" {what}")
}

/// `client:server:gateway:netmask:host:device:autoconf:dns:dns`
fn lease<'a>(field: &dyn Fn(usize) -> &'a str) -> Result<Option<Lease>, &'static str> {
    if field(0).is_empty() {
        return Ok(None);
    }
    let address = field(0).parse().map_err(|_| "has no IPv4 address in its first field")?;
    let prefix = prefix(field(3)).ok_or("has no netmask in its fourth field")?;
    let server = |number: usize| {
        let found: Option<Ipv4Addr> = field(number).parse().ok();
        found.filter(|address| !address.is_unspecified())
    };
    let dns = [7, 8].into_iter().filter_map(server).collect();
    Ok(Some(Lease { address, prefix, gateway: server(2), dns, from: None }))
}

/// `255.255.255.0` or `24`.
fn prefix(text: &str) -> Option<u8> {
    if let Ok(mask) = text.parse::<Ipv4Addr>() {
        let bits = mask.to_bits();
        let ones = bits.leading_ones();
        return (bits.count_ones() == ones).then(|| u8::try_from(ones).ok())?;
    }
    text.parse().ok().filter(|prefix| (1..=32).contains(prefix))
}

/// `eth0.5`, `vlan5`
fn vlan_number(name: &str) -> Option<u16> {
    let start = name.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    name.get(start..)?.parse().ok().filter(|number| (1..=MOST_VLAN).contains(number))
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
        let lease = network("ip=[fd00::1]::::node:eth0 ip=10.0.0.5:::16").lease.unwrap();
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
            ("ip=10.0.0.x:::24", "\"10.0.0.x:::24\" has no IPv4 address in its first field"),
            ("ip=10.0.0.1:::255.0.255.0", "\"10.0.0.1:::255.0.255.0\" has no netmask in its fourth field"),
            ("ip=10.0.0.1:::33", "\"10.0.0.1:::33\" has no netmask in its fourth field"),
            ("ip=eth0.5000:dhcp", "\"eth0.5000\" ends in no number of a VLAN"),
        ] {
            let failure = parse(&crate::cmdline::split(line)).unwrap_err();
            assert!(failure.to_string().ends_with(wanted), "{failure}");
        }
    }
}
