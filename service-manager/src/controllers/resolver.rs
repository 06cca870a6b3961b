//! resolv.conf: the config's name servers, else those of all leases, else the kernel parameters', else two public ones.
//!
//! Where the node's own resolver listens, the node's file names that one, and it asks these. Pods have a file of their own: the
//! node's resolver has another address for them, and where it has none they ask the servers themselves.
//!
//! Source: docs/users/dns.md, docs/users/network.md.

use kubernetes_node::facts;
use runtime::store::{
    Addressing, DHCP_LEASE, DhcpLease, HOST_DNS_CONFIG, HOSTNAME_STATUS, HostDnsConfig, MACHINE_CONFIG,
    RESOLVER_STATUS, Resolvers, Resource, Spec,
};

use crate::host_dns;

use super::controller::{Action, Controller, Snapshot};

const RESOLV_CONF: &str = "/system/etc/resolv.conf";
/// More than these are ignored by every resolver library.
const MOST: usize = 3;
const DEFAULT: [&str; 2] = ["1.1.1.1", "8.8.8.8"];

pub(crate) static CONTROLLER: Controller = Controller {
    name: "network.ResolverController",
    inputs: &[&MACHINE_CONFIG, &DHCP_LEASE, &HOSTNAME_STATUS, &HOST_DNS_CONFIG],
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
    let own = snapshot.list(&HOST_DNS_CONFIG).find_map(own_resolver);
    let of_node = own.filter(|own| own.enabled).map(|_| vec![host_dns::NODE_ADDRESS.to_string()]);
    let of_pods = own.and_then(|own| own.service_host_dns_address.clone()).map(|address| vec![address]);
    let file = |own: Option<Vec<String>>| {
        let servers = own.unwrap_or_else(|| resolvers.dns_servers.clone());
        text(&Resolvers { dns_servers: servers, ..resolvers.clone() })
    };
    Ok(vec![
        Action::WriteFile { path: RESOLV_CONF, text: file(of_node) },
        Action::WriteFile { path: facts::RESOLV_CONF, text: file(of_pods) },
        Action::Put(&RESOLVER_STATUS, "resolvers", Spec::Addressing(Addressing::Resolvers(resolvers))),
    ])
}

fn own_resolver(resource: &Resource) -> Option<&HostDnsConfig> {
    match &resource.spec {
        Spec::Addressing(Addressing::HostDns(config)) => Some(config),
        _ => None,
    }
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
    fn programs_and_pods_ask_the_node_s_own_resolver_while_it_listens() {
        let store =
            store_with_config("  network:\n    nameservers: [9.9.9.9]\n    searchDomains: [a.example]\n");
        let files = |enabled, address: Option<&str>| {
            let own = HostDnsConfig {
                enabled,
                service_host_dns_address: address.map(str::to_owned),
                ..HostDnsConfig::default()
            };
            let spec = Spec::Addressing(Addressing::HostDns(own));
            store.put(HOST_DNS_CONFIG.writer, &HOST_DNS_CONFIG, "config", spec).unwrap();
            let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
            let text = |action: &Action| match action {
                Action::WriteFile { text, .. } => text.lines().next().unwrap().to_owned(),
                other => panic!("{other:?}"),
            };
            [text(&actions[0]), text(&actions[1])]
        };
        assert_eq!(files(false, None), ["nameserver 9.9.9.9"; 2]);
        assert_eq!(files(true, None), ["nameserver 127.0.0.53", "nameserver 9.9.9.9"]);
        let both = files(true, Some("169.254.116.108"));
        assert_eq!(both, ["nameserver 127.0.0.53", "nameserver 169.254.116.108"]);
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
