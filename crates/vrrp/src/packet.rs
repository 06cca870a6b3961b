//! An advertisement: the one message of VRRP version 3.
//!
//! ```text
//! offset  bytes  all numbers big-endian
//!      0      1  version 3 in the upper four bits, type 1 in the lower
//!      1      1  number of the virtual router, 1..=255
//!      2      1  priority; 0: the sender gives the addresses up, 255: they are its own
//!      3      1  count of addresses
//!      4      2  interval in centiseconds in the lower twelve bits, the others are reserved
//!      6      2  checksum
//!      8      …  the addresses, 4 or 16 bytes each
//! ```
//!
//! The checksum of IPv6 covers a pseudo-header. That of IPv4 did so too by RFC 5798, and does not by RFC 9568. keepalived
//! demands the older form, and so does most of what is installed: it is sent, and both are taken.
//!
//! Owns: bytes ↔ values, of packets that any machine of the link may have made.
//! Does not: judge whether the addresses are the expected ones: a difference is a mistake of configuration, of which the
//! router only tells.
//! Fails by: [`DecodeError`], which says whether the packet is broken or only of other routers.
//! Source: RFC 9568 §5.2, §7.1; RFC 5798 §5.2.8; RFC 8200 §8.1 (pseudo-header), RFC 1071 (checksum), RFC 791 §3.1.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU8;

use crate::addresses::Addresses;
use crate::interval::Interval;

/// Protocol number of VRRP in IPv4 and IPv6 (RFC 9568 §5.1).
pub const PROTOCOL: u8 = 112;
/// Where advertisements of IPv4 go (RFC 9568 §5.1.1.2).
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
/// Where those of IPv6 go (RFC 9568 §5.1.2.2).
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12);
/// Time to live and hop limit: a router between would have taken one away (RFC 9568 §5.1.1.3).
pub const HOPS: u8 = 255;
/// Of the largest packet, with the longest header of IPv4.
pub const MOST_BYTES: usize = 60 + HEADER_BYTES + 255 * 16;

const VERSION: u8 = 3;
/// ADVERTISEMENT, the only type.
const TYPE: u8 = 1;
const HEADER_BYTES: usize = 8;
const CHECKSUM_AT: usize = 6;
/// The upper bits of the interval's field are reserved: ignored when read.
const INTERVAL_MASK: u16 = 0xfff;

/// Header of IPv4 without options.
const IPV4_BYTES: u8 = 20;
/// Version 4, and the header's length in words.
const IPV4_HEAD: u8 = (4 << 4) | (IPV4_BYTES / 4);
/// Internetwork control (RFC 791 §3.1), as routing protocols have it.
const IPV4_CONTROL: u8 = 0xc0;

/// Why a packet does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The header of IPv4 is not whole.
    #[error("the header of IPv4 is broken")]
    Ipv4Header,
    /// It comes from beyond the link.
    #[error("the hop limit is {0} instead of 255")]
    Hops(u8),
    /// More than the largest advertisement.
    #[error("more than {MOST_BYTES} bytes")]
    Long,
    /// It ends before its header does.
    #[error("{0} bytes are no packet of VRRP")]
    Short(usize),
    /// Routers of another version of VRRP.
    #[error("version {0} instead of 3")]
    Version(u8),
    /// No advertisement.
    #[error("unknown type {0}")]
    Type(u8),
    /// Another virtual router.
    #[error("virtual router {0}")]
    Vrid(u8),
    /// It names no address.
    #[error("no address")]
    Count,
    /// Its length is not that of its addresses.
    #[error("{found} bytes instead of {expected}")]
    Length {
        /// Bytes that came.
        found: usize,
        /// What the count of addresses takes.
        expected: usize,
    },
    /// What came is not what was sent.
    #[error("the checksum is wrong")]
    Checksum,
    /// Zero.
    #[error("no interval")]
    Interval,
}

impl DecodeError {
    /// It is no fault: routers of another number or version share the link.
    #[must_use]
    pub const fn is_of_others(&self) -> bool {
        match self {
            Self::Version(_) | Self::Vrid(_) => true,
            Self::Ipv4Header
            | Self::Hops(_)
            | Self::Long
            | Self::Short(_)
            | Self::Type(_)
            | Self::Count
            | Self::Length { .. }
            | Self::Checksum
            | Self::Interval => false,
        }
    }
}

/// What the header below says of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// From where.
    pub source: IpAddr,
    /// To where.
    pub destination: IpAddr,
    /// Time to live, or hop limit, as it arrived.
    pub hops: u8,
}

/// A virtual router, as its active one tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertisement {
    /// The virtual router's number.
    pub vrid: NonZeroU8,
    /// The sender's; 0 gives the addresses up.
    pub priority: u8,
    /// Until the sender's next one.
    pub interval: Interval,
    /// Of the virtual router.
    pub addresses: Addresses,
}

impl Advertisement {
    /// Reads one for the virtual router of this number. `bytes` follow the header of IPv4 or IPv6.
    ///
    /// # Errors
    /// When it is broken, comes from beyond the link, or is not for this virtual router.
    pub fn decode(bytes: &[u8], envelope: &Envelope, vrid: NonZeroU8) -> Result<Self, DecodeError> {
        let short = DecodeError::Short(bytes.len());
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
        let [head, number, priority, count, high, low, _, _] = *header;
        check_head(head, envelope.hops)?;
        if number != vrid.get() {
            return Err(DecodeError::Vrid(number));
        }
        let addresses = read_addresses(rest, count, envelope.source.is_ipv4())?;
        check_sum(bytes, envelope)?;
        let centiseconds = u16::from_be_bytes([high, low]) & INTERVAL_MASK;
        let interval = Interval::from_centiseconds(centiseconds).ok_or(DecodeError::Interval)?;
        Ok(Self { vrid, priority, interval, addresses })
    }

    /// As it goes out from `source` to the group of its family.
    #[must_use]
    pub fn encode(&self, source: IpAddr) -> Vec<u8> {
        let mut bytes = vec![(VERSION << 4) | TYPE, self.vrid.get(), self.priority, self.addresses.count()];
        bytes.extend(self.interval.centiseconds().to_be_bytes());
        bytes.extend([0, 0]);
        for address in self.addresses.as_slice() {
            match address {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        let envelope = Envelope { source, destination: group(self.addresses.is_ipv4()), hops: HOPS };
        let checksum = !sum(pseudo_sum(&envelope, bytes.len()), &bytes);
        bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// Where advertisements of a family go.
#[must_use]
pub const fn group(is_ipv4: bool) -> IpAddr {
    if is_ipv4 { IpAddr::V4(GROUP_V4) } else { IpAddr::V6(GROUP_V6) }
}

/// Splits a packet of IPv4, as a raw socket gives it.
///
/// # Errors
/// When the header is cut off, or says more than there is.
pub fn split_ipv4(packet: &[u8]) -> Result<(Envelope, &[u8]), DecodeError> {
    let header = packet.first_chunk::<{ IPV4_BYTES as usize }>().ok_or(DecodeError::Ipv4Header)?;
    let [head, _, high, low, _, _, _, _, hops, _, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    let begin = usize::from(head & 0xf) * 4;
    let end = usize::from(u16::from_be_bytes([high, low]));
    if head >> 4 != 4 || begin < header.len() {
        return Err(DecodeError::Ipv4Header);
    }
    let payload = packet.get(begin..end).ok_or(DecodeError::Ipv4Header)?;
    let source = Ipv4Addr::new(s0, s1, s2, s3).into();
    let destination = Ipv4Addr::new(d0, d1, d2, d3).into();
    Ok((Envelope { source, destination, hops }, payload))
}

/// A packet of IPv4 to the group, for a raw socket that is given headers too. The kernel fills in length, number and
/// checksum (raw(7)).
#[must_use]
pub fn join_ipv4(source: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![IPV4_HEAD, IPV4_CONTROL, 0, 0, 0, 0, 0, 0, HOPS, PROTOCOL, 0, 0];
    packet.extend(source.octets());
    packet.extend(GROUP_V4.octets());
    packet.extend(payload);
    packet
}

fn check_head(head: u8, hops: u8) -> Result<(), DecodeError> {
    if hops != HOPS {
        return Err(DecodeError::Hops(hops));
    }
    if head >> 4 != VERSION {
        return Err(DecodeError::Version(head >> 4));
    }
    if head & 0xf != TYPE {
        return Err(DecodeError::Type(head & 0xf));
    }
    Ok(())
}

fn read_addresses(bytes: &[u8], count: u8, is_ipv4: bool) -> Result<Addresses, DecodeError> {
    let size = if is_ipv4 { 4 } else { 16 };
    let expected = usize::from(count) * size;
    if bytes.len() != expected {
        let [found, expected] = [bytes.len(), expected].map(|length| HEADER_BYTES + length);
        return Err(DecodeError::Length { found, expected });
    }
    let addresses: Vec<IpAddr> = if is_ipv4 {
        bytes.as_chunks::<4>().0.iter().map(|octets| Ipv4Addr::from(*octets).into()).collect()
    } else {
        bytes.as_chunks::<16>().0.iter().map(|octets| Ipv6Addr::from(*octets).into()).collect()
    };
    Addresses::new(addresses).map_err(|_| DecodeError::Count)
}

/// With its own checksum in it a message sums up to all ones.
fn check_sum(bytes: &[u8], envelope: &Envelope) -> Result<(), DecodeError> {
    let is_right = sum(pseudo_sum(envelope, bytes.len()), bytes) == u16::MAX;
    let is_right_alone = envelope.source.is_ipv4() && sum(0, bytes) == u16::MAX;
    if is_right || is_right_alone { Ok(()) } else { Err(DecodeError::Checksum) }
}

/// Of source, destination, length and protocol.
fn pseudo_sum(envelope: &Envelope, length: usize) -> u16 {
    let of_address = |sum_before: u16, address: IpAddr| match address {
        IpAddr::V4(address) => sum(sum_before, &address.octets()),
        IpAddr::V6(address) => sum(sum_before, &address.octets()),
    };
    // A packet has at most MOST_BYTES.
    let length = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    let addresses = of_address(of_address(0, envelope.source), envelope.destination);
    sum(sum(addresses, &length), &[0, PROTOCOL])
}

/// The one's complement sum of words, from another sum on.
fn sum(before: u16, bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(before, |sum, word| {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
