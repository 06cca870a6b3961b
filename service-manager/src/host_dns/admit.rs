//! Who may ask: the node itself and its pods.
//!
//! The address for pods is on loopback, but the kernel takes packets to it from every link: without this a neighbour in the
//! network could use the node as a resolver, and learn what it asks.
//! Order: what costs least first; a pod of a network that the config does not name is found by the route to it.

use std::net::IpAddr;

use network_plan::firewall::{cluster_networks, contains};
use network_plan::link::prefix;
use runtime::Runtime;
use runtime::store::{ADDRESS_STATUS, LINK_SPEC, NetworkSpec, Spec};

use crate::network;

pub(super) fn may_ask(runtime: &Runtime, from: IpAddr) -> bool {
    from.is_loopback()
        || is_of_pods(runtime, from)
        || is_own(runtime, from)
        || is_behind_a_bridge(runtime, from)
}

fn is_of_pods(runtime: &Runtime, from: IpAddr) -> bool {
    cluster_networks(runtime.config().as_deref()).into_iter().any(|network| contains(network, from))
}

fn is_own(runtime: &Runtime, from: IpAddr) -> bool {
    runtime.store.list(&ADDRESS_STATUS).iter().any(|resource| match &resource.spec {
        Spec::AddressStatus(status) => prefix(&status.address).is_some_and(|(address, _)| address == from),
        _ => false,
    })
}

/// Whether the way back leads over a link that a network plugin made: neither a card nor a link of the config.
fn is_behind_a_bridge(runtime: &Runtime, from: IpAddr) -> bool {
    network::link_towards(&runtime.store, from)
        .is_some_and(|link| !link.is_empty() && !network::is_wired(&link) && !is_configured(runtime, &link))
}

fn is_configured(runtime: &Runtime, link: &str) -> bool {
    runtime.store.list(&LINK_SPEC).iter().any(|resource| match &resource.spec {
        Spec::Network(spec) => matches!(&**spec, NetworkSpec::Link(spec) if spec.name == link),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use runtime::store::AddressStatus;

    use super::*;

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
        let networks = [("192.168.1.0/24", "eth0"), ("10.9.0.0/16", "cali7"), ("10.9.7.0/24", "bond0")];
        network::testing::lead(&runtime.store, &networks);
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
}
