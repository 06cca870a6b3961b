//! Notifications of the kernel: whether there is something new, and no more. What it is, is read anew (`dump`).
//!
//! Owns: that a message which cannot be read counts as news, and so does what was lost because too much came at once.
//! Source: rtnetlink(7), netlink(7).

use std::io;

use futures_util::FutureExt;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE};
use rtnetlink::MulticastGroup;
use rustix::io::Errno;

use super::exchange::messages;
use super::shared;

const GROUPS: [MulticastGroup; 6] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

/// A socket of links, addresses, IPv4 routes and rules.
pub(super) struct News(TokioSocket);

impl News {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            socket.socket_mut().add_membership(group as u32)?;
        }
        Ok(Self(socket))
    }

    /// Waits for a message that says something new.
    pub(super) async fn next(&mut self) -> io::Result<()> {
        loop {
            match self.0.recv_from_full().await {
                Ok((datagram, _)) if !messages(&datagram).any(is_news) => {}
                Err(error) if error.raw_os_error() != Some(Errno::NOBUFS.raw_os_error()) => {
                    return Err(error);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Forgets what has come.
    pub(super) fn forget(&mut self) {
        while let Some(Ok(())) = self.next().now_or_never() {}
    }
}

/// None is no message: what was to be there may have been news.
fn is_news(message: Option<&[u8]>) -> bool {
    let read = message.and_then(|bytes| NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).ok());
    !matches!(read.map(|read| read.payload),
        Some(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(address))) if shared::is_renewal(&address))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use netlink_packet_route::address::{AddressAttribute, AddressMessage, CacheInfo};

    use super::*;
    use crate::network::testing::{ip, is_inside};

    const DEADLINE: Duration = Duration::from_secs(10);

    /// An address that was made at the first time and changed at the second one.
    fn address(valid_seconds: u32, made: u32, changed: u32) -> Vec<u8> {
        let mut life = CacheInfo::default();
        (life.ifa_valid, life.cstamp, life.tstamp) = (valid_seconds, made, changed);
        let mut message = AddressMessage::default();
        message.attributes.push(AddressAttribute::CacheInfo(life));
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewAddress(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    #[test]
    fn a_shared_address_that_lives_on_is_no_news_and_what_cannot_be_read_is() {
        assert!(!is_news(Some(&address(1, 5, 6))));
        assert!(is_news(Some(&address(1, 5, 5))) && is_news(Some(&address(3600, 5, 6))));
        assert!(is_news(None));
        // A link whose header is cut off.
        let mut bytes = vec![0; 20];
        (bytes[0], bytes[4]) = (20, 16);
        assert!(is_news(Some(&bytes)));
    }

    #[tokio::test]
    async fn every_change_is_news() {
        if !is_inside("network::news::tests::every_change_is_news") {
            return;
        }
        ip("link add eth0 type veth peer name eth1");
        for change in [
            "link set eth0 mtu 1400",
            "link set eth0 up",
            "address add 10.9.0.1/24 dev eth0",
            "address add fd00:9::1/64 dev eth0",
            "link set eth1 up",
            "route add 10.8.0.0/16 via 10.9.0.2",
            "rule add pref 7 table 100",
            "-6 rule add pref 7 table 100",
        ] {
            // One that has heard of nothing before.
            let mut news = News::open().unwrap();
            ip(change);
            tokio::time::timeout(DEADLINE, news.next()).await.expect(change).unwrap();
        }
    }
}
