//! resolv.conf: the config's name servers, else those of all leases, else the kernel parameters', else two public ones.
//!
//! Source: spec/machine-facts.md §8.1.

use runtime::store::{
    Addressing, DHCP_LEASE, DhcpLease, HOSTNAME_STATUS, MACHINE_CONFIG, RESOLVER_STATUS, Resolvers, Resource,
    Spec,
};

use super::{Action, Controller, Snapshot};

const RESOLV_CONF: &str = "/system/etc/resolv.conf";
/// More than these are ignored by every resolver library.
const MOST: usize = 3;
const DEFAULT: [&str; 2] = ["1.1.1.1", "8.8.8.8"];

pub(crate) static CONTROLLER: Controller = Controller {
    name: "network.ResolverController",
    inputs: &[&MACHINE_CONFIG, &DHCP_LEASE, &HOSTNAME_STATUS],
    outputs: &[&RESOLVER_STATUS],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let network = snapshot.machine_config().map(|document| &document.config.machine.network);
    let mut servers: Vec<String> =
        network.iter().flat_map(|network| &network.nameservers).map(ToString::to_string).collect();
    let leases: Vec<&DhcpLease> = snapshot.list(&DHCP_LEASE).filter_map(lease).collect();
    if servers.is_empty() {
        servers.extend(leases.iter().flat_map(|lease| lease.resolvers.iter().cloned()));
    }
    if servers.is_empty() {
        let named = snapshot.parameters.network.statics().flat_map(|address| &address.resolvers);
        servers.extend(named.map(ToString::to_string));
    }
    let mut domains: Vec<String> = network.map_or_else(Vec::new, |network| network.search_domains.clone());
    if network.is_none_or(|network| network.disable_search_domain != Some(true)) {
        // The node's own domain; before it has a name, the network's.
        let own = own_domain(snapshot).or_else(|| leases.iter().find_map(|lease| lease.domain.clone()));
        domains.extend(own.filter(|own| !own.is_empty()));
        domains.extend(leases.iter().flat_map(|lease| lease.search_domains.iter().cloned()));
    }
    let resolvers = Resolvers { dns_servers: chosen(&servers), search_domains: distinct(&domains) };
    Ok(vec![
        Action::WriteFile { path: RESOLV_CONF, text: text(&resolvers) },
        Action::Put(&RESOLVER_STATUS, "resolvers", Spec::Addressing(Addressing::Resolvers(resolvers))),
    ])
}

fn lease(resource: &Resource) -> Option<&DhcpLease> {
    if let Spec::DhcpLease(lease) = &resource.spec { Some(lease) } else { None }
}

fn own_domain(snapshot: &Snapshot<'_>) -> Option<String> {
    snapshot.list(&HOSTNAME_STATUS).find_map(|resource| match &resource.spec {
        Spec::HostnameStatus(status) => Some(status.domainname.clone()),
        _ => None,
    })
}

fn distinct(all: &[String]) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for one in all {
        if !distinct.contains(one) {
            distinct.push(one.clone());
        }
    }
    distinct
}

fn chosen(servers: &[String]) -> Vec<String> {
    let mut chosen = distinct(servers);
    if chosen.is_empty() {
        chosen.extend(DEFAULT.map(str::to_owned));
    }
    chosen.truncate(MOST);
    chosen
}

fn text(resolvers: &Resolvers) -> String {
    let mut text: String =
        resolvers.dns_servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    if !resolvers.search_domains.is_empty() {
        text.push_str(&format!("search {}\n", resolvers.search_domains.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use runtime::store::{HostnameStatus, Store};

    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    fn written(store: &Store) -> String {
        match reconcile(&snapshot(store, &Default::default())).unwrap().remove(0) {
            Action::WriteFile { path: RESOLV_CONF, text } => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_config_wins_and_nothing_falls_back() {
        let store = store_with_config("  network:\n    nameservers: [9.9.9.9]\n");
        assert_eq!(written(&store), "nameserver 9.9.9.9\n");
        assert_eq!(written(&Store::new()), "nameserver 1.1.1.1\nnameserver 8.8.8.8\n");
    }

    #[test]
    fn the_kernels_parameters_name_servers() {
        let line = config::cmdline::CommandLine::parse("ip=10.0.0.5:::24::eth0:off:10.0.0.2:10.0.0.3").node();
        match reconcile(&snapshot(&Store::new(), &line)).unwrap().remove(0) {
            Action::WriteFile { text, .. } => assert_eq!(text, "nameserver 10.0.0.2\nnameserver 10.0.0.3\n"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn at_most_three_distinct_servers() {
        let servers: Vec<String> =
            ["1.0.0.1", "1.0.0.1", "2.0.0.2", "3.0.0.3", "4.0.0.4"].map(str::to_owned).into();
        assert_eq!(chosen(&servers), ["1.0.0.1", "2.0.0.2", "3.0.0.3"]);
    }

    #[test]
    fn search_domains_are_the_config_s_and_then_the_node_s() {
        let named = |machine: &str| {
            let store = store_with_config(machine);
            let name = HostnameStatus { hostname: "n".into(), domainname: "lan".into() };
            store
                .put(HOSTNAME_STATUS.writer, &HOSTNAME_STATUS, "hostname", Spec::HostnameStatus(name))
                .unwrap();
            written(&store).lines().find(|line| line.starts_with("search")).map(str::to_owned)
        };
        assert_eq!(named("").as_deref(), Some("search lan"));
        let two = "  network:\n    searchDomains: [a.example, lan, b.example]\n";
        assert_eq!(named(two).as_deref(), Some("search a.example lan b.example"));
        assert_eq!(named("  network:\n    disableSearchDomain: true\n"), None);
        let document = "---\napiVersion: v1alpha1\nkind: ResolverConfig\nsearchDomains:\n  domains: [doc.example]\n  disableDefault: true\n";
        assert_eq!(named(document).as_deref(), Some("search doc.example"));
    }
}
