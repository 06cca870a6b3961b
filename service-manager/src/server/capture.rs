//! `PacketCapture`: what passes an interface, as a classic pcap stream.
//!
//! Owns: the file format. Does not: decode packets, or end by itself: the client hangs up.
//! Fields, little endian: file header of 24 bytes (magic 0 +4, major 4 +2, minor 6 +2, zone 8 +4, accuracy 12 +4, snap
//! length 16 +4, link type 20 +4), then for each packet 16 bytes (seconds, microseconds, captured length, length) and
//! its bytes. Source: draft-ietf-opsawg-pcap; crates/api/proto/machine/machine.proto (PacketCapture).

use std::fs;
use std::os::fd::OwnedFd;

use api::proto::common::Data;
use api::proto::machine as proto;
use runtime::clock;
use runtime::request;
use sys::packet::{self, Instruction, MOST_INSTRUCTIONS};
use tokio::io::unix::AsyncFd;
use tonic::{Response, Status};

use super::answers::{Answers, Sender, answers};
use crate::node::Node;

const MAGIC: u32 = 0xa1b2_c3d4;
/// Bytes kept of a packet when the client does not say; also the most.
const LARGEST_SNAP: u32 = 256 * 1024;
/// Bytes that are gathered before they are sent, when packets come fast.
const CHUNK: usize = 32 * 1024;

pub(super) fn capture(
    node: &Node,
    request: &proto::PacketCaptureRequest,
) -> Result<Response<Answers<Data>>, Status> {
    let filter = filter(&request.bpf_filter)?;
    let (index, link_type) = interface(node, &request.interface)?;
    let socket = packet::open(index, request.promiscuous, &filter).map_err(|e| {
        let text = format!("capture on {}: {}", request.interface, sys::errno::Described(e));
        if e == sys::Errno::INVAL { Status::invalid_argument(text) } else { Status::internal(text) }
    })?;
    let socket = runtime::watched::readable(socket)
        .map_err(|e| Status::internal(format!("watch the capture on {}: {e}", request.interface)))?;
    let snap = match request.snap_len {
        0 => LARGEST_SNAP,
        wanted => wanted.min(LARGEST_SNAP),
    };
    let (sender, answer) = answers();
    request::feed(sender.clone(), async move {
        if let Err(error) = send_packets(&socket, snap, link_type, &sender).await {
            let _ = sender.send(Err(Status::internal(format!("read packets: {error}")))).await;
        }
    });
    Ok(answer)
}

pub(super) fn filter(wanted: &[proto::BpfInstruction]) -> Result<Vec<Instruction>, Status> {
    if wanted.len() > MOST_INSTRUCTIONS {
        let text = format!("the filter has {} instructions, {MOST_INSTRUCTIONS} are allowed", wanted.len());
        return Err(Status::invalid_argument(text));
    }
    let converted: Option<Vec<_>> = wanted
        .iter()
        .map(|wire| {
            Some(Instruction {
                code: u16::try_from(wire.op).ok()?,
                jump_true: u8::try_from(wire.jt).ok()?,
                jump_false: u8::try_from(wire.jf).ok()?,
                operand: wire.k,
            })
        })
        .collect();
    converted.ok_or_else(|| Status::invalid_argument("the filter has an instruction that does not exist"))
}

/// Index and pcap link type of an interface.
fn interface(node: &Node, name: &str) -> Result<(u32, u32), Status> {
    let directory = node.runtime.path("/sys/class/net").join(name);
    let missing = || Status::not_found(format!("interface {name:?} does not exist"));
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(missing());
    }
    let number = |file: &str| fs::read_to_string(directory.join(file)).ok()?.trim().parse::<u32>().ok();
    let (index, hardware) = number("ifindex").zip(number("type")).ok_or_else(missing)?;
    match hardware {
        // ARPHRD_ETHER and ARPHRD_LOOPBACK carry Ethernet frames, ARPHRD_NONE and tunnels bare IP packets.
        1 | 772 => Ok((index, 1)),
        65_534 | 768 | 769 | 776 | 778 => Ok((index, 101)),
        other => {
            Err(Status::unimplemented(format!("interface {name:?} has link type {other}: not supported")))
        }
    }
}

async fn send_packets(
    socket: &AsyncFd<OwnedFd>,
    snap: u32,
    link_type: u32,
    sender: &Sender<Data>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; usize::try_from(snap).unwrap_or(0)];
    let mut out = file_header(snap, link_type);
    loop {
        match packet::receive(socket.get_ref(), &mut buffer) {
            Ok((kept, length)) => {
                let now = clock::now();
                push_packet(&mut out, now, buffer.get(..kept).unwrap_or(&buffer), length);
                if out.len() < CHUNK {
                    continue;
                }
            }
            Err(sys::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        if !out.is_empty() {
            let bytes = std::mem::take(&mut out);
            if sender.send(Ok(Data { metadata: None, bytes })).await.is_err() {
                return Ok(());
            }
            continue;
        }
        tokio::select! {
            ready = socket.readable() => ready?.clear_ready(),
            () = sender.closed() => return Ok(()),
        }
    }
}

fn file_header(snap: u32, link_type: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    out.extend(MAGIC.to_le_bytes());
    out.extend(2_u16.to_le_bytes());
    out.extend(4_u16.to_le_bytes());
    out.extend([0; 8]);
    out.extend(snap.to_le_bytes());
    out.extend(link_type.to_le_bytes());
    out
}

fn push_packet(out: &mut Vec<u8>, when: jiff::Timestamp, bytes: &[u8], length: usize) {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
    out.extend(u32::try_from(when.as_second()).unwrap_or(0).to_le_bytes());
    out.extend(u32::try_from(when.subsec_microsecond()).unwrap_or(0).to_le_bytes());
    out.extend(number(bytes.len()));
    out.extend(number(length));
    out.extend(bytes);
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use futures_util::StreamExt;

    use super::*;

    /// `ip proto 17 and udp dst port N`, as tcpdump -dd makes it for Ethernet without options.
    fn udp_to(port: u16) -> Vec<proto::BpfInstruction> {
        let op = |op, jt, jf, k| proto::BpfInstruction { op, jt, jf, k };
        vec![
            op(0x28, 0, 0, 12),
            op(0x15, 0, 5, 0x0800),
            op(0x30, 0, 0, 23),
            op(0x15, 0, 3, 17),
            op(0x28, 0, 0, 36),
            op(0x15, 0, 1, u32::from(port)),
            op(0x6, 0, 0, 65_535),
            op(0x6, 0, 0, 0),
        ]
    }

    #[tokio::test]
    async fn packets_on_loopback_pass_the_filter_and_are_cut() {
        let node = crate::server::tests_node(PathBuf::from("/"));
        let listener = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let other = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (port, wrong) = (listener.local_addr().unwrap().port(), other.local_addr().unwrap());
        let request = proto::PacketCaptureRequest {
            interface: "lo".into(),
            promiscuous: false,
            snap_len: 44,
            bpf_filter: udp_to(port),
        };
        let mut stream = match capture(&node, &request) {
            Ok(stream) => stream.into_inner(),
            // Only a privileged test run can capture; anyone else must be told why not.
            Err(status) => {
                assert!(!rustix::process::geteuid().is_root(), "{status}");
                return;
            }
        };
        let sender = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        sender.send_to(b"not this", wrong).await.unwrap();
        sender.send_to(b"hello", listener.local_addr().unwrap()).await.unwrap();
        let mut bytes = Vec::new();
        while bytes.len() < 24 + 16 + 44 {
            let next = tokio::time::timeout(Duration::from_secs(10), stream.next()).await.unwrap();
            bytes.extend(next.unwrap().unwrap().bytes);
        }
        assert_eq!(bytes[..8], [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!((bytes[16], bytes[20]), (44, 1), "snap length and Ethernet");
        let record = &bytes[24..];
        assert_eq!((record[8], record[12]), (44, 14 + 20 + 8 + 5), "kept and original length");
        assert_eq!(record[16 + 36..16 + 38], port.to_be_bytes(), "the destination port of the packet");
        assert_eq!(&record[16 + 42..16 + 44], b"he");
    }

    #[tokio::test]
    async fn wrong_requests_are_named() {
        let node = crate::server::tests_node(PathBuf::from("/"));
        let request = |interface: &str, op| proto::PacketCaptureRequest {
            interface: interface.into(),
            bpf_filter: vec![proto::BpfInstruction { op, jt: 0, jf: 0, k: 0 }],
            ..Default::default()
        };
        let error = capture(&node, &request("nope0", 6)).unwrap_err();
        assert_eq!(error.message(), "interface \"nope0\" does not exist");
        assert_eq!(capture(&node, &request("../lo", 6)).unwrap_err().code(), tonic::Code::NotFound);
        let error = capture(&node, &request("lo", 0x1_0000)).unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
        if rustix::process::geteuid().is_root() {
            let error = capture(&node, &request("lo", 0xffff)).unwrap_err();
            assert_eq!(error.code(), tonic::Code::InvalidArgument, "the kernel refuses the program");
        }
    }
}
