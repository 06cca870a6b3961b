//! A capture as lines of text.
//!
//! Owns: the classic pcap file format in both byte orders and both resolutions, and one line for each packet: Ethernet
//! and raw IP, then ARP, IPv4, IPv6, TCP, UDP, ICMP. Does not: put fragments or streams together.
//! Fails by: an error for a stream that is no capture; a packet that is cut or unknown is shown by its length.
//! Source: the pcap file format (draft-ietf-opsawg-pcap), RFC 791, 8200, 826, 9293, 768.

use anyhow::{Result, bail};
use jiff::{Timestamp, tz::TimeZone};
use std::{
    fmt::Write,
    net::{Ipv4Addr, Ipv6Addr},
};

/// Bytes of the file header and of each packet's.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// A packet that claims more is a broken stream.
const LARGEST: usize = 1 << 20;
/// Link types.
const ETHERNET: u32 = 1;
const RAW_IP: u32 = 101;

/// A capture that comes in pieces.
#[derive(Default)]
pub(super) struct Reader {
    buffer: Vec<u8>,
    format: Option<Format>,
}

#[derive(Clone, Copy)]
struct Format {
    big_endian: bool,
    nanoseconds: bool,
    link: u32,
}

impl Format {
    fn number(self, bytes: &[u8]) -> u32 {
        let four = <[u8; 4]>::try_from(bytes).unwrap_or_default();
        if self.big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    }
}

impl Reader {
    /// The lines of the packets that `bytes` complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<String> {
        self.buffer.extend_from_slice(bytes);
        let mut lines = String::new();
        let format = match self.format {
            Some(format) => format,
            None if self.buffer.len() < FILE_HEADER => return Ok(lines),
            None => {
                let format = format(&self.buffer)?;
                self.buffer.drain(..FILE_HEADER);
                *self.format.insert(format)
            }
        };
        let mut rest = self.buffer.as_slice();
        while let Some((header, after)) = rest.split_at_checked(PACKET_HEADER) {
            let length = usize::try_from(format.number(&header[8..12])).unwrap_or(usize::MAX);
            if length > LARGEST {
                bail!("the node sent a packet of {length} bytes; the capture is broken");
            }
            let Some((packet, after)) = after.split_at_checked(length) else { break };
            let _ = writeln!(
                lines,
                "{} {}",
                time(format, header),
                line(format.link, packet, format.number(&header[12..16]))
            );
            rest = after;
        }
        self.buffer = rest.to_vec();
        Ok(lines)
    }
}

fn format(header: &[u8]) -> Result<Format> {
    let (big_endian, nanoseconds) = match header[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] => (false, false),
        [0x4d, 0x3c, 0xb2, 0xa1] => (false, true),
        [0xa1, 0xb2, 0xc3, 0xd4] => (true, false),
        [0xa1, 0xb2, 0x3c, 0x4d] => (true, true),
        _ => bail!("the node's answer is no packet capture"),
    };
    let format = Format { big_endian, nanoseconds, link: 0 };
    Ok(Format { link: format.number(&header[20..24]), ..format })
}

fn time(format: Format, header: &[u8]) -> String {
    let (seconds, part) = (format.number(&header[..4]), format.number(&header[4..8]));
    let nanos = if format.nanoseconds { part } else { part.saturating_mul(1000) };
    let time = Timestamp::new(i64::from(seconds), i32::try_from(nanos.min(999_999_999)).unwrap_or(0));
    time.map_or_else(
        |_| seconds.to_string(),
        |t| t.to_zoned(TimeZone::system()).strftime("%H:%M:%S%.6f").to_string(),
    )
}

fn line(link: u32, packet: &[u8], original: u32) -> String {
    let text = match link {
        ETHERNET => ethernet(packet),
        RAW_IP => ip(packet),
        _ => None,
    };
    format!("{}, length {original}", text.unwrap_or_else(|| format!("link type {link}")))
}

fn ethernet(packet: &[u8]) -> Option<String> {
    let (mut kind, mut rest) = (be16(packet, 12)?, packet.get(14..)?);
    let mut vlan = String::new();
    while kind == 0x8100 || kind == 0x88a8 {
        let _ = write!(vlan, "vlan {} ", be16(rest, 0)? & 0xfff);
        (kind, rest) = (be16(rest, 2)?, rest.get(4..)?);
    }
    let text = match kind {
        0x0800 | 0x86dd => ip(rest)?,
        0x0806 => arp(rest)?,
        other => format!("{} > {} ethertype {other:#06x}", mac(packet.get(6..12)?), mac(packet.get(..6)?)),
    };
    Some(vlan + &text)
}

fn arp(packet: &[u8]) -> Option<String> {
    let (sender, target) = (ipv4(packet, 14)?, ipv4(packet, 24)?);
    Some(match be16(packet, 6)? {
        1 => format!("ARP, Request who-has {target} tell {sender}"),
        2 => format!("ARP, Reply {sender} is-at {}", mac(packet.get(8..14)?)),
        operation => format!("ARP, operation {operation}"),
    })
}

fn ip(packet: &[u8]) -> Option<String> {
    match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 0xf) * 4;
            let ends = (ipv4(packet, 12)?.to_string(), ipv4(packet, 16)?.to_string());
            // A later fragment does not begin with a header of the next protocol.
            let is_first = be16(packet, 6)? & 0x1fff == 0;
            Some(format!(
                "IP {}",
                transport(*packet.get(9)?, packet.get(header..).filter(|_| is_first), &ends)
            ))
        }
        6 => {
            let address =
                |at| Some(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?).to_string());
            let ends = (address(8)?, address(24)?);
            Some(format!("IP6 {}", transport(*packet.get(6)?, packet.get(40..), &ends)))
        }
        _ => None,
    }
}

fn transport(protocol: u8, rest: Option<&[u8]>, (from, to): &(String, String)) -> String {
    let ports = rest.and_then(|r| Some((be16(r, 0)?, be16(r, 2)?)));
    match (protocol, ports) {
        (6, Some((a, b))) => {
            format!(
                "{from}.{a} > {to}.{b}: TCP [{}]",
                rest.and_then(|r| r.get(13)).map_or_else(String::new, |f| flags(*f))
            )
        }
        (17, Some((a, b))) => format!("{from}.{a} > {to}.{b}: UDP"),
        (1, _) => format!("{from} > {to}: ICMP"),
        (58, _) => format!("{from} > {to}: ICMP6"),
        _ => format!("{from} > {to}: protocol {protocol}"),
    }
}

fn flags(byte: u8) -> String {
    let names = [(0x02, 'S'), (0x01, 'F'), (0x04, 'R'), (0x08, 'P'), (0x20, 'U'), (0x10, '.')];
    names.iter().filter(|(bit, _)| byte & bit != 0).map(|(_, name)| name).collect()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn ipv4(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?))
}

fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN from 10.0.2.15:40000 to 10.0.2.2:443 in an Ethernet frame.
    fn syn() -> Vec<u8> {
        let mut packet = vec![0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2, 0x08, 0x00];
        packet.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 2, 15, 10, 0, 2, 2]);
        packet.extend([0x9c, 0x40, 0x01, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0, 0, 0, 0, 0, 0]);
        packet
    }

    fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut out = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        out.extend([0; 8]);
        out.extend(4096_u32.to_le_bytes());
        out.extend(ETHERNET.to_le_bytes());
        for packet in packets {
            let length = u32::try_from(packet.len()).unwrap();
            for number in [60, 500_000, length, length] {
                out.extend(u32::to_le_bytes(number));
            }
            out.extend(packet);
        }
        out
    }

    #[test]
    fn packets_are_lines_however_the_stream_is_cut() {
        let mut arp = vec![0xff; 12];
        arp.extend([
            0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2, 10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 10, 0, 2, 2,
        ]);
        let bytes = capture(&[syn(), arp]);
        for size in [1, 7, 40, bytes.len()] {
            let mut reader = Reader::default();
            let text: String = bytes.chunks(size).map(|c| reader.push(c).unwrap()).collect();
            let lines: Vec<_> = text.lines().map(|l| l.split_once(' ').unwrap()).collect();
            assert_eq!(lines[0].1, "IP 10.0.2.15.40000 > 10.0.2.2.443: TCP [S], length 54");
            assert_eq!(lines[1].1, "ARP, Request who-has 10.0.2.2 tell 10.0.2.15, length 42");
            assert!(lines[0].0.ends_with(":00.500000"), "{text}");
        }
    }

    #[test]
    fn a_cut_packet_is_no_crash() {
        let whole = syn();
        for length in 0..whole.len() {
            let mut reader = Reader::default();
            let text = reader.push(&capture(&[whole[..length].to_vec()])).unwrap();
            assert!(text.ends_with(&format!(", length {length}\n")), "{text}");
        }
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        assert!(Reader::default().push(&[0; 24]).is_err());
        let mut bytes = capture(&[]);
        bytes.extend([0xff; 16]);
        assert!(Reader::default().push(&bytes).is_err());
    }
}
