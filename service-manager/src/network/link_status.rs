//! A link as a resource.
//!
//! Owns: what netlink tells of a link, in the words of clients.
//! Does not: ask the kernel: what a card and a tunnel tell besides is read elsewhere (`card`, `wireguard_status`).
//! Source: rtnetlink(7), include/uapi/linux/if_link.h.

use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, InfoVlan, InfoVrf, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage, Prop, VlanProtocol,
};
use runtime::store::{BridgeStatus, LinkStatus, VlanStatus, VrfStatus};

use super::bond_status;
use super::card::Card;
use super::link::Link;
use super::words::{hardware_text, table_name, word};

pub(super) fn link(message: &LinkMessage) -> Link {
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

/// `card`: what its card tells, if it has one.
pub(super) fn link_status(message: &LinkMessage, link: &Link, card: &Card) -> LinkStatus {
    let mut status = LinkStatus {
        index: link.index,
        kind_of_link: word(message.header.link_layer_type),
        kind: link.kind.clone(),
        flags: message.header.flags.bits(),
        hardware_addr: hardware_text(&link.hardware),
        permanent_addr: hardware_text(&link.permanent),
        mtu: link.mtu,
        master_index: link.controller,
        operational_state: "unknown".to_owned(),
        bus_path: link.device.bus_path.clone(),
        pci_id: link.device.pci_id.to_ascii_uppercase(),
        driver: link.device.driver.clone(),
        driver_version: card.driver_version.clone(),
        firmware_version: card.firmware_version.clone(),
        vendor_id: card.vendor_id.clone(),
        product_id: card.product_id.clone(),
        vendor: card.vendor.clone(),
        product: card.product.clone(),
        speed_mbit: card.media.speed_mbit,
        port: card.media.port,
        duplex: card.media.duplex,
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
    status
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
        LinkInfo::Data(InfoData::Bond(data)) => {
            status.bond_master = Some(Box::new(bond_status::status(data)))
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
