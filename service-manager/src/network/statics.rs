//! What the machine config says of a link: addresses, routes, MTU, and whether DHCP is asked.
//!
//! Owns: reading it ([`wanted`]), bringing a link from what was applied to what is wanted ([`change`]).
//! Does not: bonds, VLANs, WireGuard (the network's own issue).
//! Order: the old addresses go first, their routes with them; an address that stays is left alone, so that
//! connections over it survive a change of something else.
//! Fails by: one line a refusal of the kernel; the rest is applied. A wrong gateway must not cost the address.
//! Source: spec/machine-facts.md §1.3, §8.1, §8.5.

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::Config;
use futures_util::TryStreamExt;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::route::{RouteProtocol, RouteScope};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use runtime::journal::Journal;

use super::Link;

/// Metric of a static route that names none (spec/machine-facts.md §8.5).
const METRIC: u32 = 10;

/// A route of the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    /// Address and prefix length.
    pub(super) destination: (IpAddr, u8),
    /// `None`: the link itself.
    pub(super) gateway: Option<IpAddr>,
    pub(super) metric: u32,
}

/// What a link is to have besides a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Statics {
    pub(super) addresses: Vec<(IpAddr, u8)>,
    pub(super) routes: Vec<Route>,
    pub(super) mtu: Option<u32>,
}

/// What a link is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) dhcp: bool,
    pub(super) statics: Statics,
}

/// Reads the config; several entries for one link count together. `None`: the link is nobody's business.
pub(super) fn wanted(config: Option<&Config>, link: &str) -> Option<Wanted> {
    let entries: Vec<_> = config
        .iter()
        .flat_map(|config| &config.machine.network.interfaces)
        .filter(|entry| entry.interface == link)
        .collect();
    if entries.iter().any(|entry| entry.ignore) {
        return None;
    }
    let mut wanted = Wanted { dhcp: entries.is_empty(), statics: Statics::default() };
    for entry in entries {
        wanted.dhcp |= entry.uses_dhcp();
        let texts = entry.addresses.iter().chain((!entry.cidr.is_empty()).then_some(&entry.cidr));
        wanted.statics.addresses.extend(texts.filter_map(|text| address(text)));
        wanted.statics.routes.extend(entry.routes.iter().filter_map(route));
        wanted.statics.mtu = (entry.mtu != 0).then_some(entry.mtu).or(wanted.statics.mtu);
    }
    Some(wanted)
}

/// An address without a prefix length stands alone.
fn address(text: &str) -> Option<(IpAddr, u8)> {
    match text.parse::<IpAddr>() {
        Ok(address) => Some((address, if address.is_ipv4() { 32 } else { 128 })),
        Err(_) => cidr(text),
    }
}

fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    Some((address.parse().ok()?, prefix.parse().ok()?))
}

fn route(entry: &config::v1alpha1::Route) -> Option<Route> {
    let gateway = entry.gateway.parse::<IpAddr>().ok().filter(|gateway| !gateway.is_unspecified());
    let destination = match (entry.network.as_str(), gateway) {
        ("", Some(IpAddr::V6(_))) => ("::".parse().ok()?, 0),
        ("", _) => ("0.0.0.0".parse().ok()?, 0),
        (network, _) => cidr(network)?,
    };
    let metric = if entry.metric == 0 { METRIC } else { entry.metric };
    Some(Route { destination, gateway, metric })
}

/// What was applied to the links, by index.
#[derive(Default)]
pub(super) struct Applied {
    links: BTreeMap<u32, Statics>,
    /// MTU before the config changed it.
    mtu: BTreeMap<u32, u32>,
}

impl Applied {
    /// Forgets links that are gone.
    pub(super) fn retain(&mut self, links: &[Link]) {
        self.links.retain(|index, _| links.iter().any(|link| link.index == *index));
        self.mtu.retain(|index, _| links.iter().any(|link| link.index == *index));
    }

    /// Makes a link what is wanted, if it is not.
    pub(super) async fn bring(&mut self, handle: &Handle, journal: &Journal, link: &Link, wanted: &Statics) {
        let old = self.links.get(&link.index).cloned().unwrap_or_default();
        if old == *wanted {
            return;
        }
        // Noted before it is done: a refusal is said once, and tried again with the next change.
        self.links.insert(link.index, wanted.clone());
        let mut refusals = Vec::new();
        self.set_mtu(handle, link, wanted.mtu, &mut refusals).await;
        for (address, _) in old.addresses.iter().filter(|address| !wanted.addresses.contains(address)) {
            remove_address(handle, link, *address).await;
        }
        for &(address, prefix) in &wanted.addresses {
            let request = handle.address().add(link.index, address, prefix).replace();
            refusals.extend(
                request.execute().await.err().map(|e| format!("add address {address}/{prefix}: {e}")),
            );
        }
        let source = |route: &Route| source(wanted, route);
        for route in old.routes.iter().filter(|route| !wanted.routes.contains(route)) {
            if let Ok(message) = route.message(link, None) {
                // It may have gone with its address.
                let _ = handle.route().del(message).execute().await;
            }
        }
        for route in &wanted.routes {
            refusals.extend(add_route(handle, link, route, source(route)).await.err());
        }
        for refusal in &refusals {
            journal.warn(&format!("networkd: {}: {refusal}", link.name));
        }
        let list: Vec<String> =
            wanted.addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect();
        let list = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
        journal.say(&format!("networkd: {}: static addresses: {list}", link.name));
    }

    async fn set_mtu(
        &mut self,
        handle: &Handle,
        link: &Link,
        wanted: Option<u32>,
        refusals: &mut Vec<String>,
    ) {
        let mtu = match wanted {
            Some(mtu) => {
                self.mtu.entry(link.index).or_insert(link.mtu);
                mtu
            }
            None => match self.mtu.remove(&link.index) {
                Some(before) => before,
                None => return,
            },
        };
        let message = LinkUnspec::new_with_index(link.index).mtu(mtu).build();
        refusals
            .extend(handle.link().set(message).execute().await.err().map(|e| format!("set MTU {mtu}: {e}")));
    }
}

/// The address that packets over a route come from: the first static one of its family.
fn source(statics: &Statics, route: &Route) -> Option<IpAddr> {
    let same = |address: &IpAddr| address.is_ipv4() == route.destination.0.is_ipv4();
    statics.addresses.iter().map(|(address, _)| *address).find(|address| same(address) && address.is_ipv4())
}

impl Route {
    fn message(
        &self,
        link: &Link,
        source: Option<IpAddr>,
    ) -> Result<netlink_packet_route::route::RouteMessage, String> {
        let mut builder = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(self.destination.0, self.destination.1)
            .map_err(mixed)?
            .output_interface(link.index)
            .protocol(RouteProtocol::Static)
            .priority(self.metric);
        if let Some(source) = source {
            builder = builder.pref_source(source).map_err(mixed)?;
        }
        builder = match self.gateway {
            Some(gateway) => builder.gateway(gateway).map_err(mixed)?,
            None => builder.scope(RouteScope::Link),
        };
        Ok(builder.build())
    }
}

/// Addresses of two families in one route.
fn mixed(error: impl std::fmt::Debug) -> String {
    format!("make a route: {error:?}")
}

async fn add_route(
    handle: &Handle,
    link: &Link,
    route: &Route,
    source: Option<IpAddr>,
) -> Result<(), String> {
    let message = route.message(link, source)?;
    let (address, prefix) = route.destination;
    let via = route.gateway.map_or_else(|| link.name.clone(), |gateway| gateway.to_string());
    handle
        .route()
        .add(message)
        .replace()
        .execute()
        .await
        .map_err(|e| format!("add route to {address}/{prefix} via {via}: {e}"))
}

async fn remove_address(handle: &Handle, link: &Link, address: IpAddr) {
    let mut found =
        handle.address().get().set_link_index_filter(link.index).set_address_filter(address).execute();
    while let Ok(Some(message)) = found.try_next().await {
        // Someone else may have removed it in the meantime.
        let _ = handle.address().del(message).execute().await;
    }
}

/// Takes every IPv4 address off a link but these: what a client of DHCP that was ended may have left.
pub(super) async fn keep_only(handle: &Handle, link: &Link, statics: &Statics) {
    let mut found = handle.address().get().set_link_index_filter(link.index).execute();
    while let Ok(Some(message)) = found.try_next().await {
        let address = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        let stays = |address: IpAddr| statics.addresses.iter().any(|(wanted, _)| *wanted == address);
        if address.is_some_and(|address| address.is_ipv4() && !stays(address)) {
            let _ = handle.address().del(message).execute().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(interfaces: &str) -> Config {
        let text = format!(
            "version: v1alpha1\nmachine:\n  type: worker\n  token: aaaaaa.bbbbbbbbbbbbbbbb\n  network:\n    interfaces: {interfaces}\n"
        );
        config::parse(&text).unwrap_or_else(|e| panic!("{e}"))
    }

    fn of(interfaces: &str, link: &str) -> Option<Wanted> {
        wanted(Some(&config(interfaces)), link)
    }

    #[test]
    fn a_link_without_an_entry_asks_dhcp() {
        let dhcp = Some(Wanted { dhcp: true, statics: Statics::default() });
        assert_eq!(wanted(None, "eth0"), dhcp);
        assert_eq!(of("[{interface: eth1, cidr: 10.0.0.1/24}]", "eth0"), dhcp);
        let alone = of("[{interface: eth0, cidr: 10.0.0.1, addresses: ['fd00::1']}]", "eth0").unwrap();
        assert_eq!(
            alone.statics.addresses,
            [("fd00::1".parse().unwrap(), 128), ("10.0.0.1".parse().unwrap(), 32)]
        );
        assert_eq!(of("[{interface: eth0, ignore: true}]", "eth0"), None);
    }

    #[test]
    fn an_entry_says_it_all() {
        let text = "[{interface: eth0, mtu: 1400, addresses: [10.0.0.5/24], routes: [{gateway: 10.0.0.1}, {network: 10.9.0.0/16, gateway: 10.0.0.2, metric: 7}, {network: 10.8.0.0/16}]}, {interface: eth0, cidr: 'fd00::5/64'}]";
        let Wanted { dhcp, statics } = of(text, "eth0").unwrap();
        assert!(!dhcp);
        assert_eq!(statics.mtu, Some(1400));
        assert_eq!(statics.addresses, [("10.0.0.5".parse().unwrap(), 24), ("fd00::5".parse().unwrap(), 64)]);
        let routes: Vec<_> =
            statics.routes.iter().map(|r| (r.destination.1, r.gateway.is_some(), r.metric)).collect();
        assert_eq!(routes, [(0, true, 10), (16, true, 7), (16, false, 10)]);
        assert_eq!(source(&statics, &statics.routes[0]), Some("10.0.0.5".parse().unwrap()));
    }

    #[test]
    fn dhcp_and_addresses_go_together() {
        let both = of("[{interface: eth0, dhcp: true, addresses: [10.0.0.5/24]}]", "eth0").unwrap();
        assert!(both.dhcp && both.statics.addresses.len() == 1);
        let none = of("[{interface: eth0}]", "eth0").unwrap();
        assert!(!none.dhcp && none.statics == Statics::default());
    }

    #[test]
    fn every_route_can_be_said_to_the_kernel() {
        let link =
            Link { index: 2, name: "eth0".into(), hardware: vec![], up: true, carrier: true, mtu: 1500 };
        let text = "[{interface: eth0, addresses: [10.0.0.5/24], routes: [{gateway: 10.0.0.1}, {network: 10.8.0.0/16}, {gateway: 'fd00::1'}]}]";
        let statics = of(text, "eth0").unwrap().statics;
        for route in &statics.routes {
            assert!(route.message(&link, source(&statics, route)).is_ok(), "{route:?}");
        }
    }
}
