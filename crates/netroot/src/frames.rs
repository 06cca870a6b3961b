//! Frames between a [`Link`] and smoltcp.
//!
//! Owns: VLAN tags (wherever the card left them), checksums that nobody filled in, and which DHCP servers were heard.
//! Does not: look at what is not for this VLAN.
//! Source: IEEE 802.1Q; packet(7), `TP_STATUS_CSUMNOTREADY`.

use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ops::Range;

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, TcpPacket, UdpPacket};

use crate::{Arrived, Broken, Link};

/// A merged packet of a card that does not stop merging: 64 KiB behind the frame's header and tag.
pub const MOST_FRAME_BYTES: usize = 65_536 + ETHERNET_BYTES + TAG_BYTES;

/// Two addresses and a type.
const ETHERNET_BYTES: usize = 14;
/// Two addresses, which stand before a tag.
const ADDRESSES_BYTES: usize = 12;
const TAG_BYTES: usize = 4;
/// Type of a tag (`ETH_P_8021Q`).
const TAG_TYPE: [u8; 2] = [0x81, 0x00];
/// The VLAN's number in a tag; the rest is priority.
const VLAN_MASK: u16 = 0x0fff;
/// Sent frames: every Ethernet takes 1500 bytes of content.
const MTU_BYTES: usize = 1500;
/// UDP port of DHCP servers.
const DHCP_SERVER_PORT: u16 = 67;
/// More than that on one network need not all be named.
const MOST_SERVERS: usize = 4;

/// Buffers, and what was noticed on the way.
#[derive(Debug)]
pub(crate) struct Frames {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    vlan: Option<u16>,
    /// DHCP servers whose answers came by.
    pub(crate) servers: Vec<Ipv4Addr>,
    fault: Option<Broken>,
}

impl Frames {
    pub(crate) fn new(vlan: Option<u16>) -> Self {
        Self {
            incoming: vec![0; MOST_FRAME_BYTES],
            outgoing: vec![0; TAG_BYTES + ETHERNET_BYTES + MTU_BYTES],
            vlan,
            servers: Vec::new(),
            fault: None,
        }
    }

    /// What the link said while smoltcp, which has no errors of links, was at work.
    pub(crate) fn fault(&mut self) -> Result<(), Broken> {
        self.fault.take().map_or(Ok(()), Err)
    }

    /// Where in the buffer a frame without tag lies, if it is for this VLAN.
    fn admit(&mut self, arrived: Arrived) -> Option<Range<usize>> {
        let length = arrived.length.min(self.incoming.len());
        let tagged = self.incoming.get(ADDRESSES_BYTES..ETHERNET_BYTES)? == TAG_TYPE;
        let (tag, start) = if arrived.tag.is_none() && tagged {
            let tag = self.incoming.get(ETHERNET_BYTES..ETHERNET_BYTES + 2)?;
            let tag = u16::from_be_bytes(tag.try_into().ok()?);
            self.incoming.copy_within(..ADDRESSES_BYTES, TAG_BYTES);
            (Some(tag), TAG_BYTES)
        } else {
            (arrived.tag, 0)
        };
        // Number zero is a tag for its priority alone.
        let vlan = tag.map(|tag| tag & VLAN_MASK).filter(|vlan| *vlan != 0);
        if vlan != self.vlan || length < start + ETHERNET_BYTES {
            return None;
        }
        let frame = self.incoming.get_mut(start..length)?;
        inspect(frame, arrived.checksum_missing, &mut self.servers);
        Some(start..length)
    }
}

/// Fills in a missing checksum, and notes DHCP servers.
fn inspect(frame: &mut [u8], checksum_missing: bool, servers: &mut Vec<Ipv4Addr>) {
    let Ok(mut frame) = EthernetFrame::new_checked(frame) else { return };
    if frame.ethertype() != EthernetProtocol::Ipv4 {
        return;
    }
    let Ok(mut packet) = Ipv4Packet::new_checked(frame.payload_mut()) else { return };
    let (from, to, protocol) = (packet.src_addr(), packet.dst_addr(), packet.next_header());
    let whole = !packet.more_frags() && packet.frag_offset() == 0;
    match protocol {
        IpProtocol::Tcp if checksum_missing && whole => {
            if let Ok(mut segment) = TcpPacket::new_checked(packet.payload_mut()) {
                segment.fill_checksum(&from.into(), &to.into());
            }
        }
        IpProtocol::Udp if whole => {
            let Ok(mut datagram) = UdpPacket::new_checked(packet.payload_mut()) else { return };
            if checksum_missing {
                datagram.fill_checksum(&from.into(), &to.into());
            }
            let is_server = datagram.src_port() == DHCP_SERVER_PORT;
            if is_server && !servers.contains(&from) && servers.len() < MOST_SERVERS {
                servers.push(from);
            }
        }
        _ => {}
    }
}

/// The link as smoltcp sees it.
pub(crate) struct Wire<'a> {
    pub(crate) link: &'a mut dyn Link,
    pub(crate) frames: &'a mut Frames,
}

impl Device for Wire<'_> {
    type RxToken<'t>
        = Incoming<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Outgoing<'t>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let at = loop {
            match self.link.receive(&mut self.frames.incoming) {
                Ok(Some(arrived)) => {
                    if let Some(at) = self.frames.admit(arrived) {
                        break at;
                    }
                }
                Ok(None) => return None,
                Err(broken) => {
                    self.frames.fault = Some(broken);
                    return None;
                }
            }
        };
        let Frames { incoming, outgoing, vlan, fault, .. } = &mut *self.frames;
        let outgoing = Outgoing { link: &mut *self.link, buffer: outgoing, vlan: *vlan, fault };
        Some((Incoming(incoming.get(at).unwrap_or_default()), outgoing))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        let Frames { outgoing, vlan, fault, .. } = &mut *self.frames;
        Some(Outgoing { link: &mut *self.link, buffer: outgoing, vlan: *vlan, fault })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = ETHERNET_BYTES + MTU_BYTES;
        capabilities
    }
}

/// A frame to look at.
pub(crate) struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(self.0)
    }
}

/// A frame to be written and sent.
pub(crate) struct Outgoing<'a> {
    link: &'a mut dyn Link,
    buffer: &'a mut [u8],
    vlan: Option<u16>,
    fault: &'a mut Option<Broken>,
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        // smoltcp asks for no more than the capabilities say.
        let end = TAG_BYTES + length;
        let result = write(&mut self.buffer[TAG_BYTES..end]);
        let start = match self.vlan {
            Some(vlan) => {
                self.buffer.copy_within(TAG_BYTES..TAG_BYTES + ADDRESSES_BYTES, 0);
                self.buffer[ADDRESSES_BYTES..ETHERNET_BYTES].copy_from_slice(&TAG_TYPE);
                self.buffer[ETHERNET_BYTES..ETHERNET_BYTES + 2].copy_from_slice(&vlan.to_be_bytes());
                0
            }
            None => TAG_BYTES,
        };
        if let Err(broken) = self.link.send(&self.buffer[start..end]) {
            *self.fault = Some(broken);
        }
        result
    }
}
