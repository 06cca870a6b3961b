//! Packet sockets that carry descriptors.
//!
//! Owns: `SOCK_SEQPACKET` pairs; one packet is one message with at most one descriptor on it (`SCM_RIGHTS`).
//! Does not: know the messages (`handoff` does) or wait: sockets from [`pair`] block, ask [`set_nonblocking`].
//! Fails by: `EAGAIN` when a non-blocking socket has nothing, `EPIPE` or `ECONNRESET` when the peer is gone,
//! `EMSGSIZE` when a packet is longer than the buffer or carries more than one descriptor.
//! Source: unix(7), recvmsg(2).

use core::mem::MaybeUninit;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::{Errno, Result};

/// A received packet.
#[derive(Debug)]
pub struct Packet {
    /// How many bytes of the buffer it filled; zero means that the peer closed its end.
    pub len: usize,
    /// The descriptor that rode on it, close-on-exec.
    pub descriptor: Option<OwnedFd>,
}

/// `int socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, int sv[2])`.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Makes reads and writes return `EAGAIN` instead of waiting. The flag belongs to the open socket, not to the
/// descriptor number: it is shared with every duplicate.
pub fn set_nonblocking<Fd: AsFd>(socket: Fd) -> Result<()> {
    let flags = rustix::fs::fcntl_getfl(&socket)?;
    rustix::fs::fcntl_setfl(&socket, flags | rustix::fs::OFlags::NONBLOCK)
}

/// Sends one packet, with a descriptor if one is given. Never raises SIGPIPE.
pub fn send<Fd: AsFd>(socket: Fd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = descriptor.as_slice();
    if !rights.is_empty() && !control.push(SendAncillaryMessage::ScmRights(rights)) {
        return Err(Errno::NOBUFS);
    }
    let sent = rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
    })?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// Receives one packet.
pub fn receive<Fd: AsFd>(socket: Fd, buffer: &mut [u8]) -> Result<Packet> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptor = None;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut rights) = part {
            descriptor = rights.next();
        }
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok(Packet { len: message.bytes, descriptor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_keeps_its_borders_and_its_descriptor() {
        let (here, there) = pair().unwrap();
        let (gift, other) = pair().unwrap();
        send(&here, b"first", Some(gift.as_fd())).unwrap();
        send(&here, b"second", None).unwrap();
        drop(gift);

        let mut buffer = [0; 16];
        let packet = receive(&there, &mut buffer).unwrap();
        assert_eq!(&buffer[..packet.len], b"first");
        let gift = packet.descriptor.unwrap();
        send(&gift, b"alive", None).unwrap();
        assert_eq!(receive(&other, &mut buffer).unwrap().len, 5);

        let packet = receive(&there, &mut buffer).unwrap();
        assert_eq!(&buffer[..packet.len], b"second");
        assert!(packet.descriptor.is_none());
    }

    #[test]
    fn a_closed_peer_reads_as_an_empty_packet_and_writes_as_an_error() {
        let (here, there) = pair().unwrap();
        drop(there);
        assert_eq!(receive(&here, &mut [0; 4]).unwrap().len, 0);
        assert_eq!(send(&here, b"x", None), Err(Errno::PIPE));
    }

    #[test]
    fn long_packets_and_empty_queues_are_errors() {
        let (here, there) = pair().unwrap();
        send(&here, b"too long", None).unwrap();
        assert_eq!(receive(&there, &mut [0; 3]).unwrap_err(), Errno::MSGSIZE);
        set_nonblocking(&there).unwrap();
        assert_eq!(receive(&there, &mut [0; 3]).unwrap_err(), Errno::AGAIN);
    }
}
