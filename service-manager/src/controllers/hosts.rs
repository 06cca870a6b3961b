//! /etc/hosts: loopback, the node's own name, and the lines that the config adds.
//!
//! Source: docs/users/configuration.md (`extraHostEntries`, `StaticHostConfig`); hosts(5).

use runtime::store::{ADDRESS_STATUS, DHCP_LEASE, HOSTNAME_STATUS, MACHINE_CONFIG, Spec};

use super::controller::{Action, Controller, Snapshot};

const HOSTS: &str = "/system/etc/hosts";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "network.EtcFileController",
    inputs: &[&MACHINE_CONFIG, &HOSTNAME_STATUS, &DHCP_LEASE, &ADDRESS_STATUS],
    outputs: &[],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let mut text = String::from("127.0.0.1       localhost\n");
    if let (Some(address), Some(names)) = (own_address(snapshot), own_names(snapshot)) {
        text.push_str(&line(&address, &names));
    }
    text.push_str("::1             localhost ip6-localhost ip6-loopback\n");
    text.push_str("ff02::1         ip6-allnodes\nff02::2         ip6-allrouters\n");
    let network = snapshot.machine_config().map(|document| &document.config.machine.network);
    for entry in network.into_iter().flat_map(|network| &network.extra_host_entries) {
        if let Some(ip) = entry.ip.filter(|_| !entry.aliases.is_empty()) {
            text.push_str(&line(&ip.to_string(), &entry.aliases.join(" ")));
        }
    }
    Ok(vec![Action::WriteFile { path: HOSTS, text }])
}

fn line(address: &str, names: &str) -> String {
    format!("{address:<15} {names}\n")
}

/// The first lease's address, else the first that others can reach.
fn own_address(snapshot: &Snapshot<'_>) -> Option<String> {
    let leased = snapshot.list(&DHCP_LEASE).find_map(|resource| match &resource.spec {
        Spec::DhcpLease(lease) => lease.ip().map(|ip| ip.to_string()),
        _ => None,
    });
    leased.or_else(|| super::addresses::current(snapshot).first()?.split('/').next().map(str::to_owned))
}

fn own_names(snapshot: &Snapshot<'_>) -> Option<String> {
    let named = snapshot.list(&HOSTNAME_STATUS).find_map(|resource| match &resource.spec {
        Spec::HostnameStatus(status) => Some(status),
        _ => None,
    })?;
    let (host, domain) = (&named.hostname, &named.domainname);
    Some(if domain.is_empty() { host.clone() } else { format!("{host}.{domain} {host}") })
}

#[cfg(test)]
mod tests {
    use runtime::store::{AddressStatus, HostnameStatus};

    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    fn hosts(store: &runtime::store::Store) -> String {
        match reconcile(&snapshot(store, &Default::default())).unwrap().remove(0) {
            Action::WriteFile { path: HOSTS, text } => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_config_s_lines_come_last_whatever_else_is_known() {
        let store = store_with_config(
            "  network:\n    extraHostEntries:\n      - {ip: 192.168.1.100, aliases: [example, example.org]}\n      - {ip: 'fd00::1', aliases: [six]}\n---\napiVersion: v1alpha1\nkind: StaticHostConfig\nname: 10.5.0.2\nhostnames: [from.document]\n",
        );
        let text = hosts(&store);
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        assert_eq!(
            last,
            ["10.5.0.2        from.document", "fd00::1         six", "192.168.1.100   example example.org"]
        );
        assert!(text.starts_with("127.0.0.1       localhost\n::1 "), "{text}");
    }

    #[test]
    fn the_node_s_name_stands_beside_its_address() {
        let store = store_with_config("");
        let name = HostnameStatus { hostname: "n1".into(), domainname: "lan".into() };
        store.put(HOSTNAME_STATUS.writer, &HOSTNAME_STATUS, "hostname", Spec::HostnameStatus(name)).unwrap();
        assert!(!hosts(&store).contains("n1"), "there is no address yet");
        let address = AddressStatus {
            address: "10.0.0.7/24".into(),
            link_index: 2,
            link_name: "eth0".into(),
            family: "inet4",
            scope: "global".into(),
        };
        store
            .put(ADDRESS_STATUS.writer, &ADDRESS_STATUS, "eth0/10.0.0.7/24", Spec::AddressStatus(address))
            .unwrap();
        assert!(hosts(&store).contains("\n10.0.0.7        n1.lan n1\n"), "{}", hosts(&store));
    }
}
