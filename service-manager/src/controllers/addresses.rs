//! The addresses that stand for the node, and the hardware address that does.
//!
//! `current` holds every address that others can reach, `default` the first of them.

use std::net::IpAddr;

use runtime::store::{
    ADDRESS_STATUS, Addressing, HARDWARE_ADDRESS, HardwareAddress, LINK_STATUS, NODE_ADDRESS, NodeAddresses,
    Spec,
};

use super::controller::{Action, Controller, Snapshot};
use crate::network::is_wired;

pub(crate) static CONTROLLER: Controller = Controller {
    name: "network.NodeAddressController",
    inputs: &[&ADDRESS_STATUS],
    outputs: &[&NODE_ADDRESS],
    reconcile,
};

pub(crate) static HARDWARE: Controller = Controller {
    name: "network.HardwareAddressController",
    inputs: &[&LINK_STATUS],
    outputs: &[&HARDWARE_ADDRESS],
    reconcile: reconcile_hardware,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let current = current(snapshot);
    let put = |id, addresses| {
        let spec = Addressing::Addresses(NodeAddresses { addresses });
        Action::Put(&NODE_ADDRESS, id, Spec::Addressing(spec))
    };
    let first = current.first().cloned().into_iter().collect();
    Ok(vec![put("current", current), put("default", first)])
}

/// IPv4 first, then by link and address, as the resources are sorted.
pub(super) fn current(snapshot: &Snapshot<'_>) -> Vec<String> {
    let statuses = snapshot.list(&ADDRESS_STATUS).filter_map(|resource| match &resource.spec {
        Spec::AddressStatus(status) => Some(status),
        _ => None,
    });
    let reachable = |address: &str| match address.split('/').next().map(str::parse::<IpAddr>) {
        Some(Ok(IpAddr::V4(ip))) => !ip.is_loopback() && !ip.is_link_local(),
        Some(Ok(IpAddr::V6(ip))) => !ip.is_loopback() && !ip.is_unicast_link_local(),
        _ => false,
    };
    let mut current: Vec<String> =
        statuses.filter(|status| reachable(&status.address)).map(|status| status.address.clone()).collect();
    // Stable: what is equal keeps its order.
    current.sort_by_key(|address| address.contains(':'));
    current
}

fn reconcile_hardware(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let wired = snapshot.list(&LINK_STATUS).find_map(|resource| match &resource.spec {
        Spec::LinkStatus(link) if is_wired(&resource.metadata.id) && !link.hardware_addr.is_empty() => {
            Some(HardwareAddress {
                name: resource.metadata.id.clone(),
                hardware_addr: link.hardware_addr.clone(),
            })
        }
        _ => None,
    });
    let put =
        |address| Action::Put(&HARDWARE_ADDRESS, "first", Spec::Addressing(Addressing::Hardware(address)));
    Ok(wired.map(put).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use runtime::store::{AddressStatus, LinkStatus, Store};

    use super::*;
    use crate::controllers::testing::snapshot;

    #[test]
    fn only_addresses_that_others_reach_count() {
        let store = Store::new();
        for (link, cidr) in [
            ("eth0", "fd00::5/64"),
            ("eth0", "fe80::1/64"),
            ("eth0", "10.0.0.5/24"),
            ("lo", "127.0.0.1/8"),
            ("lo", "::1/128"),
            ("eth1", "169.254.3.4/16"),
        ] {
            let status = AddressStatus {
                address: cidr.into(),
                link_index: 1,
                link_name: link.into(),
                family: "inet4",
                scope: "global".into(),
            };
            let id = format!("{link}/{cidr}");
            store.put(ADDRESS_STATUS.writer, &ADDRESS_STATUS, &id, Spec::AddressStatus(status)).unwrap();
        }
        let parameters = Default::default();
        assert_eq!(current(&snapshot(&store, &parameters)), ["10.0.0.5/24", "fd00::5/64"]);
        let actions = reconcile(&snapshot(&store, &parameters)).unwrap();
        let first = Addressing::Addresses(NodeAddresses { addresses: vec!["10.0.0.5/24".into()] });
        assert_eq!(actions[1], Action::Put(&NODE_ADDRESS, "default", Spec::Addressing(first)));
    }

    #[test]
    fn the_first_wired_link_stands_for_the_node() {
        let store = Store::new();
        for (name, address) in [("bond0", "02:00:00:00:00:09"), ("eth0", "02:00:00:00:00:01"), ("eth1", "x")]
        {
            let status = LinkStatus {
                index: 1,
                kind_of_link: "ether".into(),
                kind: String::new(),
                hardware_addr: address.into(),
                mtu: 1500,
                operational_state: "up".into(),
                link_state: true,
                ..LinkStatus::default()
            };
            store.put(LINK_STATUS.writer, &LINK_STATUS, name, Spec::LinkStatus(Box::new(status))).unwrap();
        }
        let actions = reconcile_hardware(&snapshot(&store, &Default::default())).unwrap();
        let expected = HardwareAddress { name: "eth0".into(), hardware_addr: "02:00:00:00:00:01".into() };
        assert_eq!(
            actions,
            [Action::Put(&HARDWARE_ADDRESS, "first", Spec::Addressing(Addressing::Hardware(expected)))]
        );
    }
}
