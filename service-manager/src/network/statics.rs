//! Addresses, routes, packet size and multicast of a link, as the plan has them.
//!
//! Owns: bringing a link from what was applied to what is wanted.
//! Does not: make links or move members (`made`); ask DHCP.
//! Order: the old addresses go first, their routes with them; an address that stays is left alone, so that
//! connections over it survive a change of something else.
//! Fails by: one line a refusal of the kernel; the rest is applied. A wrong gateway must not cost the address.
//! Source: rtnetlink(7).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use network_plan::link::Prefix;
use network_plan::{Route, RouteKind};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use runtime::journal::Journal;

use super::apply;
use super::batch::{self, Request};
use super::link::Link;

/// What a link is to have besides a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Statics {
    addresses: Vec<Prefix>,
    priorities: BTreeMap<IpAddr, u32>,
    routes: Vec<Route>,
    mtu: Option<u32>,
    multicast: Option<bool>,
}

impl From<&network_plan::Link> for Statics {
    fn from(link: &network_plan::Link) -> Self {
        let (addresses, routes) = (link.addresses.clone(), link.routes.clone());
        let priorities = link.priorities.clone();
        Self { addresses, priorities, routes, mtu: link.mtu, multicast: link.multicast }
    }
}

/// What was applied to the links, by index.
#[derive(Default)]
pub(super) struct Applied {
    links: BTreeMap<u32, Statics>,
    /// MTU before the config changed it.
    mtu: BTreeMap<u32, u32>,
    /// Whether it took multicast before.
    multicast: BTreeMap<u32, bool>,
}

impl Applied {
    /// Forgets links that are gone.
    pub(super) fn retain(&mut self, links: &[Link]) {
        self.links.retain(|index, _| links.iter().any(|link| link.index == *index));
        self.mtu.retain(|index, _| links.iter().any(|link| link.index == *index));
        self.multicast.retain(|index, _| links.iter().any(|link| link.index == *index));
    }

    /// Makes a link what is wanted, if it is not.
    pub(super) async fn bring(&mut self, handle: &Handle, journal: &Journal, link: &Link, wanted: &Statics) {
        if self.links.get(&link.index) == Some(wanted) {
            return;
        }
        // Noted before it is done: a refusal is said once, and tried again with the next change.
        let old = self.links.insert(link.index, wanted.clone()).unwrap_or_default();
        if old == *wanted {
            return;
        }
        let mut refusals = Vec::new();
        self.set_mtu(handle, link, wanted.mtu, &mut refusals).await;
        if let Some(on) = before(&mut self.multicast, link.index, link.multicast, wanted.multicast) {
            let message = LinkUnspec::new_with_index(link.index).multicast(on).build();
            let set = handle.link().set(message).execute().await;
            refusals.extend(set.err().map(|e| format!("switch multicast: {e}")));
        }
        for (address, _) in old.addresses.iter().filter(|address| !wanted.addresses.contains(address)) {
            apply::remove(handle, link.index, *address).await;
        }
        for &(address, prefix) in &wanted.addresses {
            let mut request = handle.address().add(link.index, address, prefix).replace();
            // Zero is the kernel's choice, also for an address that had another.
            let priority = wanted.priorities.get(&address).copied();
            if priority.is_some() || old.priorities.contains_key(&address) {
                let attribute = AddressAttribute::RoutePriority(priority.unwrap_or_default());
                request.message_mut().attributes.push(attribute);
            }
            refusals.extend(
                request.execute().await.err().map(|e| format!("add address {address}/{prefix}: {e}")),
            );
        }
        refusals.extend(bring_routes(link, &old, wanted).await);
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
        let Some(mtu) = before(&mut self.mtu, link.index, link.mtu, wanted) else { return };
        let message = LinkUnspec::new_with_index(link.index).mtu(mtu).build();
        refusals
            .extend(handle.link().set(message).execute().await.err().map(|e| format!("set MTU {mtu}: {e}")));
    }
}

/// What a link is to be set to: what is wanted, else what it had before anything was. `kept` has that of changed links.
fn before<T: Copy>(kept: &mut BTreeMap<u32, T>, index: u32, present: T, wanted: Option<T>) -> Option<T> {
    match wanted {
        Some(wanted) => {
            kept.entry(index).or_insert(present);
            Some(wanted)
        }
        None => kept.remove(&index),
    }
}

/// The address that packets over a route come from: the one that it names, or the first static one of its family.
fn source(statics: &Statics, route: &Route) -> Option<IpAddr> {
    let same = |address: &IpAddr| address.is_ipv4() == route.destination.0.is_ipv4();
    let first = statics.addresses.iter().map(|(address, _)| *address);
    let is_passed_on = route.kind == RouteKind::Unicast;
    route.source.or_else(|| first.filter(|_| is_passed_on).find(|address| same(address) && address.is_ipv4()))
}

fn message(route: &Route, link: &Link, source: Option<IpAddr>) -> Result<RouteMessage, String> {
    let mut builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(route.destination.0, route.destination.1)
        .map_err(mixed)?
        .table_id(route.table)
        .protocol(RouteProtocol::Static)
        .priority(route.metric);
    if let Some(source) = source {
        builder = builder.pref_source(source).map_err(mixed)?;
    }
    builder = match (route.kind, route.gateway) {
        (RouteKind::Unicast, Some(gateway)) => {
            builder.output_interface(link.index).gateway(gateway).map_err(mixed)?
        }
        (RouteKind::Unicast, None) => builder.output_interface(link.index).scope(RouteScope::Link),
        (RouteKind::Blackhole, _) => builder.kind(RouteType::BlackHole),
        (RouteKind::Unreachable, _) => builder.kind(RouteType::Unreachable),
        (RouteKind::Prohibit, _) => builder.kind(RouteType::Prohibit),
    };
    let mut message = builder.build();
    if let Some(mtu) = route.mtu {
        message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
    }
    Ok(message)
}

/// Addresses of two families in one route.
fn mixed(error: impl std::fmt::Debug) -> String {
    format!("make a route: {error:?}")
}

/// Takes away the routes that are no longer wanted, and adds all that are: those of an address that was another one went with it.
/// Answers what was refused.
async fn bring_routes(link: &Link, old: &Statics, wanted: &Statics) -> Vec<String> {
    // Of many new ones none is looked for.
    let known = if old.routes.is_empty() { &[][..] } else { &wanted.routes };
    let stays: BTreeSet<&Route> = known.iter().collect();
    let gone = old.routes.iter().filter(|route| !stays.contains(route));
    // It may have gone with its address.
    let removed: Vec<Request> = gone
        .filter_map(|route| Some((RouteNetlinkMessage::DelRoute(message(route, link, None).ok()?), 0)))
        .collect();
    let (mut added, mut refusals): (Vec<Request>, _) = (Vec::with_capacity(wanted.routes.len()), Vec::new());
    let mut sent = Vec::with_capacity(wanted.routes.len());
    for route in &wanted.routes {
        match message(route, link, source(wanted, route)) {
            Ok(message) => {
                added.push((RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE));
                sent.push(route);
            }
            Err(fault) => refusals.push(fault),
        }
    }
    if removed.is_empty() && added.is_empty() {
        return refusals;
    }
    let work = move || {
        batch::send(removed)?;
        batch::send(added)
    };
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other).and_then(|sent| sent);
    match done {
        Ok(refused) => {
            let named = refused.into_iter().filter_map(|(at, error)| Some((sent.get(at)?, error)));
            refusals.extend(named.map(|(route, error)| refusal(route, link, &error)));
        }
        Err(error) => refusals.push(format!("add routes: {error}")),
    }
    refusals
}

fn refusal(route: &Route, link: &Link, error: &io::Error) -> String {
    let (address, prefix) = route.destination;
    let via = route.gateway.map_or_else(|| link.name.clone(), |gateway| gateway.to_string());
    format!("add route to {address}/{prefix} via {via}: {error}")
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
    use super::super::testing::{ip, is_inside};
    use super::*;

    fn statics(interfaces: &str, link: &str) -> Statics {
        let text = format!(
            "version: v1alpha1\nmachine:\n  type: worker\n  token: aaaaaa.bbbbbbbbbbbbbbbb\n  network:\n    interfaces: {interfaces}\n"
        );
        let config = config::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        Statics::from(&network_plan::plan(&Default::default(), Some(&config), &[], &[]).links[link])
    }

    #[test]
    fn what_a_link_had_before_the_config_comes_back() {
        let mut kept = BTreeMap::new();
        assert_eq!(before(&mut kept, 2, 1500, None), None, "nothing was changed");
        assert_eq!(before(&mut kept, 2, 1500, Some(1400)), Some(1400));
        assert_eq!(before(&mut kept, 2, 1400, Some(1300)), Some(1300));
        assert_eq!(before(&mut kept, 2, 1300, None), Some(1500));
        assert_eq!(before(&mut kept, 2, 1500, None), None);
    }

    #[tokio::test]
    async fn the_route_of_an_address_has_its_priority_and_loses_it() {
        const TEST: &str = "network::statics::tests::the_route_of_an_address_has_its_priority_and_loses_it";
        if !is_inside(TEST) {
            return;
        }
        ip("link add eth0 type veth peer name eth1");
        ip("link set eth0 up");
        ip("link set eth1 up");
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let mut found = handle.link().get().match_name("eth0").execute();
        let index = found.try_next().await.unwrap().unwrap().header.index;
        let link = Link { index, name: "eth0".into(), ..Link::default() };
        let root = tempfile::tempdir().unwrap();
        let runtime = runtime::Runtime::detached(root.path().to_owned());
        let mut applied = Applied::default();
        let address: IpAddr = [10, 0, 0, 2].into();
        for priority in [Some(70), Some(71), None] {
            let priorities = priority.map(|priority| (address, priority)).into_iter().collect();
            let wanted = Statics { addresses: vec![(address, 24)], priorities, ..Statics::default() };
            applied.bring(&handle, &runtime.journal, &link, &wanted).await;
            let shown = ip("-4 route show 10.0.0.0/24");
            match priority {
                Some(priority) => assert!(shown.contains(&format!("metric {priority}")), "{shown}"),
                None => assert!(shown.contains("10.0.0.0/24") && !shown.contains("metric"), "{shown}"),
            }
            assert_eq!(shown.lines().count(), 1, "{shown}");
        }
    }

    #[test]
    fn every_route_can_be_said_to_the_kernel() {
        let link = Link { index: 2, name: "eth0".into(), ..Link::default() };
        let text = "[{interface: eth0, addresses: [10.0.0.5/24], routes: [{gateway: 10.0.0.1}, {network: 10.8.0.0/16, mtu: 1300}, {gateway: 'fd00::1'}, {network: 10.7.0.0/16, gateway: 10.0.0.1, source: 10.0.0.6}]}]";
        let statics = statics(text, "eth0");
        for route in &statics.routes {
            assert!(message(route, &link, source(&statics, route)).is_ok(), "{route:?}");
        }
        let sources =
            [0, 2, 3].map(|index| source(&statics, &statics.routes[index]).map(|it| it.to_string()));
        assert_eq!(sources, [Some("10.0.0.5".to_owned()), None, Some("10.0.0.6".to_owned())]);
        let small = message(&statics.routes[1], &link, None).unwrap();
        assert!(small.attributes.contains(&RouteAttribute::Metrics(vec![RouteMetric::Mtu(1300)])));
        let none = Route { kind: RouteKind::Blackhole, ..statics.routes[1].clone() };
        let none = message(&none, &link, None).unwrap();
        assert_eq!(none.header.kind, RouteType::BlackHole);
        assert!(!none.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::Oif(_))));
    }
}
