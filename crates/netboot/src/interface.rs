//! The interface to the machines, and its address.
//!
//! Owns: asking the kernel which IPv4 addresses an interface has, and saying why one cannot serve.
//! Does not: ask for a route instead: where an interface has no address, that leads to another one's.
//! Source: rtnetlink(7), netlink(7), linux/rtnetlink.h, linux/if_addr.h.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;

use rustix::net::netdevice;
use socket2::{Domain, Protocol, Socket, Type};

use crate::Error;

/// Largest packet of an Ethernet without jumbo frames.
pub(crate) const PACKET_BYTES: usize = 1500;

const AF_INET: u8 = 2;
const AF_NETLINK: i32 = 16;
const NETLINK_ROUTE: i32 = 0;
/// Types of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
/// A request (1) for all of them (0x300).
const REQUEST_ALL: u16 = 0x301;
/// The attribute with the interface's own address; that of type 1 is the peer's, where there is one.
const LOCAL: u16 = 2;
const HEADER_BYTES: usize = 16;
/// Family, prefix length, flags, scope, and the interface's number.
const ADDRESS_BYTES: usize = 8;
const REQUEST_BYTES: u32 = 24;
/// The kernel sends no larger pieces of a list.
const BUFFER_BYTES: usize = 32 << 10;

/// This host's address on a network, and which other addresses are on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix: u8,
}

impl Network {
    /// Whether an address is reached without a router.
    pub(crate) fn contains(&self, other: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
        u32::from(self.address) & mask == u32::from(other) & mask
    }
}

/// The address at which machines behind the interface find this one.
pub(crate) fn network(interface: &str) -> Result<Network, Error> {
    let failed = |source| Error::Interface { interface: interface.to_owned(), source };
    let index = match index(interface) {
        Ok(index) => index,
        Err(error) if is_unknown(&error) => {
            return Err(Error::NoInterface { interface: interface.to_owned(), there: names().join(", ") });
        }
        Err(error) => return Err(failed(error)),
    };
    let found = addresses(index).map_err(failed)?;
    // Nobody else reaches 127.0.0.1.
    let usable = found.iter().find(|network| !network.address.is_loopback());
    usable.copied().ok_or_else(|| match found.first() {
        Some(only) => Error::Loopback { interface: interface.to_owned(), address: only.address },
        None => Error::NoAddress { interface: interface.to_owned() },
    })
}

fn index(interface: &str) -> io::Result<u32> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    Ok(netdevice::name_to_index(&socket, interface)?)
}

fn is_unknown(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// The interfaces of this network namespace; none, where nobody tells.
fn names() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// The interface's addresses, in the kernel's order.
fn addresses(index: u32) -> io::Result<Vec<Network>> {
    let mut socket = Socket::new(Domain::from(AF_NETLINK), Type::RAW, Some(Protocol::from(NETLINK_ROUTE)))?;
    socket.write_all(&request())?;
    let (mut found, mut buffer) = (Vec::new(), vec![0; BUFFER_BYTES]);
    loop {
        let count = socket.read(&mut buffer)?;
        for (kind, body) in messages(buffer.get(..count).unwrap_or_default()) {
            match kind {
                NEW_ADDRESS => found.extend(address_of(body, index)),
                DONE => return Ok(found),
                ERROR => return Err(refusal(body)),
                _ => {}
            }
        }
    }
}

/// Header and, as in an answer, which family: length, type, flags, number, port.
fn request() -> [u8; HEADER_BYTES + ADDRESS_BYTES] {
    let mut bytes = [0; HEADER_BYTES + ADDRESS_BYTES];
    let fields =
        [&REQUEST_BYTES.to_ne_bytes()[..], &GET_ADDRESS.to_ne_bytes(), &REQUEST_ALL.to_ne_bytes()].concat();
    bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    if let Some(family) = bytes.get_mut(HEADER_BYTES) {
        *family = AF_INET;
    }
    bytes
}

/// Type and body of each message.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    pieces(
        bytes,
        |head| {
            let (length, rest) = head.split_first_chunk()?;
            Some((
                usize::try_from(u32::from_ne_bytes(*length)).ok()?,
                u16::from_ne_bytes(*rest.first_chunk()?),
            ))
        },
        HEADER_BYTES,
    )
}

/// Type and value of each attribute.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    pieces(
        bytes,
        |head| {
            let (length, rest) = head.split_first_chunk()?;
            Some((usize::from(u16::from_ne_bytes(*length)), u16::from_ne_bytes(*rest.first_chunk()?)))
        },
        4,
    )
}

/// What stands one behind the other, each with its length and type in front, at multiples of four.
fn pieces(
    mut bytes: &[u8],
    head: impl Fn(&[u8]) -> Option<(usize, u16)>,
    head_bytes: usize,
) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = head(bytes)?;
        let body = bytes.get(head_bytes..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

fn address_of(body: &[u8], index: u32) -> Option<Network> {
    let (head, rest) = body.split_at_checked(ADDRESS_BYTES)?;
    let [family, prefix, ..] = *head else { return None };
    let of = u32::from_ne_bytes(*head.last_chunk()?);
    let mut local = attributes(rest).filter(|(kind, _)| *kind == LOCAL);
    let octets: [u8; 4] = local.next()?.1.try_into().ok()?;
    (family == AF_INET && of == index).then(|| Network { address: octets.into(), prefix })
}

/// A negative error number.
fn refusal(body: &[u8]) -> io::Error {
    let number = body.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    io::Error::from_raw_os_error(number.wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_no_way_to_a_machine() {
        let error = network("lo").unwrap_err().to_string();
        assert!(error.starts_with("the interface lo has only 127.0.0.1"), "{error}");
    }

    #[test]
    fn an_interface_that_is_not_there_is_said_with_those_that_are() {
        let error = network("nope").unwrap_err();
        assert!(
            matches!(&error, Error::NoInterface { there, .. } if there.split(", ").any(|one| one == "lo")),
            "{error}"
        );
        assert!(error.to_string().starts_with("there is no interface nope: this machine has "), "{error}");
        assert!(std::error::Error::source(&error).is_none());
        assert!(matches!(network("a-name-that-is-too-long-for-it"), Err(Error::NoInterface { .. })));
    }

    /// A message of the kernel's: address 10.0.0.7, with a label, on the interface 3.
    fn message(kind: u16, index: u32) -> Vec<u8> {
        let body = [&[AF_INET, 24, 0, 0][..], &index.to_ne_bytes()].concat();
        let attribute = |kind: u16, value: &[u8]| {
            let length = u16::try_from(4 + value.len()).unwrap();
            let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let body =
            [body, attribute(3, b"e:1\0\0"), attribute(1, &[10, 0, 0, 9]), attribute(LOCAL, &[10, 0, 0, 7])]
                .concat();
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &body].concat()
    }

    #[test]
    fn addresses_are_those_of_the_interface() {
        let list = [message(NEW_ADDRESS, 3), message(NEW_ADDRESS, 4), message(DONE, 0)].concat();
        let kinds: Vec<u16> = messages(&list).map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [NEW_ADDRESS, NEW_ADDRESS, DONE]);
        let found: Vec<_> = messages(&list).filter_map(|(_, body)| address_of(body, 3)).collect();
        assert_eq!(found, [Network { address: Ipv4Addr::new(10, 0, 0, 7), prefix: 24 }]);
        assert!(found[0].contains([10, 0, 0, 255].into()) && !found[0].contains([10, 0, 1, 7].into()));
        // What is cut off is left out, wherever that is.
        for length in 0..list.len() {
            assert!(messages(&list[..length]).filter_map(|(_, body)| address_of(body, 3)).count() <= 1);
        }
        assert_eq!(refusal(&(-1_i32).to_ne_bytes()).raw_os_error(), Some(1));
    }
}
