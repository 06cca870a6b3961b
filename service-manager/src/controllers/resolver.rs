//! resolv.conf: the config's name servers, else those of all leases, else two public ones.
//!
//! Source: spec/machine-facts.md §8.1.

use super::{Action, Controller, Snapshot};
use crate::store::{DHCP_LEASE, MACHINE_CONFIG, Spec};

const RESOLV_CONF: &str = "/system/etc/resolv.conf";
/// More than these are ignored by every resolver library.
const MOST: usize = 3;
const DEFAULT: [&str; 2] = ["1.1.1.1", "8.8.8.8"];

pub(crate) static CONTROLLER: Controller = Controller {
    name: "network.ResolverController",
    inputs: &[&MACHINE_CONFIG, &DHCP_LEASE],
    outputs: &[],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let mut servers: Vec<String> = snapshot.machine_config().map_or_else(Vec::new, |document| {
        document.config.machine.network.nameservers.iter().map(ToString::to_string).collect()
    });
    let mut domain = None;
    let given = !servers.is_empty();
    for resource in snapshot.list(&DHCP_LEASE) {
        let Spec::DhcpLease(lease) = &resource.spec else { continue };
        domain = domain.or_else(|| lease.domain.clone());
        let new = lease.resolvers.iter().filter(|_| !given);
        servers.extend(new.cloned());
    }
    Ok(vec![Action::WriteFile { path: RESOLV_CONF, text: text(&servers, domain.as_deref()) }])
}

fn text(servers: &[String], domain: Option<&str>) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for server in servers {
        if !distinct.contains(&server.as_str()) {
            distinct.push(server);
        }
    }
    if distinct.is_empty() {
        distinct.extend(DEFAULT);
    }
    let mut text: String =
        distinct.iter().take(MOST).map(|server| format!("nameserver {server}\n")).collect();
    if let Some(domain) = domain {
        text.push_str(&format!("search {domain}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    #[test]
    fn the_config_wins_and_nothing_falls_back() {
        let store = store_with_config("  network:\n    nameservers: [9.9.9.9]\n");
        let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
        assert_eq!(actions, [Action::WriteFile { path: RESOLV_CONF, text: "nameserver 9.9.9.9\n".into() }]);
        assert_eq!(text(&[], None), "nameserver 1.1.1.1\nnameserver 8.8.8.8\n");
    }

    #[test]
    fn at_most_three_distinct_servers() {
        let servers: Vec<String> =
            ["1.0.0.1", "1.0.0.1", "2.0.0.2", "3.0.0.3", "4.0.0.4"].map(str::to_owned).into();
        let expected = "nameserver 1.0.0.1\nnameserver 2.0.0.2\nnameserver 3.0.0.3\nsearch lan\n";
        assert_eq!(text(&servers, Some("lan")), expected);
    }
}
