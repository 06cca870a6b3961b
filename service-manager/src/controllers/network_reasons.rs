//! Why the network is not there: what is known of each link, in words.
//!
//! Owns: the sentences of `NetworkStatus`. Does not: find anything out.

use runtime::store::{
    ADDRESS_STATUS, DHCP_STATUS, Definition, GATEWAY_STATUS, LINK_STATUS, LinkStatus, Resource, Spec,
};
use serde::de::DeserializeOwned;

use super::controller::Snapshot;
use crate::network::{dhcp_status, gateways};

/// What the sentences are made of.
pub(super) const INPUTS: [&Definition; 4] = [&ADDRESS_STATUS, &LINK_STATUS, &DHCP_STATUS, &GATEWAY_STATUS];

/// Gateways that do not answer, each with its link.
pub(super) fn silent_gateways(snapshot: &Snapshot<'_>) -> Vec<gateways::Status> {
    let all = snapshot.list(&GATEWAY_STATUS).filter_map(fields::<gateways::Status>);
    all.filter(|gateway| gateway.state == gateways::State::Silent).collect()
}

/// A sentence for each Ethernet card, and for each other link that has a gateway.
pub(super) fn sentences(snapshot: &Snapshot<'_>) -> Vec<String> {
    let links = || {
        snapshot.list(&LINK_STATUS).filter_map(|resource| match &resource.spec {
            Spec::LinkStatus(link) => Some((resource.metadata.id.as_str(), &**link)),
            _ => None,
        })
    };
    let gateways: Vec<gateways::Status> = snapshot.list(&GATEWAY_STATUS).filter_map(fields).collect();
    let clients: Vec<dhcp_status::Status> = snapshot.list(&DHCP_STATUS).filter_map(fields).collect();
    let name_of = |index| links().find(|(_, link)| link.index == index).map(|(name, _)| name);
    let shown = links().filter(|(name, link)| {
        let is_card = link.kind.is_empty() && link.kind_of_link == "ether";
        is_card || gateways.iter().any(|gateway| gateway.link == *name)
    });
    let sentences = shown.map(|(name, link)| {
        let mut parts = vec![if link.link_state { "carrier" } else { "no carrier" }.to_owned()];
        match link.master_index.map(name_of) {
            Some(controller) => parts.push(format!("member of {}", controller.unwrap_or("another link"))),
            None => {
                let of_link = |of: &str| of == name;
                parts.extend(clients.iter().filter(|client| of_link(&client.link)).map(of_client));
                parts.push(of_addresses(snapshot, link));
                parts.extend(gateways.iter().filter(|gateway| of_link(&gateway.link)).map(of_gateway));
            }
        }
        format!("{name} ({}): {}", link.hardware_addr, parts.join("; "))
    });
    sentences.collect()
}

fn of_client(client: &dhcp_status::Status) -> String {
    let dhcp_status::Status { state, since, message, .. } = client;
    match (state, message.is_empty()) {
        (dhcp_status::State::Granted, _) => format!("DHCP: {message}"),
        (dhcp_status::State::Asking, true) => format!("DHCP: no answer since {since}"),
        (dhcp_status::State::Asking, false) => format!("DHCP: {message}; no answer since {since}"),
    }
}

/// Addresses of one link alone are none that others reach by a gateway: they are named all the same.
fn of_addresses(snapshot: &Snapshot<'_>, link: &LinkStatus) -> String {
    let addresses = snapshot.list(&ADDRESS_STATUS).filter_map(|resource| match &resource.spec {
        Spec::AddressStatus(address) if address.link_index == link.index => Some(address.address.as_str()),
        _ => None,
    });
    let addresses: Vec<&str> = addresses.collect();
    if addresses.is_empty() { "no address".to_owned() } else { format!("has {}", addresses.join(", ")) }
}

fn of_gateway(gateway: &gateways::Status) -> String {
    let question = if gateway.gateway.is_ipv4() { "ARP" } else { "neighbour discovery" };
    let gateways::Status { gateway, since, state, .. } = gateway;
    match state {
        gateways::State::Answers => format!("gateway {gateway} answers"),
        gateways::State::Asked => format!("gateway {gateway} is asked"),
        gateways::State::Silent => {
            format!("gateway {gateway} does not answer {question} since {since}")
        }
    }
}

/// A resource of our own, if it is one that this version understands.
fn fields<T: DeserializeOwned>(resource: &Resource) -> Option<T> {
    match &resource.spec {
        Spec::Fields(fields) => serde_json::from_value(fields.clone()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use runtime::store::{AddressStatus, Store};
    use serde_json::json;

    use super::*;
    use crate::controllers::testing::snapshot;

    const MAC: &str = "52:54:00:12:34:56";
    const SINCE: &str = "2026-11-29T12:00:00Z";

    fn link(store: &Store, name: &str, link: LinkStatus) {
        let link = LinkStatus { hardware_addr: MAC.into(), ..link };
        store.put(LINK_STATUS.writer, &LINK_STATUS, name, Spec::LinkStatus(Box::new(link))).unwrap();
    }

    fn card(index: u32) -> LinkStatus {
        LinkStatus { index, kind_of_link: "ether".into(), link_state: true, ..LinkStatus::default() }
    }

    fn put(store: &Store, kind: &'static Definition, id: &str, fields: serde_json::Value) {
        store.put(kind.writer, kind, id, Spec::Fields(fields)).unwrap();
    }

    fn said(store: &Store) -> Vec<String> {
        sentences(&snapshot(store, &Default::default()))
    }

    #[test]
    fn a_link_says_how_far_it_came() {
        let store = Store::new();
        assert!(said(&store).is_empty());
        link(&store, "lo", LinkStatus { index: 1, kind_of_link: "loopback".into(), ..LinkStatus::default() });
        link(&store, "eth0", LinkStatus { link_state: false, ..card(2) });
        assert_eq!(said(&store), [format!("eth0 ({MAC}): no carrier; no address")]);
        link(&store, "eth0", card(2));
        let client = |state: &str, message: &str| {
            let fields =
                json!({ "link": "eth0", "state": state, "since": SINCE, "requests": 3, "message": message });
            put(&store, &DHCP_STATUS, "eth0/dhcp4", fields);
        };
        client("asking", "");
        assert_eq!(
            said(&store),
            [format!("eth0 ({MAC}): carrier; DHCP: no answer since {SINCE}; no address")]
        );
        client("asking", "lease of 10.0.0.5 is over");
        let over = format!(
            "eth0 ({MAC}): carrier; DHCP: lease of 10.0.0.5 is over; no answer since {SINCE}; no address"
        );
        assert_eq!(said(&store), [over]);
        client("granted", "10.0.0.5/24 from 10.0.0.1");
        let address = AddressStatus {
            address: "10.0.0.5/24".into(),
            link_index: 2,
            link_name: "eth0".into(),
            family: "inet4",
            scope: "global".into(),
        };
        let spec = Spec::AddressStatus(address);
        store.put(ADDRESS_STATUS.writer, &ADDRESS_STATUS, "eth0/10.0.0.5/24", spec).unwrap();
        for (state, words) in [
            ("asked", "gateway 10.0.0.1 is asked".to_owned()),
            ("answers", "gateway 10.0.0.1 answers".to_owned()),
            ("silent", format!("gateway 10.0.0.1 does not answer ARP since {SINCE}")),
        ] {
            let fields = json!({ "link": "eth0", "gateway": "10.0.0.1", "state": state, "since": SINCE });
            put(&store, &GATEWAY_STATUS, "eth0/10.0.0.1", fields);
            let expected =
                format!("eth0 ({MAC}): carrier; DHCP: 10.0.0.5/24 from 10.0.0.1; has 10.0.0.5/24; {words}");
            assert_eq!(said(&store), [expected]);
        }
        let silent = silent_gateways(&snapshot(&store, &Default::default()));
        assert_eq!(silent.len(), 1);
    }

    #[test]
    fn members_and_links_with_a_gateway_are_named() {
        let store = Store::new();
        link(&store, "bond0", LinkStatus { kind: "bond".into(), ..card(7) });
        link(&store, "eth0", LinkStatus { master_index: Some(7), ..card(2) });
        link(&store, "wg0", LinkStatus { kind: "wireguard".into(), ..card(9) });
        let gateway = json!({ "link": "bond0", "gateway": "fe80::1", "state": "silent", "since": SINCE });
        put(&store, &GATEWAY_STATUS, "bond0/fe80::1", gateway);
        let expected = [
            format!(
                "bond0 ({MAC}): carrier; no address; gateway fe80::1 does not answer neighbour discovery since {SINCE}"
            ),
            format!("eth0 ({MAC}): carrier; member of bond0"),
        ];
        assert_eq!(said(&store), expected);
    }
}
