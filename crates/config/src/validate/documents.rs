//! Rules of the documents beside the v1alpha1 one.

use super::{Problems, host, kubernetes, machine, network, text, volumes};
use crate::documents::{
    AutoHostname, BGPInstanceConfig, ClientIdentifier, Document, ExtensionServiceConfig, LinkAddress,
    LinkRoute, NetworkRuleConfig, OWN_PREFIX, PortProtocol, RoutingRuleConfig, RuleAction, VerificationRule,
    VethConfig, VethPeer,
};
use crate::own;
use crate::selector::LinkExpression;
use std::{net::IpAddr, time::Duration};

pub(super) fn check(document: &Document, problems: &mut Problems) {
    if document.name() == Some("") {
        problems.add("name", "name must be specified");
    }
    links(document, problems);
    volumes::check(document, problems);
    host::check(document, problems);
    kubernetes::check(document, problems);
    match document {
        Document::HostnameConfig(d) => {
            // A patch sets a name over the generated `auto: stable` with `auto: off`.
            let is_set = !d.hostname.is_empty();
            if is_set == d.auto.is_some() && !(is_set && d.auto == Some(AutoHostname::Off)) {
                problems.add("hostname", "`hostname`, alone or with `auto: off`, or `auto` is needed");
            } else if !d.hostname.is_empty() && !text::is_host_name(&d.hostname) {
                problems.add(
                    "hostname",
                    format!("`{}` is not a host name: letters, digits and `-` only", d.hostname),
                );
            }
        }
        Document::ResolverConfig(d) => {
            for (index, _) in d.nameservers.iter().enumerate().filter(|(_, n)| n.address.is_none()) {
                problems
                    .add(format!("nameservers[{index}].address"), "missing; write the resolver's address");
            }
        }
        Document::StaticHostConfig(d) => {
            address_as_name(&d.name, problems);
            if d.hostnames.is_empty() {
                problems.add("hostnames", "at least one name is needed");
            }
            network::aliases(&d.hostnames, "hostnames", problems);
        }
        Document::Layer2VIPConfig(d) => address_as_name(&d.name, problems),
        Document::HCloudVIPConfig(d) => address_as_name(&d.name, problems),
        Document::TimeSyncConfig(d) => {
            if d.ntp.is_some() && d.ptp.is_some() {
                problems.add("ptp", "`ntp` is given too; keep one of them");
            }
            d.ntp.iter().for_each(|ntp| machine::time_servers(&ntp.servers, "ntp.servers", problems));
        }
        Document::EnvironmentConfig(d) => machine::variables(&d.variables, "variables", problems),
        Document::RegistryMirrorConfig(d) => {
            for (index, endpoint) in d.endpoints.iter().enumerate() {
                problems.expect(format!("endpoints[{index}].url"), text::http_url(&endpoint.url));
            }
        }
        Document::RegistryAuthConfig(d) => {
            let by_name = !d.username.is_empty() || d.password.is_some();
            let others = usize::from(d.auth.is_some()) + usize::from(d.identity_token.is_some());
            if usize::from(by_name) + others > 1 {
                problems.add(
                    "auth",
                    "more than one way to log in: keep `username` and `password`, `auth` or `identityToken`",
                );
            }
        }
        Document::RegistryTLSConfig(d) if !d.ca.is_empty() => {
            problems.expect("ca", text::certificates(&d.ca));
        }
        Document::ImageVerificationConfig(d) => {
            for (index, rule) in d.rules.iter().enumerate() {
                verification_rule(rule, &format!("rules[{index}]"), problems);
            }
        }
        Document::WatchdogTimerConfig(d) => {
            if !d.device.starts_with("/dev/") {
                problems.add("device", format!("`{}` is not a device: /dev/watchdog0", d.device));
            }
            if d.timeout.is_some_and(|t| t.0 < Duration::from_secs(10)) {
                problems.add("timeout", "at least 10s");
            }
        }
        Document::NetworkRuleConfig(d) => firewall_rule(d, problems),
        Document::RoutingRuleConfig(d) => routing_rule(d, problems),
        Document::BlackholeRouteConfig(d) => problems.expect("name", text::cidr(&d.name)),
        Document::TCPProbeConfig(d) => problems.expect("endpoint", text::host_and_port(&d.endpoint)),
        Document::HTTPProbeConfig(d) => problems.expect("url", text::http_url(&d.url)),
        Document::KmsgLogConfig(d) => problems.expect("url", text::log_receiver(&d.url)),
        Document::EventSinkConfig(d) => problems.expect("endpoint", text::host_and_port(&d.endpoint)),
        Document::ZswapConfig(d) if d.max_pool_percent.is_some_and(|p| p > 100) => {
            problems.add("maxPoolPercent", "0 to 100");
        }
        Document::ExtensionServiceConfig(d) if d.name.starts_with(OWN_PREFIX) => own_settings(d, problems),
        Document::WireguardConfig(d) => {
            problems.expect("privateKey", text::key_of_32_bytes(d.private_key.expose_secret()));
            for (index, peer) in d.peers.iter().enumerate() {
                problems.expect(format!("peers[{index}].publicKey"), text::key_of_32_bytes(&peer.public_key));
                if !peer.endpoint.is_empty() {
                    problems.expect(format!("peers[{index}].endpoint"), text::host_and_port(&peer.endpoint));
                }
                networks(&format!("peers[{index}].allowedIPs"), &peer.allowed_ips, problems);
            }
        }
        Document::LinkAliasConfig(d) => {
            if !d.name.is_empty() {
                problems.expect("name", text::link_name(&d.name));
            }
            let read = LinkExpression::read(&d.selector.expression);
            problems.expect("selector.match", read.map(drop).map_err(|fault| fault.to_string()));
        }
        Document::KubeSpanConfig(d) => {
            let excluded = d.filters.iter().map(|filters| &filters.exclude_advertised_networks);
            excluded.for_each(|list| networks("filters.excludeAdvertisedNetworks", list, problems));
        }
        Document::BGPInstanceConfig(d) => speaker(d, problems),
        Document::SideroLinkConfig(d) => {
            let url = d.api_url.expose_secret();
            if !url.starts_with("https://") && !url.starts_with("grpc://") {
                problems.add("apiUrl", "it begins with neither https:// nor grpc://");
            }
        }
        Document::PCIDriverRebindConfig(d) if d.target_driver.is_empty() => {
            problems.add("targetDriver", "missing; write the driver's name: vfio-pci");
        }
        _ => {}
    }
}

fn networks(field: &str, list: &[String], problems: &mut Problems) {
    for (index, network) in list.iter().enumerate() {
        problems.expect(format!("{field}[{index}]"), text::cidr(network));
    }
}

fn speaker(document: &BGPInstanceConfig, problems: &mut Problems) {
    if document.local_asn.unwrap_or_default() == 0 {
        problems.add("localASN", "missing; write the number of the autonomous system: 65001");
    }
    for (index, import) in document.import_routes.iter().enumerate() {
        let field = format!("importRoutes[{index}]");
        if import.bgp_instance.is_empty() {
            problems.add(format!("{field}.bgpInstance"), "missing; write the name of the other instance");
        }
        if import.prefixes.is_empty() {
            problems.add(format!("{field}.prefixes"), "missing; write the networks: [10.0.0.0/8]");
        }
        networks(&format!("{field}.prefixes"), &import.prefixes, problems);
    }
}

/// Settings of ours.
fn own_settings(document: &ExtensionServiceConfig, problems: &mut Problems) {
    if !document.config_files.is_empty() {
        problems.add("configFiles", "no file is read here; write settings as NAME=value into `environment`");
    }
    for problem in own::problems(document) {
        let field = problem.entry.map_or("name".to_owned(), |entry| format!("environment[{entry}]"));
        if problem.is_warning {
            problems.warn(field, problem.message);
        } else {
            problems.add(field, problem.message);
        }
    }
}

/// Priorities that the kernel (0: local, 32766: main, 32767: default) and KubeSpan have rules at.
const RESERVED_PRIORITIES: [u32; 4] = [0, 32500, 32766, 32767];

fn routing_rule(rule: &RoutingRuleConfig, problems: &mut Problems) {
    if !rule.name.parse().is_ok_and(|priority| !RESERVED_PRIORITIES.contains(&priority)) {
        problems.add("name", "the name is the priority, a number; 0, 32500, 32766 and 32767 are taken");
    }
    let looks_up = matches!(rule.action, None | Some(RuleAction::Unicast));
    if looks_up && rule.table.is_empty() {
        problems.add("table", "a rule that looks up needs a table; or write another `action`");
    }
    if rule.fw_mask != 0 && rule.fw_mark == 0 {
        problems.add("fwMask", "fwMask requires fwMark to be set");
    }
}

fn address_as_name(name: &str, problems: &mut Problems) {
    if !name.is_empty() && name.parse::<IpAddr>().is_err() {
        problems.add("name", format!("the name is the address; `{name}` is none"));
    }
}

fn links(document: &Document, problems: &mut Problems) {
    let (name, mtu, addresses, routes): (&str, Option<u32>, &[LinkAddress], &[LinkRoute]) = match document {
        Document::LinkConfig(d) => (&d.name, d.mtu, &d.addresses, &d.routes),
        Document::DummyLinkConfig(d) => (&d.name, d.mtu, &d.addresses, &d.routes),
        Document::VLANConfig(d) => (&d.name, d.mtu, &d.addresses, &d.routes),
        Document::BondConfig(d) => (&d.name, d.mtu, &d.addresses, &d.routes),
        Document::BridgeConfig(d) => (&d.name, d.mtu, &d.addresses, &d.routes),
        Document::WireguardConfig(d) => (&d.name, d.mtu, &d.addresses, &d.routes),
        Document::VRFConfig(d) => (&d.name, d.mtu, &d.addresses, &d.routes),
        Document::VethConfig(d) => (&d.name, d.mtu, &d.addresses, &d.routes),
        Document::DHCPv4Config(d) => (&d.name, None, &[], &[]),
        Document::DHCPv6Config(d) => (&d.name, None, &[], &[]),
        _ => return,
    };
    link("", (name, mtu, addresses, routes), problems);
    if let Some(address) = hardware_address(document).filter(|address| !address.is_empty()) {
        problems.expect("hardwareAddr", text::hardware_address(address));
    }
    match document {
        Document::VLANConfig(d) => {
            if !(1..=4094).contains(&d.vlan_id) {
                problems.add("vlanID", format!("{} is no VLAN number: 1 to 4094", d.vlan_id));
            }
            problems.expect("parent", text::link_name(&d.parent));
        }
        Document::DHCPv4Config(d) => client_identifier(d.client_identifier, &d.duid_raw, problems),
        Document::DHCPv6Config(d) => client_identifier(d.client_identifier, &d.duid_raw, problems),
        Document::VethConfig(d) => pair(d, problems),
        Document::BondConfig(d) if d.links.is_empty() => problems.add("links", "at least one link is needed"),
        Document::VRFConfig(d) if text::routing_table(&d.table).is_none() => {
            problems
                .add("table", format!("`{}` is no routing table: a number, default, main or local", d.table));
        }
        _ => {}
    }
}

/// The hardware address that a link is given.
fn hardware_address(document: &Document) -> Option<&str> {
    Some(match document {
        Document::DummyLinkConfig(d) => &d.hardware_addr,
        Document::BondConfig(d) => &d.hardware_addr,
        Document::BridgeConfig(d) => &d.hardware_addr,
        Document::VRFConfig(d) => &d.hardware_addr,
        _ => return None,
    })
}

/// What all links have. `place` is that of a link within a document.
fn link(
    place: &str,
    (name, mtu, addresses, routes): (&str, Option<u32>, &[LinkAddress], &[LinkRoute]),
    problems: &mut Problems,
) {
    if !name.is_empty() {
        problems.expect(format!("{place}name"), text::link_name(name));
    }
    network::mtu(mtu.unwrap_or_default(), format!("{place}mtu"), problems);
    for (index, address) in addresses.iter().enumerate() {
        problems.expect(format!("{place}addresses[{index}].address"), text::cidr(&address.address));
    }
    for (index, route) in routes.iter().enumerate() {
        if !route.destination.is_empty() {
            problems.expect(format!("{place}routes[{index}].destination"), text::cidr(&route.destination));
        } else if route.gateway.is_none() {
            problems.add(format!("{place}routes[{index}]"), "a route needs `destination`, `gateway` or both");
        }
    }
}

fn pair(d: &VethConfig, problems: &mut Problems) {
    let absent = VethPeer::default();
    let peer = d.peer.as_ref().unwrap_or(&absent);
    if peer.name.is_empty() {
        problems.add("peer.name", "missing; write the name of the other link of the pair");
    } else if peer.name == d.name {
        problems.add("peer.name", format!("`{}` cannot be a pair with itself; write another name", d.name));
    }
    link("peer.", (&peer.name, peer.mtu, &peer.addresses, &peer.routes), problems);
}

fn firewall_rule(rule: &NetworkRuleConfig, problems: &mut Problems) {
    let selector = &rule.port_selector;
    let has_ports = matches!(selector.protocol.unwrap_or_default(), PortProtocol::Tcp | PortProtocol::Udp);
    if has_ports && selector.ports.is_empty() {
        problems.add("portSelector.ports", "missing; write the ports: [10250, 8000-9000]");
    }
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port != 0);
    for (index, ports) in selector.ports.iter().enumerate() {
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let is_ordered = first.parse::<u16>().ok() <= last.parse::<u16>().ok();
        if !(is_port(first) && is_port(last) && is_ordered) {
            let text = format!("`{ports}` is no port and no range: 1 to 65535, 8000-9000");
            problems.add(format!("portSelector.ports[{index}]"), text);
        }
    }
    for (index, senders) in rule.ingress.iter().enumerate() {
        problems.expect(format!("ingress[{index}].subnet"), text::cidr(&senders.subnet));
        if !senders.except.is_empty() {
            problems.expect(format!("ingress[{index}].except"), text::cidr(&senders.except));
        }
    }
}

fn client_identifier(kind: Option<ClientIdentifier>, duid: &str, problems: &mut Problems) {
    let is_byte = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    // RFC 8415 §11.1: a kind of two bytes, and up to 128 behind it.
    let is_duid = duid.split(':').all(is_byte) && (3..=130).contains(&duid.split(':').count());
    if !duid.is_empty() && !is_duid {
        problems.add("duidRaw", format!("`{duid}` is no DUID: 3 to 130 bytes in hexadecimal, 00:01:ab"));
    } else if kind == Some(ClientIdentifier::Duid) && duid.is_empty() {
        problems.add("duidRaw", "`clientIdentifier: duid` needs the DUID in hexadecimal, 00:01:ab");
    }
}

fn verification_rule(rule: &VerificationRule, path: &str, problems: &mut Problems) {
    if rule.image.is_empty() {
        problems
            .add(format!("{path}.image"), "write registry and path of the images: registry.example.org/*");
    } else if !rule.image.contains(['/', '*']) {
        let text = format!("`{}` names no registry and fits no image: registry.example.org/*", rule.image);
        problems.add(format!("{path}.image"), text);
    }
    let (skip, deny) = (rule.skip == Some(true), rule.deny == Some(true));
    let actions = [skip, deny, rule.keyless.is_some(), rule.public_key.is_some()];
    if actions.iter().filter(|given| **given).count() != 1 {
        problems.add(path.to_owned(), "exactly one of `skip`, `deny`, `keyless` and `publicKey` is needed");
    }
    let is_signed = rule.keyless.is_some() || rule.public_key.is_some();
    if rule.verify.is_some_and(|verify| verify != is_signed) {
        let text = "`true` goes with `keyless` or `publicKey`; to leave images unchecked write `skip: true`";
        problems.add(format!("{path}.verify"), text);
    }
    let Some(key) = &rule.public_key else { return };
    let is_key = |label| key.certificate.contains(&format!("-----BEGIN {label}-----"));
    if !is_key("PUBLIC KEY") && !is_key("CERTIFICATE") {
        let text = "PEM of a PUBLIC KEY or CERTIFICATE is needed, as `cosign generate-key-pair` writes it";
        problems.add(format!("{path}.publicKey.certificate"), text);
    }
}
