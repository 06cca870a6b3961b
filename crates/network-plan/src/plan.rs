//! What every link is to be, read from sections and documents.
//!
//! Owns: names of links that have none of their own, which link a selector or a further name means, members and what they give up,
//! and that a card that nothing names asks DHCP.
//! Order: the further names of links come first, since all else may use them; then sections, then documents, which win; members last,
//! since their own addresses do not count.
//! Fails by: [`Plan::faults`], a sentence for each part that cannot be brought about; the rest holds.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::cmdline::NodeParameters;
use config::documents::{
    Document, EthernetConfig, LinkAddress, LinkAliasConfig, LinkRoute, RoutingRuleConfig, RuleAction,
    VlanMode,
};
use config::schema::GoDuration;
use config::v1alpha1::{self, DeviceSelector, DhcpOptions, HostDns, Interface, Vip};
use config::{Config, Secret, hardware_bytes as hardware, routing_table as table};
use network_line::Line;

use crate::link::{DHCP_METRIC, HOST_DNS_ADDRESS, Key, MAIN_TABLE, Peer, Prefix, Wireguard, prefix};
use crate::{
    Dhcp, Dhcp6, Ethernet, Firewall, Kind, Link, Present, Route, RouteKind, Rule, bond, firewall, select,
};

/// Metric of a section's route that names none; documents have another one.
const SECTION_METRIC: u32 = 10;
/// The same of a document's route.
const DOCUMENT_METRIC: u32 = 1024;
/// The longest name that the kernel gives a link, in bytes.
const MAX_NAME_BYTES: usize = 15;
/// Of a parent's name that is too long for its VLANs: so much stays, and so much of its digest follows.
const KEPT_BYTES: usize = 3;
const DIGEST_BYTES: usize = 3;
/// Loopback is a link of every machine.
const LOOPBACK: &str = "lo";

/// What the network is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// By name. Links that are not here are left alone.
    pub links: BTreeMap<String, Link>,
    /// Addresses that control plane nodes share, with their links: one of the nodes has each at a time. Such a link is otherwise
    /// as it would be without.
    pub shared: Vec<(String, IpAddr)>,
    /// Names that the configuration gives to links that the machine has, by the kernel's name.
    pub aliases: BTreeMap<String, String>,
    /// In the order of the documents.
    pub rules: Vec<Rule>,
    /// Who may come in; `None`: every sender.
    pub firewall: Option<Firewall>,
    /// What cannot be brought about, for people.
    pub faults: Vec<String>,
}

/// Reads the kernel's parameters, and a configuration, which goes before them. `documents` are those beside the section that
/// `config` holds already.
#[must_use]
pub fn plan(
    parameters: &NodeParameters,
    config: Option<&Config>,
    documents: &[Document],
    present: &[Present],
) -> Plan {
    let mut reading = Reading { present, ..Reading::default() };
    for document in documents {
        if let Document::LinkAliasConfig(document) = document {
            reading.alias(document);
        }
    }
    for ignored in &parameters.ignored_links {
        let real = reading.real(ignored);
        reading.ignored.insert(real);
    }
    reading.line(&parameters.network);
    let entries = config.map(|config| config.machine.network.interfaces.as_slice()).unwrap_or_default();
    for (index, entry) in entries.iter().enumerate() {
        reading.entry(entry, &format!("machine.network.interfaces[{index}]"));
    }
    for document in documents {
        reading.document(document);
    }
    let features = config.and_then(|config| config.machine.features.as_ref());
    reading.host_dns(features.and_then(|features| features.host_dns.as_ref()));
    reading.plan.firewall = firewall::of_documents(config, documents);
    reading.finish()
}

/// The name of a VLAN that has none of its own: `eth0.100`. Of a parent with a long name a part stands for the whole.
#[must_use]
pub fn vlan_name(parent: &str, id: u16) -> String {
    let name = format!("{parent}.{id}");
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, parent.as_bytes());
    let digest: String =
        digest.as_ref().iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect();
    let kept: String = parent.chars().filter(char::is_ascii).take(KEPT_BYTES).collect();
    format!("{kept}{digest}.{id}")
}

/// [`Common`] of a document: each kind is a type of its own.
macro_rules! common {
    ($document:ident) => {
        Common {
            name: &$document.name,
            up: $document.up,
            mtu: $document.mtu,
            multicast: $document.multicast,
            addresses: &$document.addresses,
            routes: &$document.routes,
        }
    };
}

#[derive(Default)]
struct Reading<'a> {
    present: &'a [Present],
    plan: Plan,
    ignored: BTreeSet<String>,
    /// Members and the link that they are members of; and whether they keep their addresses.
    members: Vec<(String, String, bool)>,
}

impl Reading<'_> {
    /// The kernel's name of a link that is meant by this one: its own, one that the configuration gives it, or a further one.
    fn real(&self, name: &str) -> String {
        let given = self.plan.aliases.iter().find(|(_, alias)| *alias == name).map(|(real, _)| real);
        let further = |link: &&Present| link.alt_names.iter().any(|alt| alt == name);
        let real = match self.present.iter().any(|link| link.name == name) {
            true => None,
            false => given.or_else(|| self.present.iter().find(further).map(|link| &link.name)),
        };
        real.map_or(name, String::as_str).to_owned()
    }

    /// A name is for one link: a config that means several by it would configure any of them.
    fn alias(&mut self, document: &LinkAliasConfig) {
        let name = &document.name;
        let fault = match select::named(&document.selector.expression, self.present) {
            Ok(found) => match found[..] {
                [link] if self.present.iter().all(|other| other.name != *name) => {
                    if let Some(other) = self.plan.aliases.get(&link.name) {
                        format!("{} is {other} already", link.name)
                    } else {
                        self.plan.aliases.insert(link.name.clone(), name.clone());
                        return;
                    }
                }
                [_] => "a link has this name already; write another one".to_owned(),
                [] => "no card has these properties".to_owned(),
                [..] => {
                    let names: Vec<_> = found.iter().map(|link| link.name.as_str()).collect();
                    format!("these properties are those of {}; a name is for one card", names.join(" and "))
                }
            },
            Err(fault) => fault.to_string(),
        };
        self.fault(format!("LinkAliasConfig {name}: {fault}"));
    }

    fn link(&mut self, name: &str) -> &mut Link {
        let new = || Link { name: name.to_owned(), ..Link::default() };
        self.plan.links.entry(name.to_owned()).or_insert_with(new)
    }

    fn configured(&mut self, name: &str) -> &mut Link {
        let link = self.link(name);
        link.is_configured = true;
        link
    }

    fn fault(&mut self, fault: String) {
        if !self.plan.faults.contains(&fault) {
            self.plan.faults.push(fault);
        }
    }

    fn selected(&mut self, selector: &DeviceSelector, field: &str) -> Vec<String> {
        let fitting = self.present.iter().filter(|link| select::fits(selector, link));
        let names: Vec<String> = fitting.map(|link| link.name.clone()).collect();
        if names.is_empty() {
            self.fault(format!("{field}: no link has these properties"));
        }
        names
    }

    fn line(&mut self, line: &Line) {
        for fault in &line.faults {
            self.fault(format!("kernel parameter {fault}"));
        }
        for vlan in &line.vlans {
            let kind = Kind::Vlan { parent: self.real(&vlan.parent), id: vlan.id, is_service: false };
            self.link(&vlan.name).kind = Some(kind);
        }
        for bond in &line.bonds {
            let options = bond::of_line(&bond.options).unwrap_or_else(|fault| {
                self.fault(format!("kernel parameter bond={}: {fault}", bond.name));
                Vec::new()
            });
            let primary =
                bond.options.iter().find(|(name, _)| name == "primary").map(|(_, link)| link.clone());
            let link = self.link(&bond.name);
            (link.kind, link.mtu) = (Some(Kind::Bond { options, primary }), bond.mtu);
            self.join(bond.members.clone(), &bond.name, false);
        }
        for address in &line.addresses {
            match address {
                network_line::Address::Auto { link, method } => match method.as_str() {
                    "" | "off" | "none" => {}
                    "dhcp" | "on" | "any" | "both" => {
                        self.link_of_line(link).dhcp.get_or_insert_default();
                    }
                    "dhcp6" => {
                        self.link_of_line(link).dhcp6.get_or_insert_default();
                    }
                    other => self.fault(format!(
                        "kernel parameter ip={link}:{other}: only `dhcp` and `dhcp6` are known"
                    )),
                },
                network_line::Address::Static(address) => {
                    let link = self.link_of_line(&address.link);
                    link.addresses.push((address.address, address.prefix));
                    link.routes.extend(address.gateway.and_then(|gateway| {
                        Some(Route { source: None, ..route("", Some(gateway), DOCUMENT_METRIC)? })
                    }));
                }
            }
        }
    }

    fn host_dns(&mut self, settings: Option<&HostDns>) {
        if settings.is_some_and(HostDns::serves_pods) {
            self.link(LOOPBACK).addresses.push((HOST_DNS_ADDRESS.into(), 32));
        }
    }

    /// A link that has no name on the command line is the first card.
    fn link_of_line(&mut self, name: &str) -> &mut Link {
        let cards = self.present.iter().filter(|link| link.is_physical).map(|link| link.name.as_str());
        let first = cards.min().unwrap_or_default().to_owned();
        let real = if name.is_empty() { first } else { self.real(name) };
        self.link(&real)
    }

    fn entry(&mut self, entry: &Interface, field: &str) {
        let names = match (&entry.device_selector, entry.interface.is_empty()) {
            (Some(selector), true) => self.selected(selector, &format!("{field}.deviceSelector")),
            _ => vec![self.real(&entry.interface)],
        };
        for name in names.iter().filter(|name| !name.is_empty()) {
            if entry.ignore {
                self.ignored.insert(name.clone());
            } else {
                self.named_entry(entry, name, field);
            }
        }
    }

    fn named_entry(&mut self, entry: &Interface, name: &str, field: &str) {
        self.share(name, entry.vip.as_ref());
        let primary = entry.bond.as_ref().map(|bond| self.real(&bond.primary));
        let link = self.configured(name);
        if entry.uses_dhcp() {
            section_dhcp(link, entry.dhcp_options.as_ref());
        }
        link.mtu = given(entry.mtu).or(link.mtu);
        link.addresses.extend(entry.static_addresses().filter_map(prefix));
        link.routes.extend(entry.routes.iter().filter_map(section_route));
        if entry.dummy {
            link.kind = Some(Kind::Dummy);
        }
        if let Some(settings) = &entry.bond {
            let primary = primary.filter(|primary| !primary.is_empty());
            link.kind = Some(Kind::Bond { options: bond::of_section(settings), primary });
            let mut members = settings.interfaces.clone();
            for (index, selector) in settings.device_selectors.iter().enumerate() {
                members.extend(self.selected(selector, &format!("{field}.bond.deviceSelectors[{index}]")));
            }
            self.join(members, name, false);
        }
        if let Some(settings) = &entry.bridge {
            let stp = settings.stp.as_ref().is_some_and(|stp| stp.enabled == Some(true));
            let vlan_filtering = settings.vlan.as_ref().is_some_and(|vlan| vlan.filtering == Some(true));
            self.link(name).kind = Some(Kind::Bridge { stp, vlan_filtering });
            self.join(settings.interfaces.clone(), name, false);
        }
        if let Some(port) = entry.bridge_port.as_ref().filter(|port| !port.master.is_empty()) {
            self.join(vec![name.to_owned()], &self.real(&port.master), false);
        }
        if let Some(settings) = &entry.wireguard {
            let peers = settings.peers.iter().filter_map(|peer| {
                let keepalive = peer.persistent_keepalive_interval;
                tunnel_peer(&peer.public_key, None, &peer.endpoint, keepalive, &peer.allowed_ips)
            });
            self.link(name).kind = Some(Kind::Wireguard(Wireguard {
                private_key: settings.private_key.clone(),
                listen_port: (settings.listen_port != 0).then_some(settings.listen_port),
                firewall_mark: given(settings.firewall_mark),
                peers: peers.collect(),
            }));
        }
        for vlan in &entry.vlans {
            let link = self.configured(&vlan_name(name, vlan.vlan_id));
            link.kind = Some(Kind::Vlan { parent: name.to_owned(), id: vlan.vlan_id, is_service: false });
            if vlan.dhcp == Some(true) {
                section_dhcp(link, vlan.dhcp_options.as_ref());
            }
            link.mtu = given(vlan.mtu).or(link.mtu);
            let one = (!vlan.cidr.is_empty()).then_some(&vlan.cidr);
            link.addresses.extend(one.into_iter().chain(&vlan.addresses).filter_map(|text| prefix(text)));
            link.routes.extend(vlan.routes.iter().filter_map(section_route));
            self.share(&vlan_name(name, vlan.vlan_id), vlan.vip.as_ref());
        }
    }

    fn share(&mut self, link: &str, vip: Option<&Vip>) {
        let address = vip.and_then(|vip| vip.ip.parse().ok());
        self.plan.shared.extend(address.map(|address| (link.to_owned(), address)));
    }

    fn document(&mut self, document: &Document) {
        match document {
            // Addresses, routes and size are in the section already.
            Document::LinkConfig(d) => {
                let link = self.configured(&self.real(&d.name));
                link.priorities.extend(priorities(&d.addresses));
                link.is_down = d.up == Some(false);
                link.multicast = d.multicast;
                let placed = link.routes.iter().enumerate().map(|(place, route)| (route.way(), place));
                // Of several the first one.
                let places: BTreeMap<_, _> = placed.rev().collect();
                for route in d.routes.iter().filter_map(document_route) {
                    if let Some(place) = places.get(&route.way()) {
                        link.routes[*place] = route;
                    }
                }
            }
            Document::DummyLinkConfig(d) => {
                self.made(Kind::Dummy, common!(d)).hardware = hardware(&d.hardware_addr);
            }
            Document::VLANConfig(d) => {
                let is_service = d.vlan_mode == Some(VlanMode::Dot1ad);
                let kind = Kind::Vlan { parent: self.real(&d.parent), id: d.vlan_id, is_service };
                self.made(kind, common!(d));
            }
            Document::BondConfig(d) => {
                let kind = Kind::Bond { options: bond::of_document(d), primary: None };
                self.made(kind, common!(d)).hardware = hardware(&d.hardware_addr);
                self.join(d.links.clone(), &d.name, false);
            }
            Document::BridgeConfig(d) => {
                let stp = d.stp.as_ref().is_some_and(|stp| stp.enabled == Some(true));
                let vlan_filtering = d.vlan.as_ref().is_some_and(|vlan| vlan.filtering == Some(true));
                let kind = Kind::Bridge { stp, vlan_filtering };
                self.made(kind, common!(d)).hardware = hardware(&d.hardware_addr);
                self.join(d.links.clone(), &d.name, false);
            }
            Document::VRFConfig(d) => {
                let Some(table) = table(&d.table) else {
                    return self.fault(format!("VRFConfig {}: `{}` is no routing table", d.name, d.table));
                };
                let kind = Kind::Vrf { table };
                self.made(kind, common!(d)).hardware = hardware(&d.hardware_addr);
                self.join(d.links.clone(), &d.name, true);
            }
            Document::WireguardConfig(d) => {
                let peers = d.peers.iter().filter_map(|peer| {
                    let keepalive = peer.persistent_keepalive_interval;
                    let shared = peer.preshared_key.clone().filter(|key| !key.is_empty());
                    tunnel_peer(&peer.public_key, shared, &peer.endpoint, keepalive, &peer.allowed_ips)
                });
                let kind = Kind::Wireguard(Wireguard {
                    private_key: d.private_key.clone(),
                    listen_port: d.listen_port,
                    firewall_mark: d.firewall_mark,
                    peers: peers.collect(),
                });
                self.made(kind, common!(d));
            }
            Document::Layer2VIPConfig(d) => {
                let link = self.real(&d.link);
                self.plan.shared.extend(d.name.parse().ok().map(|address| (link, address)));
            }
            Document::VethConfig(d) => {
                let Some(other) = &d.peer else { return };
                let kind = |peer: &str, is_second| Kind::Veth { peer: peer.to_owned(), is_second };
                self.made(kind(&other.name, false), common!(d));
                self.made(kind(&d.name, true), common!(other));
            }
            Document::DHCPv4Config(d) => {
                let settings = Dhcp {
                    metric: d.route_metric.unwrap_or(DHCP_METRIC),
                    takes_hostname: d.ignore_hostname != Some(true),
                    takes_routes: d.ignore_routes != Some(true),
                    identifier: d.client_identifier.unwrap_or_default(),
                    duid: bytes(&d.duid_raw),
                };
                self.configured(&self.real(&d.name)).dhcp = Some(settings);
            }
            Document::DHCPv6Config(d) => {
                let settings = Dhcp6 {
                    metric: d.route_metric.unwrap_or(DHCP_METRIC),
                    tells_hostname: d.ignore_hostname != Some(true),
                    duid: bytes(&d.duid_raw),
                };
                self.configured(&self.real(&d.name)).dhcp6 = Some(settings);
            }
            Document::EthernetConfig(d) => {
                self.configured(&self.real(&d.name)).ethernet = Some(ethernet(d));
            }
            Document::RoutingRuleConfig(d) => self.rule(d),
            Document::BlackholeRouteConfig(d) => {
                let Some(destination) = prefix(&d.name) else { return };
                let route = Route {
                    destination,
                    gateway: None,
                    source: None,
                    metric: d.metric.unwrap_or(DOCUMENT_METRIC),
                    mtu: None,
                    table: MAIN_TABLE,
                    kind: RouteKind::Blackhole,
                };
                self.link(LOOPBACK).routes.push(route);
            }
            _ => {}
        }
    }

    fn made(&mut self, kind: Kind, common: Common<'_>) -> &mut Link {
        let link = self.configured(common.name);
        link.kind = Some(kind);
        link.is_down = common.up == Some(false);
        link.mtu = common.mtu.or(link.mtu);
        link.multicast = common.multicast;
        link.addresses.extend(common.addresses.iter().filter_map(|address| prefix(&address.address)));
        link.priorities.extend(priorities(common.addresses));
        link.routes.extend(common.routes.iter().filter_map(document_route));
        link
    }

    fn rule(&mut self, d: &RoutingRuleConfig) {
        let action = match d.action.unwrap_or_default() {
            RuleAction::Unicast => RouteKind::Unicast,
            RuleAction::Blackhole => RouteKind::Blackhole,
            RuleAction::Unreachable => RouteKind::Unreachable,
            RuleAction::Prohibit => RouteKind::Prohibit,
        };
        let table = if d.table.is_empty() { Some(MAIN_TABLE) } else { table(&d.table) };
        let (Ok(priority), Some(table)) = (d.name.parse(), table) else {
            let fault = format!("RoutingRuleConfig {}: `{}` is no routing table", d.name, d.table);
            return self.fault(fault);
        };
        let (source, destination) = (prefix(&d.src), prefix(&d.dst));
        let named = source.or(destination).map(|(address, _)| address.is_ipv6());
        // Without an address it is for both.
        for is_v6 in [false, true].into_iter().filter(|is_v6| named.is_none_or(|named| named == *is_v6)) {
            self.plan.rules.push(Rule {
                priority,
                is_v6,
                source,
                destination,
                input: self.real(&d.iif_name),
                output: self.real(&d.oif_name),
                mark: d.fw_mark,
                mask: d.fw_mask,
                table,
                action,
            });
        }
    }

    fn join(&mut self, members: Vec<String>, controller: &str, keeps_addresses: bool) {
        let named = members.iter().map(|member| (self.real(member), controller.to_owned(), keeps_addresses));
        let named: Vec<_> = named.collect();
        self.members.extend(named);
    }

    fn finish(mut self) -> Plan {
        for (member, controller, keeps_addresses) in std::mem::take(&mut self.members) {
            let link = self.link(&member);
            match &link.controller {
                Some(other) if *other != controller => {
                    let fault = format!("{member} cannot be a member of {controller}: it is one of {other}");
                    self.fault(fault);
                    continue;
                }
                _ => link.controller = Some(controller),
            }
            if !keeps_addresses {
                (link.addresses, link.routes, link.dhcp, link.dhcp6) = Default::default();
            }
        }
        for link in self.plan.links.values_mut() {
            once(&mut link.addresses, |address| *address);
            once(&mut link.routes, Route::way);
        }
        for present in self.present {
            let is_named = self.plan.links.contains_key(&present.name);
            if present.name == LOOPBACK {
                self.link(LOOPBACK);
            } else if present.is_physical && !is_named {
                self.link(&present.name).dhcp = Some(Dhcp::default());
            }
        }
        self.plan.shared.retain(|(name, _)| !self.ignored.contains(name));
        self.plan.links.retain(|name, _| !name.is_empty() && !self.ignored.contains(name));
        self.plan
    }
}

fn priorities(addresses: &[LinkAddress]) -> impl Iterator<Item = (IpAddr, u32)> {
    addresses.iter().filter_map(|entry| Some((prefix(&entry.address)?.0, entry.route_priority?)))
}

/// Keeps the last of those that are the same: what the configuration says.
fn once<T, K: Ord>(list: &mut Vec<T>, key: impl Fn(&T) -> K) {
    let mut kept: Vec<T> = Vec::with_capacity(list.len());
    let mut places = BTreeMap::new();
    for one in std::mem::take(list) {
        match places.entry(key(&one)) {
            Entry::Occupied(place) => kept[*place.get()] = one,
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(one);
            }
        }
    }
    *list = kept;
}

/// What all documents of links have.
struct Common<'d> {
    name: &'d str,
    up: Option<bool>,
    mtu: Option<u32>,
    multicast: Option<bool>,
    addresses: &'d [LinkAddress],
    routes: &'d [LinkRoute],
}

impl Route {
    /// Where it leads, and how: of several that are the same here only one can be meant.
    fn way(&self) -> (Prefix, Option<IpAddr>, u32) {
        (self.destination, self.gateway, self.metric)
    }
}

fn given(number: u32) -> Option<u32> {
    (number != 0).then_some(number)
}

fn ethernet(d: &EthernetConfig) -> Ethernet {
    let named = |all: &[(&str, Option<u32>)]| {
        let given = all.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?)));
        given.collect::<BTreeMap<String, u32>>()
    };
    let rings = d.rings.as_ref().map(|rings| {
        named(&[
            ("rx", rings.rx),
            ("tx", rings.tx),
            ("rx-mini", rings.rx_mini),
            ("rx-jumbo", rings.rx_jumbo),
            ("rx-buf-len", rings.rx_buf_len),
            ("cqe-size", rings.cqe_size),
            ("tx-push", rings.tx_push.map(u32::from)),
            ("rx-push", rings.rx_push.map(u32::from)),
            ("tx-push-buf-len", rings.tx_push_buf_len),
            ("tcp-data-split", rings.tcp_data_split.map(u32::from)),
        ])
    });
    let channels = d.channels.as_ref().map(|channels| {
        let (rx, tx) = (channels.rx, channels.tx);
        named(&[("rx", rx), ("tx", tx), ("other", channels.other), ("combined", channels.combined)])
    });
    Ethernet {
        features: d.features.clone(),
        rings: rings.unwrap_or_default(),
        channels: channels.unwrap_or_default(),
        wake_on_lan: (!d.wake_on_lan.is_empty()).then(|| d.wake_on_lan.clone()),
    }
}

fn tunnel_peer(
    public_key: &str,
    preshared_key: Option<Secret>,
    endpoint: &str,
    keepalive: Option<GoDuration>,
    allowed: &[String],
) -> Option<Peer> {
    let public_key: Key = STANDARD.decode(public_key).ok()?.try_into().ok()?;
    let seconds = keepalive.map_or(0, |keepalive| keepalive.0.as_secs());
    Some(Peer {
        public_key,
        preshared_key,
        endpoint: (!endpoint.is_empty()).then(|| endpoint.to_owned()),
        keepalive_seconds: u16::try_from(seconds).unwrap_or(u16::MAX),
        allowed: allowed.iter().filter_map(|text| prefix(text)).collect(),
    })
}

fn section_dhcp(link: &mut Link, options: Option<&DhcpOptions>) {
    if let Some(options) = options.filter(|options| options.ipv6 == Some(true)) {
        let metric = given(options.route_metric).unwrap_or(DHCP_METRIC);
        link.dhcp6 = Some(Dhcp6 { metric, duid: bytes(&options.duidv6), ..Dhcp6::default() });
    }
    if options.and_then(|options| options.ipv4) == Some(false) {
        return;
    }
    let settings = link.dhcp.get_or_insert_default();
    settings.metric = options.and_then(|options| given(options.route_metric)).unwrap_or(settings.metric);
}

/// Bytes in hexadecimal, with colons between or without; validation refuses anything else.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|digit| *digit != b':').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks_exact(2).filter_map(byte).collect()
}

fn section_route(entry: &v1alpha1::Route) -> Option<Route> {
    let metric = given(entry.metric).unwrap_or(SECTION_METRIC);
    let source = entry.source.parse().ok();
    let gateway = entry.gateway.parse().ok();
    Some(Route { source, mtu: given(entry.mtu), ..route(&entry.network, gateway, metric)? })
}

fn document_route(entry: &LinkRoute) -> Option<Route> {
    let metric = entry.metric.unwrap_or(DOCUMENT_METRIC);
    let kind = match entry.kind.as_str() {
        "" | "unicast" => RouteKind::Unicast,
        "blackhole" => RouteKind::Blackhole,
        "unreachable" => RouteKind::Unreachable,
        "prohibit" => RouteKind::Prohibit,
        _ => return None,
    };
    let table = if entry.table.is_empty() { MAIN_TABLE } else { table(&entry.table)? };
    let (source, mtu) = (entry.source, entry.mtu);
    Some(Route { source, mtu, table, kind, ..route(&entry.destination, entry.gateway, metric)? })
}

/// A gateway of zeros is none. Without a destination a route leads everywhere.
fn route(destination: &str, gateway: Option<IpAddr>, metric: u32) -> Option<Route> {
    let gateway = gateway.filter(|gateway| !gateway.is_unspecified());
    let destination = match (destination, gateway) {
        ("", Some(IpAddr::V6(_))) => (IpAddr::from([0_u16; 8]), 0),
        ("", _) => (IpAddr::from([0_u8; 4]), 0),
        (text, _) => prefix(text)?,
    };
    let (source, mtu, table, kind) = (None, None, MAIN_TABLE, RouteKind::Unicast);
    Some(Route { destination, gateway, source, metric, mtu, table, kind })
}

#[cfg(test)]
#[path = "plan_alias_tests.rs"]
mod alias_tests;
#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
