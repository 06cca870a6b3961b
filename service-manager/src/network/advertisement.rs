//! The frame that tells all IPv6 neighbours of a link which card has an address now.
//!
//! The kernel sends one only for an address that it has checked for another holder, which a shared address cannot wait for.
//! Source: RFC 4861 §4.4 and §7.2.6; RFC 2464 §3 and §7; RFC 4443 §2.3 (checksum).

use std::net::Ipv6Addr;

/// Ethernet's number of IPv6.
const IPV6: [u8; 2] = [0x86, 0xdd];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The Ethernet address of all nodes.
const ALL_NODES_HARDWARE: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const ICMPV6: u8 = 58;
/// Another count of hops was routed, and does not count.
const HOPS: u8 = 255;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// What a neighbour knows of the address gives way.
const OVERRIDE: u8 = 0x20;
/// "Target link-layer address", in units of eight bytes.
const TARGET_HARDWARE: [u8; 2] = [2, 1];
/// Of the message: type to flags, the address, the option.
const MESSAGE_BYTES: u8 = 8 + 16 + 8;

/// The frame: `address` is at `hardware`.
pub(super) fn neighbour_advertisement(hardware: [u8; 6], address: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    message.extend(address.octets());
    message.extend(TARGET_HARDWARE);
    message.extend(hardware);
    let checksum = checksum(address, ALL_NODES, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let ipv6 = [0x60, 0, 0, 0, 0, MESSAGE_BYTES, ICMPV6, HOPS];
    let parts: [&[u8]; 7] =
        [&ALL_NODES_HARDWARE, &hardware, &IPV6, &ipv6, &address.octets(), &ALL_NODES.octets(), &message];
    parts.concat()
}

/// Over the message and the addresses that it goes between.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let lengths = [0, 0, 0, MESSAGE_BYTES, 0, 0, 0, ICMPV6];
    let words = [&source.octets()[..], &destination.octets(), &lengths, message].concat();
    let sum: u32 = words.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As another program computes it: a sum over all with the checksum in it is 0.
    #[test]
    fn the_frame_has_the_fields_of_the_standard_and_a_right_checksum() {
        let address: Ipv6Addr = "fd00:9::ffff:100".parse().unwrap();
        let hardware = [2, 0, 0xff, 0xff, 0xff, 1];
        let frame = neighbour_advertisement(hardware, address);
        assert_eq!(frame.len(), 14 + 40 + 32);
        assert_eq!(&frame[..14], [&ALL_NODES_HARDWARE[..], &hardware, &IPV6].concat());
        assert_eq!(&frame[14..22], [0x60, 0, 0, 0, 0, 32, 58, 255]);
        assert_eq!(&frame[54..56], [136, 0]);
        assert_eq!(&frame[58..62], [0x20, 0, 0, 0]);
        assert_eq!(&frame[62..78], address.octets());
        assert_eq!(&frame[78..], [&TARGET_HARDWARE[..], &hardware].concat());
        assert_eq!(checksum(address, ALL_NODES, &frame[54..]), 0);
    }
}
