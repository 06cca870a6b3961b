//! The node's name: config, else command line, else DHCP, else made from the address.
//!
//! Source: docs/users/network.md, docs/users/kernel-parameters.md (`hostname`).

use std::net::IpAddr;

use runtime::store::{
    DHCP_LEASE, DhcpLease, HOSTNAME_STATUS, HostnameStatus, IDENTITY, MACHINE_CONFIG, RuntimeSpec, Spec,
};

use super::controller::{Action, Controller, Snapshot};
use crate::node_identity::stable_hostname;

/// Longest name of a host (RFC 1123).
const MAX_HOST: usize = 63;

pub(crate) static CONTROLLER: Controller = Controller {
    name: "network.HostnameController",
    inputs: &[&MACHINE_CONFIG, &DHCP_LEASE, &IDENTITY],
    outputs: &[&HOSTNAME_STATUS],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let leases: Vec<&DhcpLease> = leases(snapshot);
    // Until there is any word on a name, the kernel's stays.
    let Some(full) = choose(snapshot, &leases) else { return Ok(Vec::new()) };
    let (hostname, domain) = split(&full)?;
    let status = HostnameStatus { hostname: hostname.clone(), domainname: domain.clone() };
    Ok(vec![
        Action::SetHostname { hostname, domain },
        Action::Put(&HOSTNAME_STATUS, "hostname", Spec::HostnameStatus(status)),
    ])
}

fn leases<'a>(snapshot: &'a Snapshot<'_>) -> Vec<&'a DhcpLease> {
    let lease = |spec: &'a Spec| if let Spec::DhcpLease(lease) = spec { Some(lease) } else { None };
    snapshot.list(&DHCP_LEASE).filter_map(|resource| lease(&resource.spec)).collect()
}

fn choose(snapshot: &Snapshot<'_>, leases: &[&DhcpLease]) -> Option<String> {
    let given = |name: &String| !name.is_empty();
    let machine = snapshot.machine_config().map(|document| &document.config.machine);
    let stable = machine.and_then(|machine| machine.features.as_ref()?.stable_hostname) == Some(true);
    machine
        .map(|machine| machine.network.hostname.clone())
        .filter(given)
        .or_else(|| snapshot.parameters.hostname.clone().filter(given))
        .or_else(|| from_server(leases))
        .or_else(|| snapshot.parameters.network.statics().map(|address| address.host.clone()).find(given))
        .or_else(|| if stable { from_identity(snapshot, leases) } else { from_address(snapshot, leases) })
}

/// A name that the network gives goes before one made of the node's identity.
fn from_identity(snapshot: &Snapshot<'_>, leases: &[&DhcpLease]) -> Option<String> {
    let name = snapshot.list(&IDENTITY).find_map(|resource| match &resource.spec {
        Spec::Runtime(RuntimeSpec::Identity(identity)) => Some(stable_hostname(&identity.node_id)),
        _ => None,
    })?;
    let domain = leases.iter().find_map(|lease| lease.domain.clone());
    Some(domain.map_or_else(|| name.clone(), |domain| format!("{name}.{domain}")))
}

/// The name that a server of DHCP gives.
fn from_server(leases: &[&DhcpLease]) -> Option<String> {
    let lease = leases.iter().find(|lease| lease.hostname.is_some())?;
    Some(with_domain(lease.hostname.as_deref()?, lease.domain.as_deref()))
}

/// A name of the first address: of a lease, else of the config, else of the kernel's parameters.
fn from_address(snapshot: &Snapshot<'_>, leases: &[&DhcpLease]) -> Option<String> {
    if let Some(lease) = leases.first() {
        return Some(with_domain(&name_of(lease.ip()?), lease.domain.as_deref()));
    }
    let interfaces = snapshot.machine_config().map(|document| &document.config.machine.network.interfaces);
    let given = interfaces.into_iter().flatten().filter(|entry| !entry.ignore);
    let mut given = given
        .flat_map(|entry| entry.static_addresses())
        .filter_map(|cidr| cidr.split('/').next()?.parse().ok());
    let address = given.next().or_else(|| Some(snapshot.parameters.network.statics().next()?.address))?;
    Some(name_of(address))
}

fn name_of(address: IpAddr) -> String {
    format!("talos-{}", address.to_string().replace('.', "-").replace(':', ""))
}

/// The server's domain takes the place of one in the name (option 15 before option 12).
fn with_domain(host: &str, domain: Option<&str>) -> String {
    let short = host.split('.').next().unwrap_or_default();
    domain.map_or_else(|| host.to_owned(), |domain| format!("{short}.{domain}"))
}

fn split(full: &str) -> Result<(String, String), String> {
    let (host, domain) = full.split_once('.').unwrap_or((full, ""));
    if host.len() > MAX_HOST {
        return Err(format!("hostname length longer than max allowed ({MAX_HOST}): {host}"));
    }
    Ok((host.to_owned(), domain.to_owned()))
}

#[cfg(test)]
mod tests {
    use config::cmdline::NodeParameters;
    use runtime::store::Store;

    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    fn lease(hostname: Option<&str>, domain: Option<&str>) -> Spec {
        Spec::DhcpLease(DhcpLease {
            address: "10.0.2.15/24".into(),
            server: "10.0.2.2".into(),
            gateway: None,
            resolvers: vec![],
            time_servers: vec![],
            hostname: hostname.map(str::to_owned),
            domain: domain.map(str::to_owned),
            search_domains: Vec::new(),
            lease_seconds: 60,
        })
    }

    fn name(store: &Store, parameters: &NodeParameters) -> Option<String> {
        reconcile(&snapshot(store, parameters)).unwrap().into_iter().find_map(|action| match action {
            Action::SetHostname { hostname, domain } if domain.is_empty() => Some(hostname),
            Action::SetHostname { hostname, domain } => Some(format!("{hostname}.{domain}")),
            _ => None,
        })
    }

    #[test]
    fn names_come_from_the_best_source() {
        let none = NodeParameters::default();
        let store = Store::new();
        assert_eq!(name(&store, &none), None);
        store.put(DHCP_LEASE.writer, &DHCP_LEASE, "eth0", lease(None, None)).unwrap();
        assert_eq!(name(&store, &none).as_deref(), Some("talos-10-0-2-15"));
        store.put(DHCP_LEASE.writer, &DHCP_LEASE, "eth1", lease(Some("n1.old"), Some("lan"))).unwrap();
        assert_eq!(name(&store, &none).as_deref(), Some("n1.lan"));
        let line = NodeParameters { hostname: Some("line".into()), ..NodeParameters::default() };
        assert_eq!(name(&store, &line).as_deref(), Some("line"));
        // Without a server an address gives one, and `ip=` before it.
        let static_only =
            store_with_config("  network:\n    interfaces: [{interface: eth0, addresses: [10.0.0.5/24]}]\n");
        assert_eq!(name(&static_only, &none).as_deref(), Some("talos-10-0-0-5"));
        let of_line = |text: &str| config::cmdline::CommandLine::parse(text).node();
        assert_eq!(name(&static_only, &of_line("ip=10.0.0.6:::24:named")).as_deref(), Some("named"));
        assert_eq!(name(&Store::new(), &of_line("ip=[fd00::6]:::64")).as_deref(), Some("talos-fd006"));
        let config = store_with_config("  network:\n    hostname: given.example\n");
        assert_eq!(name(&config, &line).as_deref(), Some("given.example"));
    }

    #[test]
    fn a_stable_name_is_made_of_the_identity_and_not_of_the_address() {
        let none = NodeParameters::default();
        let document = "---\napiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\n";
        for stable in ["  features:\n    stableHostname: true\n", document] {
            let store = store_with_config(stable);
            store.put(DHCP_LEASE.writer, &DHCP_LEASE, "eth0", lease(None, Some("lan"))).unwrap();
            assert_eq!(name(&store, &none), None, "the identity is not there yet");
            let identity = runtime::store::Identity { node_id: "abc".into() };
            let spec = Spec::Runtime(RuntimeSpec::Identity(identity));
            store.put(IDENTITY.writer, &IDENTITY, "local", spec).unwrap();
            assert_eq!(name(&store, &none), Some(format!("{}.lan", stable_hostname("abc"))));
            store.put(DHCP_LEASE.writer, &DHCP_LEASE, "eth1", lease(Some("given"), None)).unwrap();
            assert_eq!(name(&store, &none).as_deref(), Some("given"));
        }
    }

    #[test]
    fn long_names_are_refused() {
        assert!(split(&"a".repeat(64)).unwrap_err().contains("(63)"));
    }
}
