//! A lease into the kernel: address, MTU, routes; and out again.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dhcp::{Lease, Settings};
use futures_util::TryStreamExt;
use netlink_packet_route::address::{AddressAttribute, CacheInfo};
use netlink_packet_route::route::{RouteMessage, RouteProtocol, RouteScope};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use super::link::Link;

/// What is asked, and what becomes of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) settings: Settings,
    /// Of the routes.
    pub(super) metric: u32,
    pub(super) takes_routes: bool,
}

/// Makes of what the link has of an earlier lease what it is to have of this one, for as long as remains of it. Answers what the
/// kernel refused; the rest is done.
pub(super) async fn bring(
    handle: &Handle,
    link: &Link,
    old: Option<(&Asked, &Lease)>,
    (asked, lease): (&Asked, &Lease),
    remaining: Duration,
) -> Vec<String> {
    let mut refusals = Vec::new();
    let wanted = routes(link, asked, lease);
    if let Some((asked, old)) = old {
        for (_, message) in routes(link, asked, old).into_iter().filter(|route| !wanted.contains(route)) {
            // It may have gone with its address.
            let _ = handle.route().del(message).execute().await;
        }
        if (old.address, old.prefix) != (lease.address, lease.prefix) {
            remove(handle, link.index, old.address.into()).await;
        }
    }
    if let Some(mtu) = lease.mtu {
        let message = LinkUnspec::new_with_index(link.index).mtu(mtu.into()).build();
        let set = handle.link().set(message).execute().await;
        refusals.extend(set.err().map(|e| format!("set MTU {mtu}: {e}")));
    }
    let mut request = handle.address().add(link.index, IpAddr::V4(lease.address), lease.prefix).replace();
    // All ones stand for ever, here and in a lease.
    let seconds = u32::try_from(remaining.as_secs()).unwrap_or(u32::MAX);
    let mut life = CacheInfo::default();
    (life.ifa_preferred, life.ifa_valid) = (seconds, seconds);
    request.message_mut().attributes.push(AddressAttribute::CacheInfo(life));
    let added = request.execute().await;
    refusals.extend(added.err().map(|e| format!("add address {}/{}: {e}", lease.address, lease.prefix)));
    for (name, message) in wanted {
        let added = handle.route().add(message).replace().execute().await;
        refusals.extend(added.err().map(|e| format!("add route to {name}: {e}")));
    }
    refusals
}

/// Routes by name, those on the link first: the others may go through them.
fn routes(link: &Link, asked: &Asked, lease: &Lease) -> Vec<(String, RouteMessage)> {
    if !asked.takes_routes {
        return Vec::new();
    }
    let (direct, further): (Vec<_>, Vec<_>) =
        lease.routes.iter().partition(|(_, _, via)| via.is_unspecified());
    let ordered = direct.into_iter().chain(further);
    let named = |&(destination, prefix, via): &(Ipv4Addr, u8, Ipv4Addr)| {
        let builder = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(destination, prefix)
            .output_interface(link.index)
            .pref_source(lease.address)
            .protocol(RouteProtocol::Dhcp)
            .priority(asked.metric);
        let builder =
            if via.is_unspecified() { builder.scope(RouteScope::Link) } else { builder.gateway(via) };
        (format!("{destination}/{prefix} via {via}"), builder.build())
    };
    ordered.map(named).collect()
}

/// Takes an address away; its routes go with it.
pub(super) async fn remove(handle: &Handle, link: u32, address: IpAddr) {
    let mut found = handle.address().get().set_link_index_filter(link).set_address_filter(address).execute();
    while let Ok(Some(message)) = found.try_next().await {
        // Another program may have removed it in the meantime.
        let _ = handle.address().del(message).execute().await;
    }
}
