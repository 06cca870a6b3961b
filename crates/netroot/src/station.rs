//! This machine on the network: an address, names, one connection at a time.
//!
//! Owns: the turns of smoltcp's interface between the link's frames and the sockets.
//! Does not: retry; [`crate::fetch`] does, DHCP and DNS by themselves.
//! Order: an address, then everything else.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv4Addr;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::dhcpv4::Event;
use smoltcp::socket::dns::GetQueryResultError;
use smoltcp::socket::{dhcpv4, dns, tcp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{DnsQueryType, EthernetAddress, HardwareAddress, IpAddress, IpCidr, Ipv4Cidr};

use crate::frames::{Frames, Wire};
use crate::{ADDRESS_LIMIT_NS, Broken, CONNECT_LIMIT_NS, Error, Link, NAME_LIMIT_NS, SECOND_NS, Tone};

/// What may be on its way at once. The kernel's queue of a packet socket has to hold it.
const WINDOW_BYTES: usize = 512 << 10;

/// Requests are short.
const REQUEST_BYTES: usize = 4 << 10;

/// DHCP's own first interval is ten seconds (RFC 2131 §4.1), for networks of another age.
const DISCOVER_AGAIN: Duration = Duration::from_secs(3);

/// First of the ports for connections of a moment (RFC 6335).
const FIRST_PORT: u16 = 49_152;
const PORTS: u16 = 16_384;

/// How the machine is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// The card's address.
    pub mac: [u8; 6],
    /// The VLAN that the servers are on; `None`: frames without tag.
    pub vlan: Option<u16>,
    /// `None`: DHCP gives one.
    pub lease: Option<Lease>,
    /// For numbers that others should not guess.
    pub seed: u64,
}

/// An address and what comes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// This machine's.
    pub address: Ipv4Addr,
    /// How many bits of it are the network's; at most 32.
    pub prefix: u8,
    /// The way out of that network.
    pub gateway: Option<Ipv4Addr>,
    /// Who knows names; three at most are asked.
    pub dns: Vec<Ipv4Addr>,
    /// Who gave it, if it was DHCP.
    pub from: Option<Ipv4Addr>,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address {}/{}", self.address, self.prefix)?;
        self.gateway.map_or(Ok(()), |gateway| write!(f, ", gateway {gateway}"))?;
        self.dns.iter().try_for_each(|server| write!(f, ", name server {server}"))?;
        self.from.map_or(Ok(()), |from| write!(f, ", from the DHCP server {from}"))
    }
}

/// A machine on the network.
pub struct Station {
    interface: Interface,
    sockets: SocketSet<'static>,
    frames: Frames,
    setup: Setup,
    dhcp: Option<SocketHandle>,
    names: Option<SocketHandle>,
    connections: u16,
}

impl Station {
    /// A machine without an address.
    pub fn new(link: &mut dyn Link, setup: Setup) -> Self {
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(setup.mac)));
        config.random_seed = setup.seed;
        let mut frames = Frames::new(setup.vlan);
        let now = instant(link.now_ns());
        let interface = Interface::new(config, &mut Wire { link, frames: &mut frames }, now);
        let sockets = SocketSet::new(Vec::new());
        Self { interface, sockets, frames, setup, dhcp: None, names: None, connections: 0 }
    }

    /// The address of the setup, or one from DHCP.
    pub fn take_address(&mut self, link: &mut dyn Link) -> Result<Lease, Error> {
        let lease = match self.setup.lease.clone() {
            Some(lease) => lease,
            None => self.ask_for_address(link)?,
        };
        self.apply(&lease);
        let others: Vec<String> =
            self.frames.servers.iter().filter(|s| Some(**s) != lease.from).map(ToString::to_string).collect();
        if !others.is_empty() {
            link.say(
                Tone::Warning,
                format_args!("another DHCP server is on this network: {}", others.join(", ")),
            );
        }
        Ok(lease)
    }

    fn ask_for_address(&mut self, link: &mut dyn Link) -> Result<Lease, Error> {
        let mut socket = dhcpv4::Socket::new();
        let mut retry = socket.get_retry_config();
        retry.discover_timeout = DISCOVER_AGAIN;
        socket.set_retry_config(retry);
        let handle = self.sockets.add(socket);
        // It stays, and renews the lease while the root is fetched.
        self.dhcp = Some(handle);
        let deadline = link.now_ns() + ADDRESS_LIMIT_NS;
        loop {
            self.turn(link)?;
            if let Some(lease) = self.dhcp_lease() {
                return Ok(lease);
            }
            if link.now_ns() >= deadline {
                return Err(Error::NoAddress { heard: self.frames.servers.clone() });
            }
            self.wait(link, deadline)?;
        }
    }

    /// What DHCP gave, if that is new.
    fn dhcp_lease(&mut self) -> Option<Lease> {
        match self.sockets.get_mut::<dhcpv4::Socket<'_>>(self.dhcp?).poll()? {
            Event::Configured(config) => Some(Lease {
                address: config.address.address(),
                prefix: config.address.prefix_len(),
                gateway: config.router,
                dns: config.dns_servers.iter().copied().collect(),
                from: Some(config.server.identifier),
            }),
            Event::Deconfigured => None,
        }
    }

    fn apply(&mut self, lease: &Lease) {
        let cidr = IpCidr::Ipv4(Ipv4Cidr::new(lease.address, lease.prefix.min(32)));
        self.interface.update_ip_addrs(|addresses| {
            addresses.clear();
            // There is room: it was just cleared.
            let _ = addresses.push(cidr);
        });
        if let Some(gateway) = lease.gateway {
            // The same.
            let _ = self.interface.routes_mut().add_default_ipv4_route(gateway);
        }
        let servers: Vec<IpAddress> = lease.dns.iter().map(|server| IpAddress::Ipv4(*server)).collect();
        if let Some(old) = self.names.take() {
            self.sockets.remove(old);
        }
        if !servers.is_empty() {
            self.names = Some(self.sockets.add(dns::Socket::new(&servers, vec![None])));
        }
    }

    /// The address of a host: itself, or what the name servers say. The inner error is the host's fault.
    pub(crate) fn resolve(
        &mut self,
        link: &mut dyn Link,
        host: &str,
    ) -> Result<Result<Ipv4Addr, String>, Broken> {
        if let Ok(address) = host.parse() {
            return Ok(Ok(address));
        }
        let Some(names) = self.names else {
            return Ok(Err(format!("no name server knows {host}: neither DHCP nor ip= gave one")));
        };
        let socket = self.sockets.get_mut::<dns::Socket<'_>>(names);
        let Ok(query) = socket.start_query(self.interface.context(), host, DnsQueryType::A) else {
            return Ok(Err(format!("{host} is no host name")));
        };
        let deadline = link.now_ns() + NAME_LIMIT_NS;
        loop {
            self.turn(link)?;
            let socket = self.sockets.get_mut::<dns::Socket<'_>>(names);
            match socket.get_query_result(query) {
                Ok(found) => {
                    let first = found.iter().map(|IpAddress::Ipv4(address)| *address).next();
                    return Ok(first.ok_or_else(|| format!("{host} has no IPv4 address")));
                }
                Err(GetQueryResultError::Failed) => {
                    return Ok(Err(format!("the name servers do not know {host}")));
                }
                Err(GetQueryResultError::Pending) if link.now_ns() >= deadline => {
                    socket.cancel_query(query);
                    let seconds = NAME_LIMIT_NS / SECOND_NS;
                    return Ok(Err(format!("no name server answered within {seconds} s for {host}")));
                }
                Err(GetQueryResultError::Pending) => self.wait(link, deadline)?,
            }
        }
    }

    /// Opens a connection.
    pub(crate) fn connect(
        &mut self,
        link: &mut dyn Link,
        to: (Ipv4Addr, u16),
    ) -> Result<Result<Stream, String>, Broken> {
        let buffers = (vec![0; WINDOW_BYTES], vec![0; REQUEST_BYTES]);
        let mut socket =
            tcp::Socket::new(tcp::SocketBuffer::new(buffers.0), tcp::SocketBuffer::new(buffers.1));
        let seed = u16::try_from(self.setup.seed % u64::from(PORTS)).unwrap_or(0);
        let port = FIRST_PORT + (seed.wrapping_add(self.connections)) % PORTS;
        self.connections = self.connections.wrapping_add(1);
        if socket.connect(self.interface.context(), to, port).is_err() {
            return Ok(Err(format!("{} cannot be reached from here", to.0)));
        }
        let stream = Stream { handle: self.sockets.add(socket) };
        let deadline = link.now_ns() + CONNECT_LIMIT_NS;
        loop {
            self.turn(link)?;
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(stream.handle);
            if socket.may_send() {
                return Ok(Ok(stream));
            }
            let refused = !socket.is_open();
            if refused || link.now_ns() >= deadline {
                self.close(link, stream)?;
                let seconds = CONNECT_LIMIT_NS / SECOND_NS;
                return Ok(Err(if refused {
                    format!("{}:{} refuses connections", to.0, to.1)
                } else {
                    format!("no connection to {}:{} within {seconds} s", to.0, to.1)
                }));
            }
            self.wait(link, deadline)?;
        }
    }

    /// Queues bytes of a request; they fit.
    pub(crate) fn send(&mut self, stream: &Stream, bytes: &[u8]) -> bool {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(stream.handle);
        socket.send_slice(bytes) == Ok(bytes.len())
    }

    /// Waits for bytes and hands them over, until then at most.
    pub(crate) fn receive(
        &mut self,
        link: &mut dyn Link,
        stream: &Stream,
        until_ns: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), Broken>,
    ) -> Result<Received, Broken> {
        loop {
            self.turn(link)?;
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(stream.handle);
            if socket.can_recv() {
                let taken = socket.recv(|bytes| (bytes.len(), take(bytes)));
                taken.unwrap_or(Ok(()))?;
                return Ok(Received::Bytes);
            }
            if !socket.may_recv() {
                return Ok(Received::End);
            }
            if link.now_ns() >= until_ns {
                return Ok(Received::Nothing);
            }
            self.wait(link, until_ns)?;
        }
    }

    /// Ends a connection behind what is queued: the other end reads that first. It does not answer any more.
    pub(crate) fn leave(&mut self, link: &mut dyn Link, stream: Stream) -> Result<(), Broken> {
        self.sockets.get_mut::<tcp::Socket<'_>>(stream.handle).close();
        let turned = self.turn(link);
        self.sockets.remove(stream.handle);
        turned
    }

    /// Ends a connection at once; the other end hears of it.
    pub(crate) fn close(&mut self, link: &mut dyn Link, stream: Stream) -> Result<(), Broken> {
        self.sockets.get_mut::<tcp::Socket<'_>>(stream.handle).abort();
        let turned = self.turn(link);
        self.sockets.remove(stream.handle);
        turned
    }

    /// Waits so long, while the lease is kept.
    pub(crate) fn pause(&mut self, link: &mut dyn Link, until_ns: u64) -> Result<(), Broken> {
        while link.now_ns() < until_ns {
            self.wait(link, until_ns)?;
            self.turn(link)?;
        }
        Ok(())
    }

    fn turn(&mut self, link: &mut dyn Link) -> Result<(), Broken> {
        let now = instant(link.now_ns());
        let mut wire = Wire { link, frames: &mut self.frames };
        self.interface.poll(now, &mut wire, &mut self.sockets);
        self.frames.fault()
    }

    fn wait(&mut self, link: &mut dyn Link, until_ns: u64) -> Result<(), Broken> {
        let now_ns = link.now_ns();
        let delay = self.interface.poll_delay(instant(now_ns), &self.sockets);
        let next_ns = delay.map_or(until_ns, |delay| now_ns + delay.total_micros().saturating_mul(1000));
        // A pause of zero would spin where the clock is coarse.
        link.wait(next_ns.min(until_ns).max(now_ns + 1))
    }
}

/// An open connection of a [`Station`], which closes it.
pub(crate) struct Stream {
    handle: SocketHandle,
}

/// What came of waiting for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// Some were taken.
    Bytes,
    /// The other end has no more.
    End,
    /// The time is over.
    Nothing,
}

fn instant(ns: u64) -> Instant {
    Instant::from_micros(i64::try_from(ns / 1000).unwrap_or(i64::MAX))
}
