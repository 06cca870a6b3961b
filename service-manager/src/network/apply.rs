//! A lease into the kernel: address, MTU, routes; and out again.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_route::route::{RouteProtocol, RouteScope};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use super::lease::Lease;
use super::link::Link;

/// Metric of routes that DHCP gives (spec/machine-facts.md §8.2).
pub(super) const METRIC: u32 = 1024;

/// Gives the link what the lease grants; what is there already stays.
pub(super) async fn add(handle: &Handle, link: &Link, lease: &Lease) -> Result<(), String> {
    if let Some(mtu) = lease.mtu {
        let message = LinkUnspec::new_with_index(link.index).mtu(mtu.into()).build();
        handle.link().set(message).execute().await.map_err(|e| format!("set MTU {mtu}: {e}"))?;
    }
    let request = handle.address().add(link.index, IpAddr::V4(lease.address), lease.prefix).replace();
    request.execute().await.map_err(|e| format!("add address {}/{}: {e}", lease.address, lease.prefix))?;
    for &(destination, prefix, via) in &lease.routes {
        let request = handle.route().add(route(link, lease, destination, prefix, via)).replace();
        request.execute().await.map_err(|e| format!("add route to {destination}/{prefix} via {via}: {e}"))?;
    }
    Ok(())
}

fn route(
    link: &Link,
    lease: &Lease,
    destination: Ipv4Addr,
    prefix: u8,
    via: Ipv4Addr,
) -> netlink_packet_route::route::RouteMessage {
    let builder = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(destination, prefix)
        .output_interface(link.index)
        .pref_source(lease.address)
        .protocol(RouteProtocol::Dhcp)
        .priority(METRIC);
    if via.is_unspecified() { builder.scope(RouteScope::Link).build() } else { builder.gateway(via).build() }
}

/// Takes the address away; its routes go with it.
pub(super) async fn remove(handle: &Handle, link: &Link, lease: &Lease) {
    use futures_util::TryStreamExt;
    let mut found = handle
        .address()
        .get()
        .set_link_index_filter(link.index)
        .set_address_filter(lease.address.into())
        .execute();
    while let Ok(Some(message)) = found.try_next().await {
        // Someone else may have removed it in the meantime.
        let _ = handle.address().del(message).execute().await;
    }
}
