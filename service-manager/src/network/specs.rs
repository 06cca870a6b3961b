//! What the network is to be, as resources: `AddressSpecs`, `LinkSpecs`, `LinkAliasSpecs`, `RouteSpecs`, `HostnameSpecs`,
//! `ResolverSpecs`, `OperatorSpecs`, `StaticHosts`.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | the plan, the config, the command line, leases | the types above | with networkd |
//!
//! Owns: one resource a layer and thing; the layers are the command line, the leases (`operator`) and the config.
//! Does not: bring anything about: `made`, `statics` and `client` do, by the same plan. Of a lease only the default route is known
//! here.

use std::net::IpAddr;
use std::sync::Arc;

use network_line::Line;
use network_plan::{Dhcp, Plan};
use runtime::store::{
    ADDRESS_SPEC, AddressSpec, DHCP_LEASE, Definition, Dhcp4, Dhcp6, DhcpLease, HOSTNAME_SPEC, HostnameSpec,
    LINK_ALIAS_SPEC, LINK_SPEC, LinkSpec, MACHINE_CONFIG, NetworkSpec, OPERATOR_SPEC, OperatorSpec,
    RESOLVER_SPEC, ROUTE_SPEC, ResolverSpec, RouteSpec, STATIC_HOST, Spec, Vip,
};
use tokio::sync::watch;

use runtime::Runtime;

use super::{client6, rules};

const CONFIGURATION: &str = "configuration";
const CMDLINE: &str = "cmdline";
const OPERATOR: &str = "operator";

/// Keeps the resources like what they follow from.
pub(super) async fn follow(runtime: Arc<Runtime>, mut plan: watch::Receiver<Arc<Plan>>) {
    let mut changes = runtime.store.follow(&[&MACHINE_CONFIG, &DHCP_LEASE]);
    let mut published: Option<(Arc<Plan>, Leases)> = None;
    loop {
        let now = (plan.borrow_and_update().clone(), leases(&runtime));
        // A plan may have ten thousand routes, and a config that is applied again has the same plan.
        let is_published =
            |(plan, leases): &(Arc<Plan>, Leases)| Arc::ptr_eq(plan, &now.0) && *leases == now.1;
        if !published.as_ref().is_some_and(is_published) {
            publish_links(&runtime, &now.0, &now.1);
        }
        publish_names(&runtime, &now.1);
        published = Some(now);
        tokio::select! {
            changed = plan.changed() => if changed.is_err() { return },
            () = changes.next() => {}
        }
    }
}

#[derive(Default)]
struct Specs {
    addresses: Vec<(String, Spec)>,
    links: Vec<(String, Spec)>,
    routes: Vec<(String, Spec)>,
    operators: Vec<(String, Spec)>,
}

/// Leases by the ids of their resources.
type Leases = Vec<(String, DhcpLease)>;

fn leases(runtime: &Runtime) -> Leases {
    let lease = |spec: &Spec| if let Spec::DhcpLease(lease) = spec { Some(lease.clone()) } else { None };
    let leases = runtime.store.list(&DHCP_LEASE);
    leases.iter().filter_map(|found| Some((found.metadata.id.clone(), lease(&found.spec)?))).collect()
}

/// What follows from the plan and the leases.
fn publish_links(runtime: &Runtime, plan: &Plan, leases: &Leases) {
    let mut specs = Specs::default();
    for link in plan.links.values() {
        specs.add_link(link, &runtime.parameters.network);
    }
    for (link, address) in &plan.shared {
        specs.add_shared(link, *address);
    }
    for (id, lease) in leases {
        let link = client6::link_of(id).0;
        let settings = plan.links.get(link).and_then(|link| link.dhcp.clone());
        specs.add_lease(link, lease, &settings.unwrap_or_default());
    }
    if let Err(error) = rules::publish_specs(runtime, plan) {
        runtime.journal.warn(&error);
    }
    put(runtime, &ADDRESS_SPEC, specs.addresses);
    put(runtime, &LINK_SPEC, specs.links);
    let alias = |(link, alias): (&String, &String)| {
        (link.clone(), Spec::Fields(serde_json::json!({ "alias": alias })))
    };
    put(runtime, &LINK_ALIAS_SPEC, plan.aliases.iter().map(alias).collect());
    put(runtime, &ROUTE_SPEC, specs.routes);
    put(runtime, &OPERATOR_SPEC, specs.operators);
}

/// What follows from the config itself, the command line and the leases.
fn publish_names(runtime: &Runtime, leases: &Leases) {
    put(runtime, &HOSTNAME_SPEC, hostnames(runtime, leases));
    put(runtime, &RESOLVER_SPEC, resolvers(runtime, leases));
    put(runtime, &STATIC_HOST, static_hosts(runtime));
}

fn put(runtime: &Runtime, kind: &'static Definition, wanted: Vec<(String, Spec)>) {
    if let Err(error) = runtime.store.replace(kind.writer, kind, wanted) {
        runtime.journal.warn(&error.to_string());
    }
}

fn spec(spec: NetworkSpec) -> Spec {
    Spec::Network(Box::new(spec))
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "inet4" } else { "inet6" }
}

impl Specs {
    fn add_link(&mut self, wanted: &network_plan::Link, line: &Line) {
        let link = wanted.name.as_str();
        let is_loopback = link == "lo";
        let of_line = |address: IpAddr| line.statics().any(|of_line| of_line.address == address);
        let is_of_line = wanted.addresses.iter().any(|(address, _)| of_line(*address));
        let layer = match wanted.is_configured {
            true => CONFIGURATION,
            false if is_of_line || wanted.kind.is_some() => CMDLINE,
            false => "default",
        };
        let link_spec = LinkSpec {
            name: link.to_owned(),
            logical: wanted.kind.is_some(),
            up: !wanted.is_down,
            mtu: wanted.mtu.unwrap_or_default(),
            kind: wanted.kind.as_ref().map_or("", network_plan::Kind::word),
            kind_of_link: if is_loopback { "loopback" } else { "ether" },
            layer,
        };
        self.links.push((format!("{layer}/{link}"), spec(NetworkSpec::Link(link_spec))));
        for &(address, prefix) in &wanted.addresses {
            let layer = if of_line(address) { CMDLINE } else { CONFIGURATION };
            self.add_address(link, address, &format!("{address}/{prefix}"), layer);
        }
        for route in &wanted.routes {
            let (destination, prefix) = route.destination;
            let is_of_line =
                line.statics().any(|of_line| of_line.gateway.is_some() && of_line.gateway == route.gateway);
            let gateway = route.gateway.map(|gateway| gateway.to_string()).unwrap_or_default();
            let dst = if prefix == 0 { String::new() } else { format!("{destination}/{prefix}") };
            self.add_route(RouteSpec {
                scope: if gateway.is_empty() { "link" } else { "global" },
                src: route.source.map(|source| source.to_string()).unwrap_or_default(),
                protocol: "static",
                layer: if is_of_line { CMDLINE } else { CONFIGURATION },
                priority: route.metric,
                ..route_to(link, family(destination), dst, gateway)
            });
        }
        if let Some(dhcp) = &wanted.dhcp {
            let operator = OperatorSpec {
                operator: "dhcp4",
                link_name: link.to_owned(),
                require_up: true,
                dhcp4: Some(Dhcp4 { route_metric: dhcp.metric }),
                dhcp6: None,
                vip: None,
                layer,
            };
            self.operators.push((format!("{layer}/dhcp4/{link}"), spec(NetworkSpec::Operator(operator))));
        }
        if let Some(dhcp) = &wanted.dhcp6 {
            let operator = OperatorSpec {
                operator: "dhcp6",
                link_name: link.to_owned(),
                require_up: true,
                dhcp4: None,
                dhcp6: Some(Dhcp6 { route_metric: dhcp.metric }),
                vip: None,
                layer,
            };
            self.operators.push((format!("{layer}/dhcp6/{link}"), spec(NetworkSpec::Operator(operator))));
        }
    }

    fn add_shared(&mut self, link: &str, address: IpAddr) {
        let operator = OperatorSpec {
            operator: "vip",
            link_name: link.to_owned(),
            require_up: true,
            dhcp4: None,
            dhcp6: None,
            vip: Some(Vip { ip: address.to_string(), gratuitous_arp: address.is_ipv4() }),
            layer: CONFIGURATION,
        };
        let id = format!("{CONFIGURATION}/vip/{link}/{address}");
        self.operators.push((id, spec(NetworkSpec::Operator(operator))));
    }

    fn add_lease(&mut self, link: &str, lease: &DhcpLease, settings: &Dhcp) {
        if let Some(address) = lease.ip() {
            self.add_address(link, address, &lease.address, OPERATOR);
        }
        if let Some(gateway) = lease.gateway.as_ref().filter(|_| settings.takes_routes) {
            self.add_route(RouteSpec {
                src: lease.ip().map(|address| address.to_string()).unwrap_or_default(),
                protocol: "dhcp",
                layer: OPERATOR,
                priority: settings.metric,
                ..route_to(link, "inet4", String::new(), gateway.clone())
            });
        }
    }

    fn add_address(&mut self, link: &str, address: IpAddr, cidr: &str, layer: &'static str) {
        let address = AddressSpec {
            address: cidr.to_owned(),
            link_name: link.to_owned(),
            family: family(address),
            scope: if address.is_loopback() { "host" } else { "global" },
            flags: "permanent",
            layer,
        };
        self.addresses.push((format!("{layer}/{link}/{cidr}"), spec(NetworkSpec::Address(address))));
    }

    fn add_route(&mut self, route: RouteSpec) {
        let RouteSpec { layer, out_link_name, family, gateway, dst, priority, .. } = &route;
        // There may be ten thousand, and `format!` takes longer.
        let id = [layer, out_link_name.as_str(), family, gateway, dst, &priority.to_string()].join("/");
        self.routes.push((id, spec(NetworkSpec::Route(route))));
    }
}

fn route_to(link: &str, family: &'static str, dst: String, gateway: String) -> RouteSpec {
    RouteSpec {
        family,
        dst,
        src: String::new(),
        gateway,
        out_link_name: link.to_owned(),
        table: "main",
        priority: 0,
        scope: "global",
        kind: "unicast",
        flags: "",
        protocol: "static",
        layer: CONFIGURATION,
    }
}

fn hostnames(runtime: &Runtime, leases: &[(String, DhcpLease)]) -> Vec<(String, Spec)> {
    let mut found = Vec::new();
    let mut add = |id: String, name: &str, layer| {
        let (hostname, domainname) = name.split_once('.').unwrap_or((name, ""));
        let (hostname, domainname) = (hostname.to_owned(), domainname.to_owned());
        let name = HostnameSpec { hostname, domainname, layer };
        found.push((id, spec(NetworkSpec::Hostname(name))));
    };
    if let Some(name) = runtime.parameters.hostname.as_deref().filter(|name| !name.is_empty()) {
        add(format!("{CMDLINE}/hostname"), name, CMDLINE);
    }
    if let Some(address) = runtime.parameters.network.statics().find(|address| !address.host.is_empty()) {
        add(format!("{CMDLINE}/{}/hostname", address.link), &address.host, CMDLINE);
    }
    for (id, lease) in leases {
        let link = client6::link_of(id).0;
        if let Some(name) = &lease.hostname {
            add(format!("{OPERATOR}/{link}/hostname"), name, OPERATOR);
        }
    }
    if let Some(document) =
        runtime.document().filter(|document| !document.config.machine.network.hostname.is_empty())
    {
        add(format!("{CONFIGURATION}/hostname"), &document.config.machine.network.hostname, CONFIGURATION);
    }
    found
}

fn of_line(line: &Line) -> Vec<String> {
    line.statics().flat_map(|address| &address.resolvers).map(ToString::to_string).collect()
}

fn resolvers(runtime: &Runtime, leases: &[(String, DhcpLease)]) -> Vec<(String, Spec)> {
    let resolver = |dns_servers, search_domains, layer| {
        spec(NetworkSpec::Resolver(ResolverSpec { dns_servers, layer, search_domains }))
    };
    let mut found: Vec<_> = leases
        .iter()
        .filter(|(_, lease)| !lease.resolvers.is_empty())
        .map(|(link, lease)| {
            let domains = lease.domain.iter().cloned().collect();
            (format!("{OPERATOR}/{link}/resolvers"), resolver(lease.resolvers.clone(), domains, OPERATOR))
        })
        .collect();
    let of_line = of_line(&runtime.parameters.network);
    if !of_line.is_empty() {
        found.push((format!("{CMDLINE}/resolvers"), resolver(of_line, Vec::new(), CMDLINE)));
    }
    if let Some(document) = runtime.document() {
        let network = &document.config.machine.network;
        let servers: Vec<String> = network.nameservers.iter().map(ToString::to_string).collect();
        if !servers.is_empty() || !network.search_domains.is_empty() {
            let layered = resolver(servers, network.search_domains.clone(), CONFIGURATION);
            found.push((format!("{CONFIGURATION}/resolvers"), layered));
        }
    }
    found
}

/// A name may stand in several lines.
fn static_hosts(runtime: &Runtime) -> Vec<(String, Spec)> {
    let Some(document) = runtime.document() else { return Vec::new() };
    let mut hosts = std::collections::BTreeMap::<String, Vec<String>>::new();
    for entry in &document.config.machine.network.extra_host_entries {
        for (name, address) in entry.aliases.iter().filter_map(|name| Some((name, entry.ip?))) {
            hosts.entry(name.clone()).or_default().push(address.to_string());
        }
    }
    let host = |(name, addresses)| (name, spec(NetworkSpec::StaticHost { addresses }));
    hosts.into_iter().map(host).collect()
}

#[cfg(test)]
mod tests {
    use runtime::store::MachineDocument;

    use super::*;

    const TEXT: &str = "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  network:\n    hostname: n1.example\n    nameservers: [9.9.9.9]\n    extraHostEntries: [{ip: 10.0.0.9, aliases: [db]}]\n    interfaces:\n      - interface: eth0\n        addresses: [10.0.0.7/24]\n        mtu: 1400\n        routes: [{network: 10.9.0.0/16, gateway: 10.0.0.1}]\n      - {interface: br0, bridge: {}}\n";

    fn put_config(runtime: &Runtime, text: &str) {
        let loaded = config::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let text = zeroize::Zeroizing::new(text.to_owned());
        let document = MachineDocument::new(text, loaded.config, loaded.documents);
        let config = Spec::MachineConfig(Arc::new(document));
        runtime.store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, "v1alpha1", config).unwrap();
    }

    fn lease(address: &str) -> DhcpLease {
        DhcpLease {
            address: address.to_owned(),
            server: "10.1.0.1".into(),
            gateway: Some("10.1.0.1".into()),
            resolvers: vec!["10.1.0.2".into()],
            time_servers: vec![],
            hostname: Some("leased".into()),
            domain: Some("lan".into()),
            search_domains: Vec::new(),
            lease_seconds: 60,
        }
    }

    fn ids(runtime: &Runtime, kind: &'static Definition) -> Vec<String> {
        runtime.store.list(kind).iter().map(|found| found.metadata.id.clone()).collect()
    }

    #[test]
    fn every_layer_has_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        put_config(&runtime, TEXT);
        let card = |name: &str| network_plan::Present {
            name: name.to_owned(),
            is_physical: name.starts_with("eth"),
            ..network_plan::Present::default()
        };
        let cards = ["eth0", "eth1", "lo", "wlan0"].map(card);
        let plan = network_plan::plan(
            &runtime.parameters,
            runtime.document().as_ref().map(|document| &*document.config),
            &[],
            &cards,
        );
        runtime
            .store
            .put(DHCP_LEASE.writer, &DHCP_LEASE, "eth1", Spec::DhcpLease(lease("10.1.0.5/24")))
            .unwrap();
        let leases = leases(&runtime);
        publish_links(&runtime, &plan, &leases);
        publish_names(&runtime, &leases);
        let expected = ["configuration/eth0/10.0.0.7/24", "operator/eth1/10.1.0.5/24"];
        assert_eq!(ids(&runtime, &ADDRESS_SPEC), expected);
        assert_eq!(
            ids(&runtime, &LINK_SPEC),
            ["configuration/br0", "configuration/eth0", "default/eth1", "default/lo"]
        );
        let expected =
            ["configuration/eth0/inet4/10.0.0.1/10.9.0.0/16/10", "operator/eth1/inet4/10.1.0.1//1024"];
        assert_eq!(ids(&runtime, &ROUTE_SPEC), expected);
        assert_eq!(ids(&runtime, &OPERATOR_SPEC), ["default/dhcp4/eth1"]);
        assert_eq!(ids(&runtime, &HOSTNAME_SPEC), ["configuration/hostname", "operator/eth1/hostname"]);
        assert_eq!(ids(&runtime, &RESOLVER_SPEC), ["configuration/resolvers", "operator/eth1/resolvers"]);
        assert_eq!(ids(&runtime, &STATIC_HOST), ["db"]);
        let link = runtime.store.get(&LINK_SPEC, "configuration/eth0").unwrap().spec.yaml().unwrap();
        assert!(link.contains("mtu: 1400\n") && link.contains("layer: configuration\n"), "{link}");
        let bridge = runtime.store.get(&LINK_SPEC, "configuration/br0").unwrap().spec.yaml().unwrap();
        assert!(bridge.contains("logical: true\n") && bridge.contains("kind: bridge\n"), "{bridge}");
        for kind in [&ADDRESS_SPEC, &LINK_SPEC, &ROUTE_SPEC, &OPERATOR_SPEC, &HOSTNAME_SPEC, &RESOLVER_SPEC] {
            for found in runtime.store.list(kind) {
                assert!(!found.spec.binary(kind.kind).unwrap().is_empty(), "{}", kind.kind);
            }
        }
    }

    #[tokio::test]
    async fn names_and_leases_are_followed_while_the_plan_stays() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        put_config(&runtime, TEXT);
        let (_planned, plan) = watch::channel(Arc::<Plan>::default());
        let mut changes = runtime.store.follow(&[&HOSTNAME_SPEC, &ADDRESS_SPEC]);
        let follower = tokio::spawn(follow(runtime.clone(), plan));
        let host = "configuration/hostname";
        let mut until = async |kind, id: &str, text: &str| {
            let is_there =
                || runtime.store.get(kind, id).is_some_and(|found| found.spec.yaml().unwrap().contains(text));
            while !is_there() {
                tokio::time::timeout(std::time::Duration::from_secs(20), changes.next()).await.unwrap();
            }
        };
        until(&HOSTNAME_SPEC, host, "hostname: n1\n").await;
        put_config(&runtime, &TEXT.replace("n1.example", "n2.example"));
        until(&HOSTNAME_SPEC, host, "hostname: n2\n").await;
        for address in ["10.1.0.5/24", "10.1.0.6/24"] {
            runtime
                .store
                .put(DHCP_LEASE.writer, &DHCP_LEASE, "eth1", Spec::DhcpLease(lease(address)))
                .unwrap();
            until(&ADDRESS_SPEC, &format!("operator/eth1/{address}"), address).await;
        }
        follower.abort();
    }
}
