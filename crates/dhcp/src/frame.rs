//! Ethernet frames of the client: DHCP in UDP, and ARP.
//!
//! A link without an address is heard and spoken by frames only.
//! Source: RFC 826, RFC 894; packet(7) and Documentation/networking/filter.rst of Linux for the filters.

use std::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
    IpProtocol, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

/// UDP port of servers.
pub const SERVER_PORT: u16 = 67;
/// UDP port of clients.
pub const CLIENT_PORT: u16 = 68;
const HOPS: u8 = 64;

/// An instruction of a filter: operation, jump if true, jump if false, operand.
pub type Instruction = (u16, u8, u8, u32);

const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_HALF_BEHIND: u16 = 0x48;
/// Four times the low half of a byte, the length of an IPv4 header, into the index register.
const LOAD_HEADER: u16 = 0xb1;
const IF_EQUAL: u16 = 0x15;
const IF_BITS: u16 = 0x45;
const RETURN: u16 = 0x06;
/// Whether the frame had a VLAN tag: it is another link's then.
const TAG_PRESENT: u32 = 0xffff_f000 + 48;
const WHOLE: u32 = 0xffff;

/// What comes to a client's port, unfragmented and untagged.
pub const DHCP_FILTER: [Instruction; 13] = [
    (LOAD_BYTE, 0, 0, TAG_PRESENT),
    (IF_EQUAL, 0, 10, 0),
    (LOAD_HALF, 0, 0, 12),
    (IF_EQUAL, 0, 8, 0x0800),
    (LOAD_BYTE, 0, 0, 23),
    (IF_EQUAL, 0, 6, 17),
    (LOAD_HALF, 0, 0, 20),
    (IF_BITS, 4, 0, 0x3fff),
    (LOAD_HEADER, 0, 0, 14),
    (LOAD_HALF_BEHIND, 0, 0, 16),
    (IF_EQUAL, 0, 1, CLIENT_PORT as u32),
    (RETURN, 0, 0, WHOLE),
    (RETURN, 0, 0, 0),
];

/// ARP, untagged.
pub const ARP_FILTER: [Instruction; 6] = [
    (LOAD_BYTE, 0, 0, TAG_PRESENT),
    (IF_EQUAL, 0, 3, 0),
    (LOAD_HALF, 0, 0, 12),
    (IF_EQUAL, 0, 1, 0x0806),
    (RETURN, 0, 0, WHOLE),
    (RETURN, 0, 0, 0),
];

/// A client's message to every server.
#[must_use]
pub fn broadcast(hardware: [u8; 6], message: &[u8]) -> Vec<u8> {
    let udp = UdpRepr { src_port: CLIENT_PORT, dst_port: SERVER_PORT };
    let ip = Ipv4Repr {
        src_addr: Ipv4Addr::UNSPECIFIED,
        dst_addr: Ipv4Addr::BROADCAST,
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + message.len(),
        hop_limit: HOPS,
    };
    let ethernet = EthernetRepr {
        src_addr: EthernetAddress(hardware),
        dst_addr: EthernetAddress::BROADCAST,
        ethertype: EthernetProtocol::Ipv4,
    };
    let sums = ChecksumCapabilities::default();
    let mut frame = vec![0; ethernet.buffer_len() + ip.buffer_len() + ip.payload_len];
    ethernet.emit(&mut EthernetFrame::new_unchecked(&mut frame));
    let packet = &mut frame[ethernet.buffer_len()..];
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut *packet), &sums);
    let mut datagram = UdpPacket::new_unchecked(&mut packet[ip.buffer_len()..]);
    let fill = |payload: &mut [u8]| payload.copy_from_slice(message);
    udp.emit(&mut datagram, &ip.src_addr.into(), &ip.dst_addr.into(), message.len(), fill, &sums);
    frame
}

/// The message in a frame from a server; `None` for anything else. With `sum_is_missing` the card has not filled in the
/// checksum yet.
#[must_use]
pub fn message(frame: &[u8], sum_is_missing: bool) -> Option<&[u8]> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    if ethernet.ethertype() != EthernetProtocol::Ipv4 {
        return None;
    }
    let ip = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
    if ip.version() != 4 || ip.next_header() != IpProtocol::Udp || !ip.verify_checksum() {
        return None;
    }
    if ip.more_frags() || ip.frag_offset() != 0 {
        return None;
    }
    let udp = UdpPacket::new_checked(ip.payload()).ok()?;
    let is_whole = sum_is_missing || udp.verify_checksum(&ip.src_addr().into(), &ip.dst_addr().into());
    ((udp.src_port(), udp.dst_port()) == (SERVER_PORT, CLIENT_PORT) && is_whole).then(|| udp.payload())
}

/// What ARP says: this hardware has this address, and asks for another one or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arp {
    /// Of the sender.
    pub hardware: [u8; 6],
    /// Of the sender; unspecified in a probe.
    pub sender: Ipv4Addr,
    /// Whose hardware is asked for.
    pub target: Ipv4Addr,
}

/// A question for `arp.target`, broadcast.
#[must_use]
pub fn arp_request(arp: Arp) -> Vec<u8> {
    let ethernet = EthernetRepr {
        src_addr: EthernetAddress(arp.hardware),
        dst_addr: EthernetAddress::BROADCAST,
        ethertype: EthernetProtocol::Arp,
    };
    let question = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(arp.hardware),
        source_protocol_addr: arp.sender,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: arp.target,
    };
    let mut frame = vec![0; ethernet.buffer_len() + question.buffer_len()];
    ethernet.emit(&mut EthernetFrame::new_unchecked(&mut frame));
    question.emit(&mut ArpPacket::new_unchecked(&mut frame[ethernet.buffer_len()..]));
    frame
}

/// Reads a question or an answer.
#[must_use]
pub fn arp(frame: &[u8]) -> Option<Arp> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    if ethernet.ethertype() != EthernetProtocol::Arp {
        return None;
    }
    let packet = ArpPacket::new_checked(ethernet.payload()).ok()?;
    let ArpRepr::EthernetIpv4 { source_hardware_addr, source_protocol_addr, target_protocol_addr, .. } =
        ArpRepr::parse(&packet).ok()?
    else {
        return None;
    };
    Some(Arp { hardware: source_hardware_addr.0, sender: source_protocol_addr, target: target_protocol_addr })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

    /// As a server would have sent it.
    fn answer(payload: &[u8]) -> Vec<u8> {
        let mut frame = broadcast(MAC, payload);
        frame[34..38].rotate_left(2);
        frame
    }

    #[test]
    fn messages_of_servers_are_taken_whole() {
        let frame = answer(b"odd");
        assert_eq!(message(&frame, false), Some(&b"odd"[..]));
        assert_eq!(message(&broadcast(MAC, b"odd"), false), None, "to a server");
        for index in 12..frame.len() {
            let mut broken = frame.clone();
            broken[index] ^= 0x10;
            assert_eq!(message(&broken, false), None, "byte {index}");
        }
        for length in 0..frame.len() {
            assert_eq!(message(&frame[..length], false), None, "{length} bytes");
        }
        let mut unsummed = frame;
        unsummed[40..42].copy_from_slice(&[1, 2]);
        assert_eq!(message(&unsummed, true), Some(&b"odd"[..]));
    }

    #[test]
    fn arp_is_read_as_it_was_written() {
        let arp_said = Arp { hardware: MAC, sender: [0; 4].into(), target: [10, 0, 0, 5].into() };
        let frame = arp_request(arp_said);
        assert_eq!(arp(&frame), Some(arp_said));
        for length in 0..frame.len() {
            assert_eq!(arp(&frame[..length]), None);
        }
    }
}
