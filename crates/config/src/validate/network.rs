//! Rules of `machine.network`.

use super::{Problems, text};
use crate::documents::Document;
use crate::v1alpha1::{Bond, BondMode, Config, DhcpOptions, Interface, Machine, Route, Vip, Vlan, Wireguard};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub(super) fn check(machine: &Machine, problems: &mut Problems) {
    let network = &machine.network;
    if !network.hostname.is_empty() && !text::is_host_name(&network.hostname) {
        let message = format!("`{}` is not a host name: letters, digits and `-` only", network.hostname);
        problems.add("machine.network.hostname", message);
    }
    for (index, entry) in network.extra_host_entries.iter().enumerate() {
        let field = format!("machine.network.extraHostEntries[{index}]");
        if entry.ip.is_none() {
            problems.add(format!("{field}.ip"), "missing; write the address of these names");
        }
        aliases(&entry.aliases, &format!("{field}.aliases"), problems);
    }
    for (index, entry) in network.interfaces.iter().enumerate() {
        interface(entry, machine, &format!("machine.network.interfaces[{index}]"), problems);
    }
}

/// Names of an address.
pub(super) fn aliases(names: &[String], field: &str, problems: &mut Problems) {
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !text::is_host_name(name)) {
        problems.add(format!("{field}[{index}]"), format!("`{name}` is not a host name"));
    }
}

fn interface(entry: &Interface, machine: &Machine, field: &str, problems: &mut Problems) {
    let name = &entry.interface;
    match (name.is_empty(), &entry.device_selector) {
        (true, None) if !entry.ignore => {
            problems.add(
                format!("{field}.interface"),
                "[networking.os.device.interface]: required config section",
            );
        }
        (false, Some(_)) => {
            problems.add(format!("{field}.deviceSelector"), "`interface` is given too; keep one of them");
        }
        (false, None) => problems.expect(format!("{field}.interface"), text::link_name(name)),
        _ => {}
    }
    addressing(name, &entry.cidr, &entry.addresses, field, problems);
    if entry.uses_dhcp() && !entry.cidr.is_empty() {
        let message = format!(
            "[networking.os.device] {name:?}: invalid network device addressing method: dhcp and cidr exclude each other"
        );
        problems.add(format!("{field}.dhcp"), message);
    }
    routes(&entry.routes, field, problems);
    client(entry.dhcp_options.as_ref(), field, problems);
    mtu(entry.mtu, format!("{field}.mtu"), problems);
    vlans(entry, machine, field, problems);
    if let Some(settings) = &entry.bond {
        bond(settings, name, &format!("{field}.bond"), problems);
    }
    if let Some(settings) = &entry.wireguard {
        wireguard(settings, &format!("{field}.wireguard"), problems);
    }
    if let Some(shared) = &entry.vip {
        vip(shared, machine, &format!("{field}.vip"), problems);
    }
}

fn addressing(name: &str, cidr: &str, addresses: &[String], field: &str, problems: &mut Problems) {
    if !cidr.is_empty() && !text::is_link_address(cidr) {
        let message = format!(
            "[networking.os.device.CIDR] {name:?}: `{cidr}` is not an address with prefix length: 10.0.0.2/24"
        );
        problems.add(format!("{field}.cidr"), message);
    }
    alone(cidr, &format!("{field}.cidr"), problems);
    for (index, address) in addresses.iter().enumerate() {
        let field = format!("{field}.addresses[{index}]");
        if !text::is_link_address(address) {
            problems.expect(field.as_str(), text::cidr(address));
        }
        alone(address, &field, problems);
    }
}

/// Warns of an address whose prefix length was probably forgotten.
fn alone(address: &str, field: &str, problems: &mut Problems) {
    if let Ok(address) = address.parse::<IpAddr>() {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let message =
            format!("read as {address}/{length}: no neighbour on the link is reached without a route");
        problems.warn(field, message);
    }
}

fn routes(routes: &[Route], field: &str, problems: &mut Problems) {
    for (index, route) in routes.iter().enumerate() {
        let field = format!("{field}.routes[{index}]");
        if !route.network.is_empty() {
            problems.expect(format!("{field}.network"), text::cidr(&route.network));
        }
        for (key, address) in [("gateway", &route.gateway), ("source", &route.source)] {
            if !address.is_empty() && address.parse::<IpAddr>().is_err() {
                problems.add(format!("{field}.{key}"), format!("`{address}` is not an IP address"));
            }
        }
        if route.network.is_empty() && route.gateway.is_empty() {
            problems.add(field, "a route needs `network`, `gateway` or both");
        }
    }
}

fn client(options: Option<&DhcpOptions>, field: &str, problems: &mut Problems) {
    let duid = options.map(|options| options.duidv6.as_str()).unwrap_or_default();
    let digits = duid.bytes().filter(|digit| *digit != b':').count();
    let is_hex = duid.bytes().all(|digit| digit.is_ascii_hexdigit() || digit == b':');
    let is_duid = is_hex && digits.is_multiple_of(2) && (6..=260).contains(&digits);
    if !duid.is_empty() && !is_duid {
        let message = format!("`{duid}` is no DUID: 3 to 130 bytes in hexadecimal, 00030001020000000001");
        problems.add(format!("{field}.dhcpOptions.duidv6"), message);
    }
}

/// The kernel's least for IPv4 is 68, and 65535 is the most that a packet can have.
pub(super) fn mtu(mtu: u32, field: impl Into<String>, problems: &mut Problems) {
    if mtu != 0 && !(68..=65535).contains(&mtu) {
        problems.add(field, format!("{mtu} is no packet size: 68 to 65535"));
    }
}

fn vlans(entry: &Interface, machine: &Machine, field: &str, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (index, Vlan { vlan_id, cidr, addresses, routes: own, vip: shared, mtu: size, dhcp_options, .. }) in
        entry.vlans.iter().enumerate()
    {
        let field = format!("{field}.vlans[{index}]");
        if !(1..=4094).contains(vlan_id) {
            problems.add(format!("{field}.vlanId"), format!("{vlan_id} is no VLAN number: 1 to 4094"));
        } else if !seen.insert(*vlan_id) {
            problems.add(format!("{field}.vlanId"), format!("duplicate VLAN id  {vlan_id} given"));
        }
        addressing(&format!("{}.{vlan_id}", entry.interface), cidr, addresses, &field, problems);
        routes(own, &field, problems);
        client(dhcp_options.as_ref(), &field, problems);
        mtu(*size, format!("{field}.mtu"), problems);
        if let Some(shared) = shared {
            vip(shared, machine, &format!("{field}.vip"), problems);
        }
    }
}

fn bond(bond: &Bond, name: &str, field: &str, problems: &mut Problems) {
    if bond.interfaces.is_empty() && bond.device_selectors.is_empty() {
        let message =
            format!("invalid bond configuration for {name}: must supply sub interfaces for bonded interface");
        problems.add(format!("{field}.interfaces"), message);
    }
    let mode = bond.mode.unwrap_or_default();
    if bond.lacp_rate.is_some() && mode != BondMode::Lacp {
        problems.add(format!("{field}.lacpRate"), "bond.lacpRate is only available in 802.3ad mode");
    }
    for (key, delay) in [("updelay", bond.updelay), ("downdelay", bond.downdelay)] {
        if delay != 0 && bond.miimon == 0 {
            problems.add(format!("{field}.{key}"), format!("bond.{key} needs miimon"));
        } else if delay != 0 && delay % bond.miimon != 0 {
            problems.add(
                format!("{field}.{key}"),
                format!("bond.{key} should be a multiple of miimon, {}", bond.miimon),
            );
        }
    }
    if bond.miimon != 0 && bond.arp_interval != 0 {
        problems.add(format!("{field}.arpInterval"), "bond.arpInterval and bond.miimon exclude each other");
    }
}

fn wireguard(wireguard: &Wireguard, field: &str, problems: &mut Problems) {
    problems
        .expect(format!("{field}.privateKey"), text::key_of_32_bytes(wireguard.private_key.expose_secret()));
    for (index, peer) in wireguard.peers.iter().enumerate() {
        let field = format!("{field}.peers[{index}]");
        problems.expect(format!("{field}.publicKey"), text::key_of_32_bytes(&peer.public_key));
        if !peer.endpoint.is_empty() {
            problems.expect(format!("{field}.endpoint"), text::host_and_port(&peer.endpoint));
        }
        for (place, network) in peer.allowed_ips.iter().enumerate() {
            problems.expect(format!("{field}.allowedIPs[{place}]"), text::cidr(network));
        }
    }
}

fn vip(vip: &Vip, machine: &Machine, field: &str, problems: &mut Problems) {
    if !machine.machine_type.is_control_plane() {
        problems.add(field, "virtual (shared) IP is not allowed on non-controlplane nodes");
    }
    if vip.ip.parse::<IpAddr>().is_err() {
        problems.add(
            format!("{field}.ip"),
            format!("[networking.os.device.vip] failed to parse {:?} as IP address", vip.ip),
        );
    }
}

/// Who is a member of what, over sections and documents: a link has one controller, and the kernel would take the first and
/// refuse the second at run time.
pub(super) fn members(config: &Config, documents: &[Document], problems: &mut Problems) {
    let mut seen = BTreeMap::new();
    problems.document = None;
    for (index, entry) in config.machine.network.interfaces.iter().enumerate() {
        section(entry, &format!("machine.network.interfaces[{index}]"), &mut seen, problems);
    }
    for (index, document) in documents.iter().enumerate() {
        let (name, links) = match document {
            Document::BondConfig(d) => (&d.name, &d.links),
            Document::BridgeConfig(d) => (&d.name, &d.links),
            Document::VRFConfig(d) => (&d.name, &d.links),
            Document::VLANConfig(d) => {
                if !d.name.is_empty() && d.name == d.parent {
                    problems.document = Some(index);
                    let message = format!("`{}` cannot be a VLAN of itself; write another `name`", d.name);
                    problems.add("parent", message);
                }
                continue;
            }
            _ => continue,
        };
        problems.document = Some(index);
        for (place, member) in links.iter().enumerate() {
            join(member, name, format!("links[{place}]"), &mut seen, problems);
        }
    }
    problems.document = None;
}

type Seen<'c> = BTreeMap<&'c str, &'c str>;

fn section<'c>(entry: &'c Interface, field: &str, seen: &mut Seen<'c>, problems: &mut Problems) {
    let name = entry.interface.as_str();
    let bond = entry.bond.iter().map(|bond| ("bond", &bond.interfaces));
    let bridge = entry.bridge.iter().map(|bridge| ("bridge", &bridge.interfaces));
    for (kind, members) in bond.chain(bridge) {
        for (place, member) in members.iter().enumerate() {
            join(member, name, format!("{field}.{kind}.interfaces[{place}]"), seen, problems);
        }
    }
    if let Some(port) = entry.bridge_port.as_ref().filter(|port| !port.master.is_empty()) {
        join(name, &port.master, format!("{field}.bridgePort.master"), seen, problems);
    }
}

fn join<'c>(
    member: &'c str,
    controller: &'c str,
    field: String,
    seen: &mut Seen<'c>,
    problems: &mut Problems,
) {
    if member == controller {
        let message = format!("`{member}` cannot be a member of itself");
        return problems.add(field, message);
    }
    match seen.insert(member, controller) {
        Some(other) if other != controller => {
            let message =
                format!("`{member}` is a member of {other} already; a link is in one bond, bridge or VRF");
            problems.add(field, message);
        }
        _ => {}
    }
}
