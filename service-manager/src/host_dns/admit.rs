//! Who may ask: the node itself and its pods.
//!
//! The address for pods is on loopback, but the kernel takes packets to it from every link: without this a neighbour in the
//! network could use the node as a resolver, and learn what it asks.
//! Order: what costs least first; a pod of a network that the config does not name is found by the route to it.

use std::net::IpAddr;

use runtime::Runtime;
use runtime::store::{ADDRESS_STATUS, LINK_SPEC, NetworkSpec, ROUTE_STATUS, Spec};

use crate::network;

/// The default of `cluster.network.podSubnets`.
const POD_NETWORK: &str = "10.244.0.0/16";

pub(super) fn may_ask(runtime: &Runtime, from: IpAddr) -> bool {
    from.is_loopback()
        || is_of_pods(runtime, from)
        || is_own(runtime, from)
        || is_behind_a_bridge(runtime, from)
}

fn is_of_pods(runtime: &Runtime, from: IpAddr) -> bool {
    let config = runtime.config();
    let networks = config.as_ref().and_then(|config| config.cluster.network.as_ref());
    let named = networks.map(|network| network.pod_subnets.as_slice()).unwrap_or_default();
    if named.is_empty() {
        contains(POD_NETWORK, from)
    } else {
        named.iter().any(|network| contains(network, from))
    }
}

fn is_own(runtime: &Runtime, from: IpAddr) -> bool {
    runtime.store.list(&ADDRESS_STATUS).iter().any(|resource| match &resource.spec {
        Spec::AddressStatus(status) => parsed(&status.address).is_some_and(|(address, _)| address == from),
        _ => false,
    })
}

/// Whether the way back leads over a link that a network plugin made: neither a card nor a link of the config.
fn is_behind_a_bridge(runtime: &Runtime, from: IpAddr) -> bool {
    let mut best: Option<(u8, String)> = None;
    for resource in runtime.store.list(&ROUTE_STATUS) {
        let Spec::RouteStatus(route) = &resource.spec else { continue };
        let Some((_, prefix)) =
            parsed(&route.dst).filter(|_| &*route.table == "main" && contains(&route.dst, from))
        else {
            continue;
        };
        if best.as_ref().is_none_or(|(longest, _)| prefix > *longest) {
            best = Some((prefix, route.out_link_name.clone()));
        }
    }
    best.is_some_and(|(_, link)| {
        !link.is_empty() && !network::is_wired(&link) && !is_configured(runtime, &link)
    })
}

fn is_configured(runtime: &Runtime, link: &str) -> bool {
    runtime.store.list(&LINK_SPEC).iter().any(|resource| match &resource.spec {
        Spec::Network(spec) => matches!(&**spec, NetworkSpec::Link(spec) if spec.name == link),
        _ => false,
    })
}

fn parsed(cidr: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = cidr.split_once('/')?;
    Some((address.parse().ok()?, prefix.parse().ok()?))
}

fn contains(cidr: &str, address: IpAddr) -> bool {
    let Some((network, prefix)) = parsed(cidr) else { return false };
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let ((network, most), (address, same)) = (bits(network), bits(address));
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or_default();
    most == same && prefix <= most && network & mask == address & mask
}

#[cfg(test)]
mod tests {
    use runtime::store::{AddressStatus, RouteStatus};

    use super::*;

    fn route(dst: &str, link: &str) -> RouteStatus {
        RouteStatus {
            family: "inet4",
            dst: dst.into(),
            src: String::new(),
            gateway: String::new(),
            out_link_name: link.into(),
            table: "main".into(),
            priority: 0,
            scope: "link".into(),
            kind: "unicast".into(),
            protocol: "kernel".into(),
        }
    }

    #[test]
    fn the_node_and_its_pods_may_ask_and_no_neighbour() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        let own = AddressStatus {
            address: "192.168.1.5/24".into(),
            link_index: 2,
            link_name: "eth0".into(),
            family: "inet4",
            scope: "global".into(),
        };
        let put = |kind: &'static runtime::store::Definition, id: &str, spec| {
            runtime.store.put(kind.writer, kind, id, spec).unwrap();
        };
        put(&ADDRESS_STATUS, "eth0/192.168.1.5/24", Spec::AddressStatus(own));
        let routes =
            [route("192.168.1.0/24", "eth0"), route("10.9.0.0/16", "cali7"), route("10.9.7.0/24", "bond0")];
        for route in routes {
            put(&ROUTE_STATUS, &route.dst.clone(), Spec::RouteStatus(route));
        }
        let bond = runtime::store::LinkSpec {
            name: "bond0".into(),
            logical: true,
            up: true,
            mtu: 0,
            kind: "bond",
            kind_of_link: "ether",
            layer: "configuration",
        };
        put(&LINK_SPEC, "configuration/bond0", Spec::Network(Box::new(NetworkSpec::Link(bond))));
        for (from, may) in [
            ("127.0.0.1", true),
            ("192.168.1.5", true),
            ("10.244.3.4", true),
            ("10.9.1.1", true),
            ("10.9.7.1", false),
            ("192.168.1.6", false),
            ("8.8.8.8", false),
            ("fd00::1", false),
        ] {
            assert_eq!(may_ask(&runtime, from.parse().unwrap()), may, "{from}");
        }
    }

    #[test]
    fn prefixes_of_both_families() {
        let inside = |cidr, address: &str| contains(cidr, address.parse().unwrap());
        assert!(inside("10.0.0.0/8", "10.255.0.1") && !inside("10.0.0.0/8", "11.0.0.1"));
        assert!(inside("0.0.0.0/0", "1.2.3.4") && !inside("0.0.0.0/0", "::1"));
        assert!(inside("fd00::/16", "fd00:1::1") && !inside("fd00::/16", "fd01::1"));
        assert!(!inside("10.0.0.0/33", "10.0.0.0") && !inside("", "10.0.0.0"));
    }
}
