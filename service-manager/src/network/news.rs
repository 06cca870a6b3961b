//! Notifications of the kernel, message by message.
//!
//! Owns: the socket, and how much is read before other work has its turn.
//! Does not: read what is in a message (`view`).
//! Source: rtnetlink(7), netlink(7).

use std::io;

use futures_util::FutureExt;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE};
use rtnetlink::MulticastGroup;
use rustix::io::Errno;
use rustix::net::sockopt;

use super::exchange::messages;

const GROUPS: [u32; 8] = [
    MulticastGroup::Link as u32,
    MulticastGroup::Ipv4Ifaddr as u32,
    MulticastGroup::Ipv6Ifaddr as u32,
    MulticastGroup::Ipv4Route as u32,
    MulticastGroup::Ipv6Route as u32,
    MulticastGroup::Ipv4Rule as u32,
    MulticastGroup::Ipv6Rule as u32,
    NEXT_HOP,
];
/// `RTNLGRP_NEXTHOP`
const NEXT_HOP: u32 = 32;
/// Longer than any notification.
const DATAGRAM_BYTES: usize = 64 << 10;
/// What waits for machined while it has other work: thousands of routes. The kernel takes memory for what waits alone.
const QUEUE_BYTES: usize = 8 << 20;
/// Datagrams that are read in one turn.
const MOST: usize = 1024;

/// A socket of links, addresses, routes, their next hops and rules.
pub(super) struct News {
    socket: TokioSocket,
    /// The first datagram of a turn.
    buffer: Vec<u8>,
    is_overrun: bool,
}

impl News {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        let opened = socket.socket_mut();
        // Without the right to it, as in tests, it has what the machine allows.
        if sockopt::set_socket_recv_buffer_size_force(&*opened, QUEUE_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&*opened, QUEUE_BYTES)?;
        }
        opened.bind(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            opened.add_membership(group)?;
        }
        Ok(Self { socket, buffer: Vec::with_capacity(DATAGRAM_BYTES), is_overrun: false })
    }

    /// Waits until there is something. It may be dropped and called again.
    pub(super) async fn wait(&mut self) -> io::Result<()> {
        while self.buffer.is_empty() && !self.is_overrun {
            self.receive().await?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> io::Result<()> {
        match self.socket.recv(&mut self.buffer).await {
            Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                self.is_overrun = true
            }
            received => return received,
        }
        Ok(())
    }

    /// Gives what is there to `hear`, message by message; none in the place of what is no message. Answers whether messages were
    /// lost before or among these.
    pub(super) fn read<E: From<io::Error>>(
        &mut self,
        mut hear: impl FnMut(Option<&[u8]>) -> Result<(), E>,
    ) -> Result<bool, E> {
        for _ in 0..MOST {
            if self.buffer.is_empty() {
                let Some(received) = self.receive().now_or_never() else { break };
                received?;
            }
            // One that fills the buffer is cut off, and its last message is none.
            messages(&self.buffer).try_for_each(&mut hear)?;
            self.buffer.clear();
        }
        Ok(std::mem::take(&mut self.is_overrun))
    }
}

#[cfg(test)]
impl News {
    /// Takes the socket's room away.
    pub(super) fn shrink(&self) {
        sockopt::set_socket_recv_buffer_size(self.socket.socket_ref(), 4096).expect("a small queue");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::network::testing::{ip, is_inside};

    const DEADLINE: Duration = Duration::from_secs(10);

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
            "-6 route add fd00:8::/64 via fd00:9::2",
            "rule add pref 7 table 100",
            "-6 rule add pref 7 table 100",
            "nexthop add id 7 via 10.9.0.2 dev eth0",
        ] {
            // One that has heard of nothing before.
            let mut news = News::open().unwrap();
            ip(change);
            tokio::time::timeout(DEADLINE, news.wait()).await.expect(change).unwrap();
            let mut count = 0;
            let hear = |message: Option<&[u8]>| {
                count += usize::from(message.is_some());
                Ok::<(), io::Error>(())
            };
            assert!(!news.read(hear).unwrap(), "{change}");
            assert!(count > 0, "{change}");
        }
    }

    #[tokio::test]
    async fn what_is_lost_is_told_once() {
        if !is_inside("network::news::tests::what_is_lost_is_told_once") {
            return;
        }
        let mut news = News::open().unwrap();
        news.shrink();
        ip("link add eth0 type veth");
        for mtu in 1300..1340 {
            ip(&format!("link set eth0 mtu {mtu}"));
        }
        tokio::time::timeout(DEADLINE, news.wait()).await.unwrap().unwrap();
        let mut read = || news.read(|_| Ok::<(), io::Error>(())).unwrap();
        let first = read();
        assert!(first || read());
        assert!(!read());
    }
}
