//! The firewall of the documents: which senders may come in where.
//!
//! Owns: what the rules of all documents mean together. A sender that a rule leaves out of its network is no sender of that
//! rule; another rule of the same port may let it in.
//! Does not: know chains and packets: networkd does.

use std::net::IpAddr;

use config::Config;
use config::documents::{
    Document, FirewallAction, IngressRule, NetworkDefaultActionConfig, NetworkRuleConfig, PortProtocol,
};
use config::own::Vrrp;

use crate::link::{Prefix, prefix};

/// The port of the node's API.
pub const API_PORT: u16 = 50000;
/// Ports of etcd: for clients, for other members, for measurements.
pub const ETCD_PORTS: (u16, u16) = (2379, 2381);
/// Networks of pods and services of a cluster whose configuration names none.
const DEFAULT_NETWORKS: [&str; 2] = ["10.244.0.0/16", "10.96.0.0/12"];

/// What is let in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Firewall {
    /// What no rule names is dropped.
    pub blocks: bool,
    /// Networks of pods and services, whose packets are let in.
    pub cluster: Vec<Prefix>,
    /// The API is open to every sender: no rule names its port.
    pub opens_api: bool,
    /// Packets of VRRP are let in: the node takes part in a virtual router.
    pub opens_vrrp: bool,
    /// Who may reach etcd on this node, and no other sender; goes before everything else.
    pub etcd: Option<PortRule>,
    /// In the order of the documents.
    pub rules: Vec<PortRule>,
}

/// Ports that some may reach, and all others may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRule {
    /// Its name.
    pub name: String,
    /// The protocol.
    pub protocol: PortProtocol,
    /// First and last; none for protocols without ports.
    pub ports: Vec<(u16, u16)>,
    /// Who may.
    pub sources: Vec<Prefix>,
}

/// `None`: no document says anything, and everything comes in.
pub(crate) fn of_documents(config: Option<&Config>, documents: &[Document]) -> Option<Firewall> {
    let mut found = None;
    for document in documents {
        match document {
            Document::NetworkDefaultActionConfig(NetworkDefaultActionConfig { ingress, .. }) => {
                let firewall: &mut Firewall = found.get_or_insert_default();
                firewall.blocks = *ingress == Some(FirewallAction::Block);
            }
            Document::NetworkRuleConfig(rule) => {
                found.get_or_insert_default().rules.push(of_document(rule));
            }
            _ => {}
        }
    }
    let mut firewall = found?;
    let is_api = |rule: &PortRule| {
        let names_it = rule.ports.iter().any(|(first, last)| (*first..=*last).contains(&API_PORT));
        rule.protocol == PortProtocol::Tcp && names_it
    };
    firewall.opens_api = !firewall.rules.iter().any(is_api);
    firewall.cluster = cluster_networks(config);
    firewall.opens_vrrp = !Vrrp::of(documents).is_empty();
    Some(firewall)
}

/// Closes etcd's ports to all senders but these, unless a rule of a document names one of the ports.
#[must_use]
pub fn close_etcd(firewall: Option<Firewall>, peers: &[IpAddr]) -> Firewall {
    let mut firewall = firewall.unwrap_or_default();
    let (first, last) = ETCD_PORTS;
    let is_etcd_s = |rule: &PortRule| {
        rule.protocol == PortProtocol::Tcp
            && rule.ports.iter().any(|range| range.0 <= last && first <= range.1)
    };
    if !firewall.rules.iter().any(is_etcd_s) {
        let whole = |address: &IpAddr| (*address, if address.is_ipv4() { 32 } else { 128 });
        firewall.etcd = Some(PortRule {
            name: "etcd".to_owned(),
            protocol: PortProtocol::Tcp,
            ports: vec![ETCD_PORTS],
            sources: peers.iter().map(whole).collect(),
        });
    }
    firewall
}

/// Networks of pods and services.
#[must_use]
pub fn cluster_networks(config: Option<&Config>) -> Vec<Prefix> {
    let network = config.and_then(|config| config.cluster.network.as_ref());
    let named = network.map(|network| [network.pod_subnets.as_slice(), &network.service_subnets].concat());
    let named = named.unwrap_or_default();
    let default = DEFAULT_NETWORKS.map(str::to_owned).to_vec();
    if named.is_empty() { default } else { named }.iter().filter_map(|text| prefix(text)).collect()
}

fn of_document(rule: &NetworkRuleConfig) -> PortRule {
    let ports = rule.port_selector.ports.iter().filter_map(|text| ports(text));
    PortRule {
        name: rule.name.clone(),
        protocol: rule.port_selector.protocol.unwrap_or_default(),
        ports: ports.collect(),
        sources: rule.ingress.iter().flat_map(sources).collect(),
    }
}

/// `10250`, `8000-9000`
fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

fn sources(rule: &IngressRule) -> Vec<Prefix> {
    let Some(network) = prefix(&rule.subnet) else { return Vec::new() };
    match prefix(&rule.except) {
        Some(hole) => without(network, hole),
        None => vec![network],
    }
}

/// The parts of a network that are not in a hole: one for each bit that the hole's prefix is longer.
fn without(network: Prefix, hole: Prefix) -> Vec<Prefix> {
    let same_family = network.0.is_ipv4() == hole.0.is_ipv4();
    if !same_family || !contains(network, hole.0) && !contains(hole, network.0) {
        return vec![network];
    }
    let flipped = |length: u8| (flip(hole.0, length - 1), length);
    (network.1 + 1..=hole.1).map(flipped).map(|(address, length)| (masked(address, length), length)).collect()
}

/// Whether an address is in a network.
#[must_use]
pub fn contains((network, length): Prefix, address: IpAddr) -> bool {
    masked(address, length) == masked(network, length)
}

fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        // As if the address stood at the front of a longer one.
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 96),
        IpAddr::V6(address) => (address.to_bits(), 0),
    }
}

fn address(bits: u128, shift: u32) -> IpAddr {
    match u32::try_from(bits >> 96) {
        Ok(short) if shift > 0 => IpAddr::V4(short.into()),
        _ => IpAddr::V6(bits.into()),
    }
}

fn masked(of: IpAddr, length: u8) -> IpAddr {
    let (all, shift) = bits(of);
    let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length.into())).unwrap_or(0);
    address(all & mask, shift)
}

/// With the other bit at this place, counted from the front.
fn flip(of: IpAddr, at: u8) -> IpAddr {
    let (all, shift) = bits(of);
    address(all ^ (1 << (127 - u32::from(at))), shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Prefix {
        prefix(text).unwrap()
    }

    fn list(found: &[Prefix]) -> Vec<String> {
        found.iter().map(|(address, length)| format!("{address}/{length}")).collect()
    }

    #[test]
    fn a_network_without_a_part_of_it_is_several() {
        for (of, hole, wanted) in [
            ("10.0.0.0/30", "10.0.0.2/32", &["10.0.0.0/31", "10.0.0.3/32"][..]),
            ("10.0.0.0/8", "10.128.0.0/9", &["10.0.0.0/9"]),
            ("10.0.0.0/8", "11.0.0.1/32", &["10.0.0.0/8"]),
            ("10.0.0.0/8", "10.0.0.0/8", &[]),
            ("10.0.0.0/16", "10.0.0.0/8", &[]),
            ("10.0.0.0/8", "fd00::/8", &["10.0.0.0/8"]),
            ("fd00::/126", "fd00::1/128", &["fd00::2/127", "fd00::/128"]),
            ("0.0.0.0/0", "0.0.0.0/1", &["128.0.0.0/1"]),
        ] {
            assert_eq!(list(&without(network(of), network(hole))), wanted, "{of} without {hole}");
        }
        // Every address is in the rest or in the hole.
        let (of, hole) = (network("10.0.0.0/28"), network("10.0.0.8/30"));
        let rest = without(of, hole);
        for last in 0..16 {
            let address = IpAddr::from([10, 0, 0, last]);
            let found = rest.iter().filter(|part| contains(**part, address)).count();
            assert_eq!(found, usize::from(!contains(hole, address)), "{address}");
        }
    }

    fn firewall(documents: &str) -> Option<Firewall> {
        let head = "version: v1alpha1\nmachine: {token: aaaaaa.bbbbbbbbbbbbbbbb}\ncluster: {network: {podSubnets: [10.1.0.0/16], serviceSubnets: [10.2.0.0/16]}}\n";
        let loaded =
            config::load(format!("{head}{documents}").as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        of_documents(Some(&loaded.config), &loaded.documents)
    }

    #[test]
    fn documents_say_who_may_come_in() {
        assert_eq!(firewall(""), None);
        let block = "---\napiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n";
        let found = firewall(block).unwrap();
        assert!(found.blocks && found.opens_api && found.rules.is_empty());
        assert_eq!(list(&found.cluster), ["10.1.0.0/16", "10.2.0.0/16"]);
        assert!(!firewall(&block.replace("block", "accept")).unwrap().blocks);
        let rule = "---\napiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: api\nportSelector: {ports: [443, 49000-51000], protocol: tcp}\ningress: [{subnet: 10.0.0.0/30, except: 10.0.0.2/32}, {subnet: 'fd00::/8'}]\n";
        let found = firewall(rule).unwrap();
        let wanted = PortRule {
            name: "api".into(),
            protocol: PortProtocol::Tcp,
            ports: vec![(443, 443), (49000, 51000)],
            sources: ["10.0.0.0/31", "10.0.0.3/32", "fd00::/8"].map(network).to_vec(),
        };
        assert_eq!(found.rules, [wanted]);
        assert!(!found.blocks && !found.opens_api, "the rule names the API's port");
        assert!(firewall(&rule.replace("tcp", "udp")).unwrap().opens_api);
    }

    #[test]
    fn etcd_is_closed_to_all_but_its_members_unless_a_document_decides() {
        let peers = ["10.0.0.1", "fd00::1"].map(|text| text.parse().unwrap());
        let found = close_etcd(None, &peers);
        assert!(!found.blocks && found.rules.is_empty());
        let etcd = found.etcd.unwrap();
        assert_eq!(
            (list(&etcd.sources), etcd.ports),
            (vec!["10.0.0.1/32".to_owned(), "fd00::1/128".to_owned()], vec![(2379, 2381)])
        );
        // Before a member is known there is none that may.
        assert_eq!(close_etcd(None, &[]).etcd.unwrap().sources, []);
        let rule = |ports: &str, protocol: &str| {
            let rule = format!(
                "---\napiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: own\nportSelector: {{ports: [{ports}], protocol: {protocol}}}\ningress: [{{subnet: 10.0.0.0/8}}]\n"
            );
            close_etcd(firewall(&rule), &peers).etcd.is_none()
        };
        assert!(rule("2381", "tcp") && rule("2000-2379", "tcp"));
        assert!(!rule("2381", "udp") && !rule("2382", "tcp") && !rule("2378", "tcp"));
    }
}
