//! The network of a kernel's command line: `ip=`, `vlan=` and `bond=`.
//!
//! Owns: what the words mean. init reads them for a root from the network, machined for the node.
//! Does not: know links, or bring anything about.
//! Fails by: a [`Fault`] for each word that means nothing; the others count.
//! Source: Documentation/admin-guide/nfs/nfsroot.rst of Linux (`ip=`); dracut.cmdline(7) (`ip=LINK:dhcp`, `vlan=`, `bond=`,
//! addresses in brackets).

#![no_std]

extern crate alloc;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

/// The largest number of a VLAN (IEEE 802.1Q).
const MOST_VLAN: u16 = 4094;

/// What a command line says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// `ip=`, in order.
    pub addresses: Vec<Address>,
    /// `vlan=`, and VLANs that only an `ip=` names.
    pub vlans: Vec<Vlan>,
    /// `bond=`
    pub bonds: Vec<Bond>,
    /// What means nothing.
    pub faults: Vec<Fault>,
}

/// One `ip=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// By a protocol.
    Auto {
        /// Empty: any.
        link: String,
        /// `dhcp`; empty: the link is named, and no more.
        method: String,
    },
    /// A fixed one.
    Static(Static),
}

/// A fixed address with all that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Static {
    /// Empty: the first one.
    pub link: String,
    /// The machine's.
    pub address: IpAddr,
    /// How many bits of it are the network's; at most 32 or 128.
    pub prefix: u8,
    /// The way out of that network.
    pub gateway: Option<IpAddr>,
    /// The machine's name; empty: none.
    pub host: String,
    /// Name servers.
    pub resolvers: Vec<IpAddr>,
    /// Servers of NTP.
    pub time_servers: Vec<IpAddr>,
}

/// A VLAN of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vlan {
    /// `eth0.5`, `vlan5`
    pub name: String,
    /// The link below.
    pub parent: String,
    /// 1 to 4094.
    pub id: u16,
}

/// Several links as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bond {
    /// Its name.
    pub name: String,
    /// The links.
    pub members: Vec<String>,
    /// Names and values, as the kernel's module has them.
    pub options: Vec<(String, String)>,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
}

/// A word that means nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// `ip`, `vlan`, `bond`.
    pub parameter: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong, as the end of a sentence.
    pub what: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} {}", self.parameter, self.value, self.what)
    }
}

impl Line {
    /// Reads the words of a command line: names and values.
    #[must_use]
    pub fn read<'a>(words: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut line = Self::default();
        for (name, value) in words {
            let (parameter, read) = match name {
                "ip" => ("ip", line.ip(value)),
                "vlan" => ("vlan", line.vlan(value)),
                "bond" => ("bond", line.bond(value)),
                _ => continue,
            };
            if let Err(what) = read {
                line.faults.push(Fault { parameter, value: value.to_string(), what });
            }
        }
        line.name_vlans();
        line
    }

    /// Fixed addresses, in order.
    pub fn statics(&self) -> impl Iterator<Item = &Static> {
        self.addresses.iter().filter_map(|address| match address {
            Address::Static(address) => Some(address),
            Address::Auto { .. } => None,
        })
    }

    fn ip(&mut self, value: &str) -> Result<(), &'static str> {
        let fields = fields(value).ok_or("has a bracket without the other one")?;
        let field = |number: usize| fields.get(number).copied().unwrap_or_default();
        match fields.len() {
            // How any link is to be asked.
            0 | 1 => Ok(()),
            2 => {
                self.addresses.push(Address::Auto { link: field(0).into(), method: field(1).into() });
                Ok(())
            }
            3 => Err("has three fields: two (LINK:dhcp), or four and more, are needed"),
            _ if field(0).is_empty() => {
                self.addresses.push(Address::Auto { link: field(5).into(), method: field(6).into() });
                Ok(())
            }
            _ => {
                let address = address(field(0)).ok_or("has no address in its first field")?;
                let prefix = prefix(field(3), address).ok_or("has no netmask in its fourth field")?;
                let host = |number: usize| address_of_host(field(number));
                self.addresses.push(Address::Static(Static {
                    link: field(5).into(),
                    address,
                    prefix,
                    gateway: host(2),
                    host: field(4).into(),
                    resolvers: [7, 8].into_iter().filter_map(host).collect(),
                    time_servers: host(9).into_iter().collect(),
                }));
                Ok(())
            }
        }
    }

    fn vlan(&mut self, value: &str) -> Result<(), &'static str> {
        let (name, parent) = value.split_once(':').ok_or("names no link below: NAME:LINK")?;
        let id = vlan_number(name).ok_or("ends in no number of a VLAN before the colon")?;
        self.vlans.push(Vlan { name: name.into(), parent: parent.into(), id });
        Ok(())
    }

    fn bond(&mut self, value: &str) -> Result<(), &'static str> {
        let mut fields = value.split(':');
        let (name, members) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let members: Vec<String> =
            members.split(',').filter(|member| !member.is_empty()).map(ToString::to_string).collect();
        if name.is_empty() || members.is_empty() {
            return Err("names no links: NAME:LINK,LINK:OPTION=VALUE,…:MTU");
        }
        let options = fields.next().unwrap_or_default().split([',', ';']);
        let options = options.filter_map(|option| option.split_once('='));
        let options = options.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let mtu = match fields.next().unwrap_or_default() {
            "" => None,
            text => Some(text.parse().map_err(|_| "has no number of bytes in its fourth field")?),
        };
        self.bonds.push(Bond { name: name.into(), members, options, mtu });
        Ok(())
    }

    /// `ip=eth0.5:dhcp` names a VLAN that no word makes.
    fn name_vlans(&mut self) {
        for address in self.addresses.clone() {
            let (Address::Auto { link, .. } | Address::Static(Static { link, .. })) = address;
            let Some((parent, number)) = link.rsplit_once('.') else { continue };
            if self.vlans.iter().any(|vlan| vlan.name == link) {
                continue;
            }
            match vlan_number(number) {
                Some(id) => {
                    self.vlans.push(Vlan { parent: parent.into(), id, name: link });
                }
                None => {
                    let what = "names a link that ends in no number of a VLAN";
                    self.faults.push(Fault { parameter: "ip", value: link, what });
                }
            }
        }
    }
}

/// Between colons, but not within brackets.
fn fields(value: &str) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    let mut rest = value;
    loop {
        let end =
            if rest.starts_with('[') { rest.find(']')? + 1 } else { rest.find(':').unwrap_or(rest.len()) };
        let (field, behind) = rest.split_at(end);
        found.push(field);
        match behind.strip_prefix(':') {
            Some(behind) => rest = behind,
            None if behind.is_empty() => return Some(found),
            None => return None,
        }
    }
}

/// `10.0.0.5`, `[fd00::5]`
fn address(text: &str) -> Option<IpAddr> {
    match text.strip_prefix('[') {
        Some(text) => text.strip_suffix(']')?.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().map(IpAddr::V4),
    }
}

/// Zeros stand for none.
fn address_of_host(text: &str) -> Option<IpAddr> {
    address(text).filter(|address| !address.is_unspecified())
}

/// `255.255.255.0` or `24`.
fn prefix(text: &str, address: IpAddr) -> Option<u8> {
    if let Ok(mask) = text.parse::<Ipv4Addr>() {
        let bits = mask.to_bits();
        let ones = bits.leading_ones();
        return (address.is_ipv4() && bits.count_ones() == ones).then(|| u8::try_from(ones).ok())?;
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    text.parse().ok().filter(|prefix| (1..=most).contains(prefix))
}

/// `eth0.5`, `vlan5`
fn vlan_number(name: &str) -> Option<u16> {
    let start = name.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    name.get(start..)?.parse().ok().filter(|number| (1..=MOST_VLAN).contains(number))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn line(text: &str) -> Line {
        Line::read(text.split_whitespace().filter_map(|word| word.split_once('=')))
    }

    fn auto(link: &str, method: &str) -> Address {
        Address::Auto { link: link.into(), method: method.into() }
    }

    #[test]
    fn an_address_with_all_that_belongs_to_it() {
        let found = line("ip=10.0.0.5::10.0.0.1:255.255.255.0:node:eth1:off:10.0.0.2:0.0.0.0:10.0.0.3 quiet");
        let wanted = Static {
            link: "eth1".into(),
            address: Ipv4Addr::new(10, 0, 0, 5).into(),
            prefix: 24,
            gateway: Some(Ipv4Addr::new(10, 0, 0, 1).into()),
            host: "node".into(),
            resolvers: vec![Ipv4Addr::new(10, 0, 0, 2).into()],
            time_servers: vec![Ipv4Addr::new(10, 0, 0, 3).into()],
        };
        assert_eq!((found.statics().collect::<Vec<_>>(), found.faults.len()), (vec![&wanted], 0));
    }

    #[test]
    fn addresses_of_both_families_and_several() {
        let found = line("ip=[fd00::5]::[fd00::1]:64::eth0::[fd00::2] ip=10.0.0.5::0.0.0.0:16");
        let found: Vec<_> = found
            .statics()
            .map(|it| (it.address.to_string(), it.prefix, it.gateway, it.resolvers.len()))
            .collect();
        let gateway = Some("fd00::1".parse().unwrap());
        assert_eq!(found, [("fd00::5".into(), 64, gateway, 1), ("10.0.0.5".into(), 16, None, 0)]);
    }

    #[test]
    fn dhcp_in_all_its_spellings() {
        for text in ["", "ip=dhcp", "ip=on", "ip="] {
            assert_eq!(line(text), Line::default(), "{text}");
        }
        for text in ["ip=:::::eth1:dhcp", "ip=eth1:dhcp"] {
            assert_eq!(line(text).addresses, [auto("eth1", "dhcp")], "{text}");
        }
    }

    #[test]
    fn vlans_and_bonds() {
        let found = line("vlan=eth0.5:eth0 vlan=storage7:eth2 ip=eth0.5:dhcp ip=eth3.12:dhcp");
        let vlans: Vec<_> =
            found.vlans.iter().map(|vlan| (vlan.name.as_str(), vlan.parent.as_str(), vlan.id)).collect();
        assert_eq!(vlans, [("eth0.5", "eth0", 5), ("storage7", "eth2", 7), ("eth3.12", "eth3", 12)]);
        let found = line("bond=bond0:eth0,eth1:mode=802.3ad,miimon=100:9000 bond=bond1:eth2");
        let option = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(found.bonds[0].members, ["eth0", "eth1"]);
        assert_eq!(found.bonds[0].options, [option("mode", "802.3ad"), option("miimon", "100")]);
        assert_eq!((found.bonds[0].mtu, found.bonds[1].mtu), (Some(9000), None));
        assert!(found.bonds[1].options.is_empty() && found.faults.is_empty());
    }

    #[test]
    fn what_means_nothing_is_told_and_the_rest_counts() {
        for (text, wanted) in [
            ("ip=10.0.0.x:::24", "has no address in its first field"),
            ("ip=10.0.0.1:::255.0.255.0", "has no netmask in its fourth field"),
            ("ip=10.0.0.1:::33", "has no netmask in its fourth field"),
            ("ip=[fd00::1]:::255.255.255.0", "has no netmask in its fourth field"),
            ("ip=10.0.0.1::", "has three fields: two (LINK:dhcp), or four and more, are needed"),
            ("ip=[fd00::1:::64", "has a bracket without the other one"),
            ("ip=[fd00::1]x:::64", "has a bracket without the other one"),
            ("vlan=eth0.5000:eth0", "ends in no number of a VLAN before the colon"),
            ("vlan=eth0.5", "names no link below: NAME:LINK"),
            ("bond=bond0", "names no links: NAME:LINK,LINK:OPTION=VALUE,…:MTU"),
            ("bond=bond0:eth0::x", "has no number of bytes in its fourth field"),
        ] {
            let found = line(&alloc::format!("{text} ip=10.0.0.9:::24"));
            assert_eq!(found.faults.len(), 1, "{text}: {:?}", found.faults);
            assert_eq!(found.faults[0].to_string(), alloc::format!("{text} {wanted}"));
            assert_eq!(found.statics().count(), 1, "{text}");
        }
        let found = line("ip=eth0.5000:dhcp");
        assert_eq!(found.faults[0].to_string(), "ip=eth0.5000 names a link that ends in no number of a VLAN");
    }
}
