//! The raw socket of a virtual router on its link.
//!
//! Owns: which interface and primary address it has, membership of the group, and how packets come and go.
//! Does not: read advertisements, or try again: the driver does. Join a virtual MAC address: the interface's own answers.
//! Order: the link is looked at before a socket is opened, and again each second, since a socket does not notice that its
//! interface was replaced or its address taken away.
//! Fails by: [`SocketError`], which names the link.
//! Source: raw(7), ip(7), ipv6(7); RFC 9568 §5.1.

use std::error::Error as _;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::packet::{self, DecodeError, Envelope, GROUP_V4, GROUP_V6, HOPS, MOST_BYTES, PROTOCOL};

/// Of the socket that only finds out which address the kernel would send from; nothing is sent to it.
const ANY_PORT: u16 = 9;
/// The kernel's queue was full: the packet is lost like any other. Source: asm-generic/errno.h.
const ENOBUFS: i32 = 105;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("look at link {link}")]
    Look { link: String, source: io::Error },
    #[error("link {link} is down")]
    Down { link: String },
    #[error("find the address of link {link}")]
    Primary { link: String, source: io::Error },
    #[error("link {link} has no address of its own")]
    NoPrimary { link: String },
    #[error("open a socket of link {link}")]
    Open { link: String, source: io::Error },
    #[error("receive on link {link}")]
    Receive { link: String, source: io::Error },
    #[error("send on link {link}")]
    Send { link: String, source: io::Error },
}

impl SocketError {
    /// In one line, with what the kernel says.
    pub(crate) fn text(&self) -> String {
        self.source().map_or_else(|| self.to_string(), |source| format!("{self}: {source}"))
    }
}

/// An interface as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    name: String,
    index: u32,
    /// Where advertisements come from: the first address of IPv4, or the link-local one.
    pub(crate) primary: IpAddr,
}

impl Link {
    /// Looks at a link that is to carry advertisements of a family. `not` are addresses that are not its own.
    pub(crate) fn look(name: &str, is_ipv4: bool, not: &[IpAddr]) -> Result<Self, SocketError> {
        let link = || name.to_owned();
        let carries = sys::link::carries(name)
            .map_err(|errno| SocketError::Look { link: link(), source: errno.into() })?;
        if !carries {
            return Err(SocketError::Down { link: link() });
        }
        let (index, primary) =
            find_primary(name, is_ipv4).map_err(|source| SocketError::Primary { link: link(), source })?;
        let primary = primary.filter(|address| !address.is_unspecified() && !not.contains(address));
        let primary = primary.ok_or_else(|| SocketError::NoPrimary { link: link() })?;
        Ok(Self { name: link(), index, primary })
    }
}

/// The link's number, and the address that the kernel would send to the group from: none while it is not sure that no other
/// machine has it.
fn find_primary(name: &str, is_ipv4: bool) -> io::Result<(u32, Option<IpAddr>)> {
    let domain = if is_ipv4 { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    let index = name_to_index(&socket, name)?;
    socket.bind_device(Some(name.as_bytes()))?;
    let group: SocketAddr = match packet::group(is_ipv4) {
        IpAddr::V4(group) => SocketAddrV4::new(group, ANY_PORT).into(),
        IpAddr::V6(group) => SocketAddrV6::new(group, ANY_PORT, 0, index).into(),
    };
    match socket.connect(&group.into()) {
        Ok(()) => Ok((index, socket.local_addr()?.as_socket().map(|local| local.ip()))),
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => Ok((index, None)),
        Err(error) => Err(error),
    }
}

/// What came in.
pub(crate) type Received<'a> = Result<(Envelope, &'a [u8]), DecodeError>;

/// A socket that hears the group and speaks to it.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) link: Link,
    socket: AsyncFd<Socket>,
    buffer: Box<[u8]>,
}

impl Raw {
    pub(crate) fn open(link: Link) -> Result<Self, SocketError> {
        let opened = match link.primary {
            IpAddr::V4(_) => open_v4(&link),
            IpAddr::V6(primary) => open_v6(&link, primary),
        };
        let registered = opened.and_then(watch);
        let socket = registered.map_err(|source| SocketError::Open { link: link.name.clone(), source })?;
        Ok(Self { link, socket, buffer: vec![0; MOST_BYTES].into() })
    }

    /// Waits until there may be a packet.
    pub(crate) async fn readable(&self) {
        // An error is told by the next read.
        let _ = self.socket.readable().await;
    }

    /// The next packet, if there is one.
    pub(crate) fn receive(&mut self) -> Result<Option<Received<'_>>, SocketError> {
        let (socket, buffer) = (&self.socket, &mut self.buffer);
        let received = match self.link.primary {
            IpAddr::V4(_) => receive_v4(socket, buffer),
            IpAddr::V6(_) => receive_v6(socket, buffer),
        };
        match received {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(source) => Err(SocketError::Receive { link: self.link.name.clone(), source }),
        }
    }

    /// Sends an advertisement to the group. One that finds no room is lost.
    pub(crate) fn send(&self, advertisement: &[u8]) -> Result<(), SocketError> {
        let sent = match self.link.primary {
            IpAddr::V4(primary) => {
                let to = SocketAddrV4::new(GROUP_V4, 0);
                let packet = packet::join_ipv4(primary, advertisement);
                self.socket.get_ref().send_to(&packet, &to.into())
            }
            IpAddr::V6(_) => {
                let to = SocketAddrV6::new(GROUP_V6, 0, 0, self.link.index);
                self.socket.get_ref().send_to(advertisement, &to.into())
            }
        };
        match sent {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(ENOBUFS) => {
                Ok(())
            }
            Err(source) => Err(SocketError::Send { link: self.link.name.clone(), source }),
        }
    }
}

/// tokio holds the socket and gives out references only, so its number stays the same.
#[expect(deprecated, reason = "its successor is unsafe; a socket owns its number")]
fn watch(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    AsyncFd::with_interest(socket, Interest::READABLE)
}

/// It gives and takes packets with their headers, so that the source is the primary address whatever else the link has.
fn open_v4(link: &Link) -> io::Result<Socket> {
    let socket = open_on(Domain::IPV4, link)?;
    socket.set_header_included_v4(true)?;
    socket.set_multicast_loop_v4(false)?;
    socket.join_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(link.index))?;
    // What was sent to another address is not received.
    socket.bind(&SocketAddrV4::new(GROUP_V4, 0).into())?;
    Ok(socket)
}

fn open_v6(link: &Link, primary: Ipv6Addr) -> io::Result<Socket> {
    let socket = open_on(Domain::IPV6, link)?;
    sys::hops::tell(&socket)?;
    socket.set_multicast_hops_v6(u32::from(HOPS))?;
    socket.set_multicast_loop_v6(false)?;
    socket.join_multicast_v6(&GROUP_V6, link.index)?;
    // It is the source; the group is received too.
    socket.bind(&SocketAddrV6::new(primary, 0, 0, link.index).into())?;
    Ok(socket)
}

fn open_on(domain: Domain, link: &Link) -> io::Result<Socket> {
    let protocol = Protocol::from(i32::from(PROTOCOL));
    let socket = Socket::new(domain, Type::RAW.nonblocking(), Some(protocol))?;
    socket.bind_device(Some(link.name.as_bytes()))?;
    Ok(socket)
}

fn receive_v4<'a>(socket: &AsyncFd<Socket>, buffer: &'a mut [u8]) -> io::Result<Received<'a>> {
    let length = at_once(socket, |mut socket| socket.read(buffer))?;
    Ok(packet::split_ipv4(&buffer[..length]))
}

/// One that was sent to the primary address instead of the group has another checksum.
fn receive_v6<'a>(socket: &AsyncFd<Socket>, buffer: &'a mut [u8]) -> io::Result<Received<'a>> {
    let received = at_once(socket, |socket| match sys::hops::receive(socket, buffer) {
        Ok(received) => Ok(Some(received)),
        Err(Errno::MSGSIZE) => Ok(None),
        Err(errno) => Err(errno.into()),
    })?;
    let Some(received) = received else { return Ok(Err(DecodeError::Long)) };
    let destination = packet::group(false);
    let source = received.sender.into();
    let hops = received.hops.unwrap_or(0);
    Ok(Ok((Envelope { source, destination, hops }, &buffer[..received.length])))
}

/// Asks the kernel, not what the runtime knows of the socket: after a stop of the process that is from before. Asks again
/// when there is nothing, so that the runtime waits for the next packet.
fn at_once<T>(socket: &AsyncFd<Socket>, mut read: impl FnMut(&Socket) -> io::Result<T>) -> io::Result<T> {
    match read(socket.get_ref()) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => socket.try_io(Interest::READABLE, read),
        result => result,
    }
}
