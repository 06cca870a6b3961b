//! The DHCPv4 client of one link.
//!
//! Order: DISCOVER until an OFFER, REQUEST until an ACK, apply; at T1 renew with the server, from T2 with anyone,
//! and when the lease is over take the address away and begin again.
//! Fails by: asking again, ever more slowly, and saying once what is missing.
//! Source: RFC 2131 §4.4.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use rtnetlink::Handle;
use runtime::store::{DHCP_LEASE, Spec};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};

use super::apply;
use super::exchange::{Heard, Say, decode, encode};
use super::lease::Lease;
use super::link::Link;
use runtime::Runtime;

const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// First wait for an answer; doubled at each repeat.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(16);
/// Between renewals that nobody answers (spec/machine-facts.md §8.2: at least 5 s).
const LEAST_RENEW_WAIT: Duration = Duration::from_secs(5);
/// REQUESTs before the client begins again with DISCOVER.
const REQUESTS: u32 = 3;

struct Client {
    runtime: Arc<Runtime>,
    handle: Handle,
    link: Link,
    socket: UdpSocket,
}

/// Holds a lease on a link for as long as it is polled.
pub(crate) async fn run(runtime: Arc<Runtime>, handle: Handle, link: Link) {
    let socket = match open(&link.name) {
        Ok(socket) => socket,
        Err(error) => {
            return runtime.journal.warn(&format!("networkd: open a DHCP socket on {}: {error}", link.name));
        }
    };
    let client = Client { runtime, handle, link, socket };
    loop {
        let lease = client.acquire().await;
        client.hold(lease).await;
    }
}

/// A UDP socket that sends and receives on one link only, with or without an address there.
fn open(link: &str) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_broadcast(true)?;
    socket.bind_device(Some(link.as_bytes()))?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT).into())?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

fn exchange_id() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness an id is still an id.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_ne_bytes(bytes)
}

impl Client {
    /// Asks until a server grants a lease and the kernel has taken it.
    async fn acquire(&self) -> Lease {
        let (mut wait, mut said) = (FIRST_WAIT, String::new());
        loop {
            let fault = match self.try_acquire(wait).await {
                Ok(Some(lease)) => match apply::add(&self.handle, &self.link, &lease).await {
                    Ok(()) => {
                        self.announce(&lease);
                        return lease;
                    }
                    Err(error) => Some(error),
                },
                // It has waited for an answer.
                Ok(None) => None,
                Err(error) => Some(error),
            };
            if let Some(fault) = fault {
                if fault != said {
                    self.warn(&fault);
                    said = fault;
                }
                // A link that is down refuses at once.
                tokio::time::sleep(wait).await;
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn try_acquire(&self, wait: Duration) -> Result<Option<Lease>, String> {
        let xid = exchange_id();
        self.send(Say::Discover, xid, Ipv4Addr::BROADCAST).await?;
        let Some(Heard::Offer(offer)) = self.hear(xid, wait, |heard| matches!(heard, Heard::Offer(_))).await
        else {
            return Ok(None);
        };
        let Some(offer) = Lease::parse(&offer) else { return Ok(None) };
        for _ in 0..REQUESTS {
            self.send(
                Say::Request { address: offer.address, server: offer.server },
                xid,
                Ipv4Addr::BROADCAST,
            )
            .await?;
            match self.hear(xid, wait, |heard| !matches!(heard, Heard::Offer(_))).await {
                Some(Heard::Ack(ack)) => return Ok(Lease::parse(&ack)),
                Some(Heard::Nak) => return Ok(None),
                Some(Heard::Offer(_)) | None => {}
            }
        }
        Ok(None)
    }

    /// Renews a lease until it is over or taken back.
    async fn hold(&self, mut lease: Lease) {
        let mut granted = Instant::now();
        loop {
            tokio::time::sleep_until(granted + lease.renew_after).await;
            match self.renew(&lease, granted).await {
                Some(next) => {
                    granted = Instant::now();
                    self.change(&lease, &next).await;
                    lease = next;
                }
                None => {
                    self.runtime
                        .journal
                        .warn(&format!("networkd: {}: lease of {} is over", self.link.name, lease.address));
                    apply::remove(&self.handle, &self.link, &lease).await;
                    forget_lease(&self.runtime, &self.link.name);
                    return;
                }
            }
        }
    }

    async fn renew(&self, lease: &Lease, granted: Instant) -> Option<Lease> {
        let end = granted + lease.time;
        let rebind = granted + lease.rebind_after;
        let xid = exchange_id();
        loop {
            let now = Instant::now();
            if now >= end {
                return None;
            }
            let (to, until) = if now < rebind { (lease.server, rebind) } else { (Ipv4Addr::BROADCAST, end) };
            // Half of what is left, so that the questions grow denser towards the end (RFC 2131 §4.4.5).
            let wait = ((until - now) / 2).max(LEAST_RENEW_WAIT).min(end - now);
            if let Err(error) = self.send(Say::Renew { address: lease.address }, xid, to).await {
                self.warn(&error);
            }
            match self.hear(xid, wait, |heard| !matches!(heard, Heard::Offer(_))).await {
                Some(Heard::Ack(ack)) => {
                    if let Some(next) = Lease::parse(&ack) {
                        return Some(next);
                    }
                }
                Some(Heard::Nak) => return None,
                Some(Heard::Offer(_)) | None => {}
            }
        }
    }

    async fn change(&self, old: &Lease, new: &Lease) {
        if old == new {
            return;
        }
        if (old.address, old.prefix) != (new.address, new.prefix) {
            apply::remove(&self.handle, &self.link, old).await;
        }
        if let Err(error) = apply::add(&self.handle, &self.link, new).await {
            self.warn(&error);
        }
        self.announce(new);
    }

    fn announce(&self, lease: &Lease) {
        let resource = lease.resource();
        self.runtime.journal.say(&format!(
            "networkd: {}: {} from {} for {} s",
            self.link.name, resource.address, resource.server, resource.lease_seconds
        ));
        if let Err(error) =
            self.runtime.store.put(DHCP_LEASE.writer, &DHCP_LEASE, &self.link.name, Spec::DhcpLease(resource))
        {
            self.warn(&error.to_string());
        }
    }

    fn warn(&self, text: &str) {
        self.runtime.journal.warn(&format!("networkd: {}: {text}", self.link.name));
    }

    async fn send(&self, say: Say, xid: u32, to: Ipv4Addr) -> Result<(), String> {
        let packet = encode(say, xid, &self.link.hardware)?;
        let to = SocketAddr::from((to, SERVER_PORT));
        self.socket.send_to(&packet, to).await.map(drop).map_err(|e| format!("send {say:?} to {to}: {e}"))
    }

    /// Waits for an answer of the wanted kind.
    async fn hear(&self, xid: u32, wait: Duration, wanted: impl Fn(&Heard) -> bool) -> Option<Heard> {
        let listen = async {
            let mut packet = [0; 1500];
            loop {
                // An error of one packet (ICMP unreachable) says nothing about the next.
                let Ok((length, _)) = self.socket.recv_from(&mut packet).await else { continue };
                if let Some(heard) = decode(&packet[..length], xid, &self.link.hardware).filter(|h| wanted(h))
                {
                    return heard;
                }
            }
        };
        timeout(wait, listen).await.ok()
    }
}
/// The lease of a link is no longer shown.
pub(super) fn forget_lease(runtime: &Runtime, name: &str) {
    if let Err(error) = runtime.store.remove(DHCP_LEASE.writer, &DHCP_LEASE, name) {
        runtime.journal.warn(&format!("networkd: {error}"));
    }
}
