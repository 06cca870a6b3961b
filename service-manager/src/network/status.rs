//! Links, addresses, routes and routing rules as resources.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, InfoVlan, InfoVrf, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage, Prop, VlanProtocol,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::{Handle, RouteMessageBuilder};
use runtime::store::{
    ADDRESS_STATUS, AddressStatus, BridgeStatus, LINK_STATUS, LinkStatus, ROUTE_STATUS, RouteStatus, Spec,
    VlanStatus, VrfStatus,
};

use super::link::Link;
use runtime::Runtime;

/// Reads the kernel's state, publishes it, and returns the links.
pub(super) async fn publish(runtime: &Runtime, handle: &Handle) -> Result<Vec<Link>, String> {
    let messages: Vec<LinkMessage> =
        handle.link().get().execute().try_collect().await.map_err(|e| format!("list links: {e}"))?;
    let mut links: Vec<Link> = messages.iter().map(link).collect();
    for link in &mut links {
        link.device = super::facts::device(&runtime.root, &link.name);
    }
    let names: BTreeMap<u32, &str> = links.iter().map(|link| (link.index, link.name.as_str())).collect();
    let statuses =
        messages.iter().zip(&links).map(|(message, link)| (link.name.clone(), link_status(message, link)));
    let replaced = runtime.store.replace(LINK_STATUS.writer, &LINK_STATUS, statuses.collect());
    replaced.map_err(|e| e.to_string())?;
    publish_addresses(runtime, handle, &names).await?;
    publish_routes(runtime, handle, &names).await?;
    super::rules::publish(runtime, handle).await?;
    Ok(links)
}

fn link(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let (up, carrier) = (flags.contains(LinkFlags::Up), flags.contains(LinkFlags::LowerUp));
    let multicast = flags.contains(LinkFlags::Multicast);
    let mut link = Link { index: message.header.index, up, carrier, multicast, ..Link::default() };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => link.name.clone_from(text),
            LinkAttribute::Address(bytes) => link.hardware.clone_from(bytes),
            LinkAttribute::PermAddress(bytes) => link.permanent.clone_from(bytes),
            LinkAttribute::Mtu(value) => link.mtu = *value,
            LinkAttribute::CarrierUpCount(count) => link.carrier_ups = *count,
            LinkAttribute::Controller(index) => link.controller = Some(*index),
            LinkAttribute::LinkInfo(infos) => link.kind = info_kind(infos).unwrap_or_default(),
            LinkAttribute::IfAlias(name) => link.alias.clone_from(name),
            LinkAttribute::PropList(properties) => link.alt_names = alt_names(properties),
            _ => {}
        }
    }
    link
}

fn link_status(message: &LinkMessage, link: &Link) -> Spec {
    let mut status = LinkStatus {
        index: link.index,
        kind_of_link: word(message.header.link_layer_type),
        kind: link.kind.clone(),
        hardware_addr: hardware_text(&link.hardware),
        permanent_addr: hardware_text(&link.permanent),
        mtu: link.mtu,
        master_index: link.controller,
        operational_state: "unknown".to_owned(),
        bus_path: link.device.bus_path.clone(),
        pci_id: link.device.pci_id.to_ascii_uppercase(),
        driver: link.device.driver.clone(),
        link_state: link.carrier,
        alias: link.alias.clone(),
        alt_names: link.alt_names.clone(),
        ..LinkStatus::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::OperState(value) => status.operational_state = word(value),
            LinkAttribute::Link(index) => status.link_index = *index,
            LinkAttribute::Broadcast(bytes) => status.broadcast_addr = hardware_text(bytes),
            LinkAttribute::Qdisc(name) => status.queue_disc.clone_from(name),
            LinkAttribute::LinkInfo(infos) => infos.iter().for_each(|info| describe(info, &mut status)),
            _ => {}
        }
    }
    Spec::LinkStatus(Box::new(status))
}

fn alt_names(properties: &[Prop]) -> Vec<String> {
    let named = properties.iter().filter_map(|property| match property {
        Prop::AltIfName(name) => Some(name.clone()),
        _ => None,
    });
    named.collect()
}

/// What the kernel tells of a kind of links.
fn describe(info: &LinkInfo, status: &mut LinkStatus) {
    match info {
        LinkInfo::PortKind(kind) => status.slave_kind = word(kind),
        LinkInfo::Data(InfoData::Vlan(data)) => {
            let id = data.iter().find_map(|it| if let InfoVlan::Id(id) = it { Some(*id) } else { None });
            let is_service = data.iter().any(|it| matches!(it, InfoVlan::Protocol(VlanProtocol::Ieee8021Ad)));
            let protocol = if is_service { "802.1ad" } else { "802.1q" };
            status.vlan = id.map(|id| VlanStatus { id, protocol });
        }
        LinkInfo::Data(InfoData::Bridge(data)) => {
            let mut bridge = BridgeStatus::default();
            for part in data {
                match part {
                    InfoBridge::StpState(state) => bridge.stp.enabled = *state != BridgeStpState::Disabled,
                    InfoBridge::VlanFiltering(on) => bridge.vlan.filtering_enabled = *on,
                    _ => {}
                }
            }
            status.bridge_master = Some(bridge);
        }
        LinkInfo::Data(InfoData::Vrf(data)) => {
            let table =
                data.iter().find_map(|it| if let InfoVrf::TableId(id) = it { Some(*id) } else { None });
            status.vrf_master = table.map(|table| VrfStatus { table: table_name(table) });
        }
        _ => {}
    }
}

fn info_kind(infos: &[LinkInfo]) -> Option<String> {
    let kind =
        infos.iter().find_map(|info| if let LinkInfo::Kind(kind) = info { Some(kind) } else { None })?;
    Some(match kind {
        InfoKind::Other(name) => name.clone(),
        known => format!("{known:?}").to_ascii_lowercase(),
    })
}

/// The kernel's value as clients know it: a word, or the number where it has none.
fn word(value: impl std::fmt::Debug) -> String {
    let text = format!("{value:?}").to_ascii_lowercase();
    match text.strip_prefix("other(").and_then(|rest| rest.strip_suffix(')')) {
        Some(number) => number.to_owned(),
        None => match text.as_str() {
            "universe" => "global".to_owned(),
            "icmpredirect" => "redirect".to_owned(),
            _ => text,
        },
    }
}

fn hardware_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

async fn publish_addresses(
    runtime: &Runtime,
    handle: &Handle,
    names: &BTreeMap<u32, &str>,
) -> Result<(), String> {
    let mut found = handle.address().get().execute();
    let mut statuses = Vec::new();
    while let Some(message) = found.try_next().await.map_err(|e| format!("list addresses: {e}"))? {
        let index = message.header.index;
        let name = names.get(&index).copied().unwrap_or_default();
        let address = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        let Some(address) = address else { continue };
        let cidr = format!("{address}/{}", message.header.prefix_len);
        let status = AddressStatus {
            address: cidr.clone(),
            link_index: index,
            link_name: name.to_owned(),
            family: family(address),
            scope: word(message.header.scope),
        };
        statuses.push((format!("{name}/{cidr}"), Spec::AddressStatus(status)));
    }
    runtime.store.replace(ADDRESS_STATUS.writer, &ADDRESS_STATUS, statuses).map_err(|e| e.to_string())
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "inet4" } else { "inet6" }
}

async fn publish_routes(
    runtime: &Runtime,
    handle: &Handle,
    names: &BTreeMap<u32, &str>,
) -> Result<(), String> {
    let mut everything = RouteMessageBuilder::<std::net::Ipv4Addr>::new().build();
    everything.header.address_family = AddressFamily::Unspec;
    let mut found = handle.route().get(everything).execute();
    let mut statuses = Vec::new();
    while let Some(message) = found.try_next().await.map_err(|e| format!("list routes: {e}"))? {
        // The kernel has routes of multicast routers and of MPLS, too.
        if matches!(message.header.address_family, AddressFamily::Inet | AddressFamily::Inet6) {
            let (id, status) = route_status(&message, names);
            statuses.push((id, Spec::RouteStatus(status)));
        }
    }
    runtime.store.replace(ROUTE_STATUS.writer, &ROUTE_STATUS, statuses).map_err(|e| e.to_string())
}

fn route_status(message: &RouteMessage, names: &BTreeMap<u32, &str>) -> (String, RouteStatus) {
    let text = |address: &RouteAddress| match address {
        RouteAddress::Inet(address) => address.to_string(),
        RouteAddress::Inet6(address) => address.to_string(),
        _ => String::new(),
    };
    let header = &message.header;
    let mut status = RouteStatus {
        family: if header.address_family == AddressFamily::Inet { "inet4" } else { "inet6" },
        dst: String::new(),
        src: String::new(),
        gateway: String::new(),
        out_link_name: String::new(),
        table: table(message),
        priority: 0,
        scope: word(header.scope),
        kind: word(header.kind),
        protocol: word(header.protocol),
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => {
                status.dst = format!("{}/{}", text(to), header.destination_prefix_length)
            }
            RouteAttribute::Gateway(via) => status.gateway = text(via),
            RouteAttribute::PrefSource(from) => status.src = text(from),
            RouteAttribute::Priority(metric) => status.priority = *metric,
            RouteAttribute::Oif(index) => {
                status.out_link_name = names.get(index).copied().unwrap_or_default().to_owned();
            }
            _ => {}
        }
    }
    // A route of the same destination may be in several tables.
    let in_table = if &*status.table == "main" { String::new() } else { format!("{}/", status.table) };
    let id = format!(
        "{in_table}{}/{}/{}/{}/{}",
        status.out_link_name, status.family, status.gateway, status.dst, status.priority
    );
    (id, status)
}

/// The table that a route is in.
fn table(message: &RouteMessage) -> Box<str> {
    let number = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(number) => Some(*number),
        _ => None,
    });
    table_name(number.unwrap_or_else(|| message.header.table.into()))
}

/// The name of a table, or its number.
pub(super) fn table_name(number: u32) -> Box<str> {
    match number {
        253 => "default".into(),
        254 => "main".into(),
        255 => "local".into(),
        other => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::RouteType;

    use super::*;

    #[test]
    fn a_route_has_its_table_and_type() {
        let mut message = RouteMessageBuilder::<std::net::Ipv4Addr>::new()
            .destination_prefix([10, 0, 2, 15].into(), 32)
            .output_interface(2)
            .build();
        let names = BTreeMap::from([(2, "eth0")]);
        let (id, main) = route_status(&message, &names);
        assert_eq!((id.as_str(), main.table.as_ref()), ("eth0/inet4//10.0.2.15/32/0", "main"));
        message.header.table = 255;
        message.header.kind = RouteType::Local;
        let (id, local) = route_status(&message, &names);
        assert_eq!(id, "local/eth0/inet4//10.0.2.15/32/0");
        assert_eq!((local.table.as_ref(), local.kind.as_str()), ("local", "local"));
        message.attributes.push(RouteAttribute::Table(1000));
        assert_eq!(route_status(&message, &names).1.table.as_ref(), "1000");
    }

    /// The loopback interface is up wherever tests run, and the kernel has a local route of its address.
    #[tokio::test]
    async fn routes_has_the_local_ones() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        let connection = tokio::spawn(connection);
        publish(&runtime, &handle).await.unwrap();
        connection.abort();
        let found = runtime.store.list(&ROUTE_STATUS);
        let local = found.iter().find_map(|resource| match &resource.spec {
            Spec::RouteStatus(route) if route.dst == "127.0.0.1/32" => Some(route.clone()),
            _ => None,
        });
        let local = local.unwrap_or_else(|| panic!("{found:?}"));
        assert_eq!(
            (local.table.as_ref(), local.kind.as_str(), local.scope.as_str()),
            ("local", "local", "host")
        );
        assert_eq!((local.out_link_name.as_str(), local.family), ("lo", "inet4"));
    }
}
