//! An address that a link has for a moment only: it is gone soon after the last renewal, whatever became of machined.
//!
//! Owns: the kernel's lifetime of a shared address, and how neighbours hear of a new holder.
//! Does not: decide who has it; `shared_address` does.
//! Source: rtnetlink(7), packet(7); RFC 5227 §3 (announcements), RFC 4861 §7.2.6.

use std::net::IpAddr;
use std::time::Duration;

use dhcp::frame::{self, Arp};
use futures_util::TryStreamExt;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, CacheInfo};
use netlink_packet_route::link::LinkAttribute;
use rtnetlink::Handle;
use sys::packet;

use super::advertisement::neighbour_advertisement;
use super::apply;
use super::owned::Owned;

/// Of a renewed address, in seconds. The kernel looks once a second: it is gone up to one second later.
const LIFETIME_SECONDS: u32 = 1;
/// What the kernel may take until a dead holder's address is gone.
pub(crate) const LIFETIME: Duration = Duration::from_secs(2);

/// A link that can have a shared address.
pub(crate) struct Place {
    handle: Handle,
    _connection: Owned,
    link: String,
    address: IpAddr,
}

impl Place {
    pub(crate) fn new(link: &str, address: IpAddr) -> Result<Self, String> {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|e| format!("open a netlink socket: {e}"))?;
        let connection = Owned(tokio::spawn(connection).abort_handle());
        Ok(Self { handle, _connection: connection, link: link.to_owned(), address })
    }

    /// Gives the address to the link, or lengthens its life.
    pub(crate) async fn hold(&self) -> Result<(), String> {
        let (index, _) = self.link().await?;
        let prefix = if self.address.is_ipv4() { 32 } else { 128 };
        let mut request = self.handle.address().add(index, self.address, prefix).replace();
        let message = request.message_mut();
        // It is not the node's: nothing that the node sends comes from it.
        let mut life = CacheInfo::default();
        (life.ifa_preferred, life.ifa_valid) = (0, LIFETIME_SECONDS);
        message.attributes.push(AddressAttribute::CacheInfo(life));
        if self.address.is_ipv6() {
            // The last holder may answer for a moment still.
            message.header.flags |= AddressHeaderFlags::Nodad;
        }
        request.execute().await.map_err(|e| format!("add address {}/{prefix}: {e}", self.address))
    }

    /// Tells the neighbours who has it.
    pub(crate) async fn announce(&self) -> Result<(), String> {
        let (index, hardware) = self.link().await?;
        let Some(hardware) = hardware else { return Ok(()) };
        let (address, link) = (self.address, &self.link);
        let failed = |error: &dyn std::fmt::Display| format!("announce {address} on {link}: {error}");
        let socket = packet::open(index, false, &[]).map_err(|error| failed(&error))?;
        let frame = match address {
            IpAddr::V4(address) => frame::arp_request(Arp { hardware, sender: address, target: address }),
            IpAddr::V6(address) => neighbour_advertisement(hardware, address),
        };
        packet::send(&socket, &frame).map_err(|error| failed(&error))
    }

    /// Takes the address away.
    pub(crate) async fn drop_address(&self) -> Result<(), String> {
        let (index, _) = self.link().await?;
        apply::remove(&self.handle, index, self.address).await;
        Ok(())
    }

    /// The link's number, and its address if it is an Ethernet one.
    async fn link(&self) -> Result<(u32, Option<[u8; 6]>), String> {
        let mut found = self.handle.link().get().match_name(self.link.clone()).execute();
        let link = found.try_next().await.map_err(|e| format!("link {}: {e}", self.link))?;
        let link = link.ok_or_else(|| format!("there is no link {}", self.link))?;
        let hardware = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Address(address) => address.as_slice().try_into().ok(),
            _ => None,
        });
        Ok((link.header.index, hardware))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::testing::{Neighbour, ip, is_inside, until};
    use super::*;

    fn has(address: &str) -> bool {
        ip("-brief address show dev eth0").contains(address)
    }

    #[tokio::test]
    async fn an_address_that_is_not_renewed_is_gone_before_another_node_may_have_it() {
        if !is_inside(
            "network::shared::tests::an_address_that_is_not_renewed_is_gone_before_another_node_may_have_it",
        ) {
            return;
        }
        let neighbour = Neighbour::start();
        for address in ["10.9.0.1/24", "fd00:9::1/64"] {
            neighbour.ip(&format!("address add {address} dev srv0"));
        }
        let shown = ip("-brief link show dev eth0");
        let own = shown.split_whitespace().nth(2).unwrap();
        for text in ["10.9.0.100", "fd00:9::100"] {
            let place = Place::new("eth0", text.parse().unwrap()).unwrap();
            // Longer than its life.
            let begin = Instant::now();
            while begin.elapsed() < 2 * LIFETIME {
                place.hold().await.unwrap();
                assert!(has(text), "it went while it was renewed");
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            // The neighbour has it with another node.
            neighbour.ip(&format!("neigh replace {text} lladdr 02:00:00:00:00:99 dev srv0 nud stale"));
            let knows = || neighbour.ip(&format!("neigh show {text} dev srv0")).contains(own);
            let begin = Instant::now();
            // A neighbour that has just heard of another holder does not believe at once.
            while !knows() {
                assert!(begin.elapsed() < Duration::from_secs(60), "{text} stays with the last holder");
                place.announce().await.unwrap();
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            let last = Instant::now();
            place.hold().await.unwrap();
            until("the address is gone", || !has(text)).await;
            // The test looks seldom, and the machine has other work.
            assert!(last.elapsed() < LIFETIME + Duration::from_millis(500), "{:?}", last.elapsed());
            place.hold().await.unwrap();
            place.drop_address().await.unwrap();
            assert!(!has(text));
        }
        let error = Place::new("gone0", "10.9.0.100".parse().unwrap()).unwrap().hold().await.unwrap_err();
        assert!(error.contains("gone0"), "{error}");
    }
}
