//! Links, addresses, routes and routing rules as resources.
//!
//! Order: the kernel is asked in one go, off the async threads; then everything is published.
//! Fails by: a list that the kernel refuses ends the service. What of a list cannot be read, and a tunnel that cannot be asked, are
//! a line each, said once; the rest is published.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::rule::RuleMessage;
use runtime::Runtime;
use runtime::store::{
    ADDRESS_STATUS, AddressStatus, LINK_STATUS, ROUTE_STATUS, RouteStatus, Spec, StoreError, WireguardStatus,
};

use super::card::Cards;
use super::dump::{DumpError, Dumped, Losses, Lost, Tables};
use super::link::Link;
use super::words::{table_name, word};
use super::{facts, link_status, rules, wireguard_status};

/// Why nothing more is published.
#[derive(Debug, thiserror::Error)]
pub(super) enum StatusError {
    /// The kernel tells nothing.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is kept from one look at the kernel to the next.
#[derive(Default)]
pub(super) struct Status {
    cards: Cards,
    said: BTreeSet<Lost>,
    said_of_tunnels: BTreeSet<String>,
}

impl Status {
    /// Reads the kernel's state, publishes it, and returns the links.
    pub(super) async fn publish(&mut self, runtime: &Runtime) -> Result<Vec<Link>, StatusError> {
        let (root, cards) = (runtime.root.clone(), std::mem::take(&mut self.cards));
        let seen = tokio::task::spawn_blocking(move || Seen::look(&root, cards));
        let mut seen = seen.await.map_err(DumpError::from)??;
        for line in seen.losses.unsaid(&mut self.said) {
            runtime.journal.warn(&format!("networkd: {line}"));
        }
        for fault in seen.faults.iter().filter(|fault| !self.said_of_tunnels.contains(*fault)) {
            runtime.journal.warn(&format!("networkd: {fault}"));
        }
        let statuses = seen.links.iter().map(|(message, link)| {
            let mut status = link_status::link_status(message, link, &seen.cards.of(link));
            status.wireguard = seen.tunnels.remove(&link.index);
            (link.name.clone(), Spec::LinkStatus(Box::new(status)))
        });
        let names: BTreeMap<u32, &str> =
            seen.links.iter().map(|(_, link)| (link.index, link.name.as_str())).collect();
        runtime.store.replace(LINK_STATUS.writer, &LINK_STATUS, statuses.collect())?;
        let addresses = seen.addresses.iter().filter_map(|message| address_status(message, &names));
        runtime.store.replace(ADDRESS_STATUS.writer, &ADDRESS_STATUS, addresses.collect())?;
        let routes = seen.routes.iter().map(|message| {
            let (id, status) = route_status(message, &names);
            (id, Spec::RouteStatus(status))
        });
        runtime.store.replace(ROUTE_STATUS.writer, &ROUTE_STATUS, routes.collect())?;
        rules::publish(runtime, &seen.rules)?;
        (self.cards, self.said_of_tunnels) = (seen.cards, seen.faults.into_iter().collect());
        Ok(seen.links.into_iter().map(|(_, link)| link).collect())
    }
}

/// The kernel's state.
struct Seen {
    links: Vec<(LinkMessage, Link)>,
    addresses: Vec<AddressMessage>,
    routes: Vec<RouteMessage>,
    rules: Vec<RuleMessage>,
    losses: Losses,
    cards: Cards,
    /// By index of the link.
    tunnels: BTreeMap<u32, WireguardStatus>,
    faults: Vec<String>,
}

impl Seen {
    /// Waits for the kernel, and for cards that are new or changed.
    fn look(root: &Path, mut cards: Cards) -> Result<Self, DumpError> {
        let tables = Tables::open()?;
        let mut losses = Losses::default();
        let links = kept(tables.links()?, &mut losses);
        let described = links.into_iter().map(|message| {
            let mut link = link_status::link(&message);
            link.device = facts::device(root, &link.name);
            (message, link)
        });
        let links: Vec<_> = described.collect();
        let addresses = kept(tables.addresses()?, &mut losses);
        let mut routes = kept(tables.routes()?, &mut losses);
        // The kernel has routes of multicast routers and of MPLS, too.
        let is_ours = |family| matches!(family, AddressFamily::Inet | AddressFamily::Inet6);
        routes.retain(|message| is_ours(message.header.address_family));
        let mut rules = kept(tables.rules(AddressFamily::Inet)?, &mut losses);
        rules.extend(kept(tables.rules(AddressFamily::Inet6)?, &mut losses));
        cards.follow(root, links.iter().map(|(_, link)| link));
        let (tunnels, faults) = wireguard_status::all(links.iter().map(|(_, link)| link));
        Ok(Self { links, addresses, routes, rules, losses, cards, tunnels, faults })
    }
}

fn kept<T>(dumped: Dumped<T>, losses: &mut Losses) -> Vec<T> {
    losses.extend(dumped.losses);
    dumped.found
}

fn address_status(message: &AddressMessage, names: &BTreeMap<u32, &str>) -> Option<(String, Spec)> {
    let index = message.header.index;
    let name = names.get(&index).copied().unwrap_or_default();
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    })?;
    let cidr = format!("{address}/{}", message.header.prefix_len);
    let status = AddressStatus {
        address: cidr.clone(),
        link_index: index,
        link_name: name.to_owned(),
        family: family(address),
        scope: word(message.header.scope),
    };
    Some((format!("{name}/{cidr}"), Spec::AddressStatus(status)))
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "inet4" } else { "inet6" }
}

fn route_status(message: &RouteMessage, names: &BTreeMap<u32, &str>) -> (String, RouteStatus) {
    let text = |address: &RouteAddress| match address {
        RouteAddress::Inet(address) => address.to_string(),
        RouteAddress::Inet6(address) => address.to_string(),
        _ => String::new(),
    };
    let header = &message.header;
    let mut status = RouteStatus {
        family: if header.address_family == AddressFamily::Inet { "inet4" } else { "inet6" },
        dst: String::new(),
        src: String::new(),
        gateway: String::new(),
        out_link_name: String::new(),
        table: table(message),
        priority: 0,
        scope: word(header.scope),
        kind: word(header.kind),
        protocol: word(header.protocol),
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => {
                status.dst = format!("{}/{}", text(to), header.destination_prefix_length)
            }
            RouteAttribute::Gateway(via) => status.gateway = text(via),
            RouteAttribute::PrefSource(from) => status.src = text(from),
            RouteAttribute::Priority(metric) => status.priority = *metric,
            RouteAttribute::Oif(index) => {
                status.out_link_name = names.get(index).copied().unwrap_or_default().to_owned();
            }
            _ => {}
        }
    }
    // A route of the same destination may be in several tables.
    let in_table = if &*status.table == "main" { String::new() } else { format!("{}/", status.table) };
    let id = format!(
        "{in_table}{}/{}/{}/{}/{}",
        status.out_link_name, status.family, status.gateway, status.dst, status.priority
    );
    (id, status)
}

/// The table that a route is in.
fn table(message: &RouteMessage) -> Box<str> {
    let number = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(number) => Some(*number),
        _ => None,
    });
    table_name(number.unwrap_or_else(|| message.header.table.into()))
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::RouteType;
    use rtnetlink::RouteMessageBuilder;

    use super::*;

    #[test]
    fn a_route_has_its_table_and_type() {
        let mut message = RouteMessageBuilder::<std::net::Ipv4Addr>::new()
            .destination_prefix([10, 0, 2, 15].into(), 32)
            .output_interface(2)
            .build();
        let names = BTreeMap::from([(2, "eth0")]);
        let (id, main) = route_status(&message, &names);
        assert_eq!((id.as_str(), main.table.as_ref()), ("eth0/inet4//10.0.2.15/32/0", "main"));
        message.header.table = 255;
        message.header.kind = RouteType::Local;
        let (id, local) = route_status(&message, &names);
        assert_eq!(id, "local/eth0/inet4//10.0.2.15/32/0");
        assert_eq!((local.table.as_ref(), local.kind.as_str()), ("local", "local"));
        message.attributes.push(RouteAttribute::Table(1000));
        assert_eq!(route_status(&message, &names).1.table.as_ref(), "1000");
    }

    /// The loopback interface is up wherever tests run, and the kernel has a local route of its address.
    #[tokio::test]
    async fn routes_has_the_local_ones_and_loopback_is_no_card() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        Status::default().publish(&runtime).await.unwrap();
        let found = runtime.store.list(&ROUTE_STATUS);
        let local = found.iter().find_map(|resource| match &resource.spec {
            Spec::RouteStatus(route) if route.dst == "127.0.0.1/32" => Some(route.clone()),
            _ => None,
        });
        let local = local.unwrap_or_else(|| panic!("{found:?}"));
        assert_eq!(
            (local.table.as_ref(), local.kind.as_str(), local.scope.as_str()),
            ("local", "local", "host")
        );
        assert_eq!((local.out_link_name.as_str(), local.family), ("lo", "inet4"));
        let loopback = runtime.store.get(&LINK_STATUS, "lo").unwrap().spec.yaml().unwrap();
        for line in ["flags: UP,LOOPBACK,RUNNING,LOWER_UP\n", "port: Other\n", "duplex: Unknown\n"] {
            assert!(loopback.contains(line), "{line}: {loopback}");
        }
    }
}
