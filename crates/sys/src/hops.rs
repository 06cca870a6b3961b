//! Datagrams of IPv6 with the hop limit that they came with.
//!
//! Owns: asking the kernel for it, and the one call that gives datagram, sender and hop limit together.
//! Does not: judge it; a protocol of one link refuses what a router passed on.
//! Fails by: `EAGAIN` when nothing is there, `EMSGSIZE` when the buffer is too small.
//! Source: ipv6(7), recvmsg(2); RFC 3542 §6.3.

use core::net::Ipv6Addr;

use linux_raw_sys::general::__NR_recvmsg;
use rustix::fd::{AsFd, AsRawFd};
use rustix::net::RecvFlags;

use crate::packet::{Message, Vector, set_option};
use crate::{Errno, Result, raw};

/// `SOL_IPV6` (linux/socket.h).
const SOL_IPV6: u32 = 41;
/// linux/in6.h.
const IPV6_RECVHOPLIMIT: u32 = 51;
const IPV6_HOPLIMIT: u32 = 52;

/// struct sockaddr_in6.
#[repr(C)]
#[derive(Default)]
struct Sender {
    family: u16,
    port: u16,
    flow: u32,
    address: [u8; 16],
    scope: u32,
}

/// struct cmsghdr, and an int behind it.
#[repr(C)]
#[derive(Default)]
struct Control {
    length: usize,
    level: u32,
    kind: u32,
    value: i32,
    padding: u32,
}

/// A datagram that is in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its bytes, without the header of IPv6.
    pub length: usize,
    /// Where it says it is from.
    pub sender: Ipv6Addr,
    /// What was left of its hop limit; none unless [`tell`] came first.
    pub hops: Option<u8>,
}

/// Has [`receive`] tell the hop limit.
pub fn tell<Fd: AsFd>(socket: Fd) -> Result<()> {
    set_option(&socket, SOL_IPV6, IPV6_RECVHOPLIMIT, &1_u32)
}

/// Reads one datagram of a socket of IPv6. ssize_t recvmsg(int sockfd, struct msghdr *msg, int flags)
pub fn receive<Fd: AsFd>(socket: Fd, buffer: &mut [u8]) -> Result<Received> {
    let mut vector = Vector { base: buffer.as_mut_ptr() as usize, length: buffer.len() };
    let (mut sender, mut control) = (Sender::default(), Control::default());
    let mut message = Message {
        name: raw::write(&mut sender),
        name_length: size_of::<Sender>(),
        vectors: raw::write(&mut vector),
        vector_count: 1,
        control: raw::write(&mut control),
        control_length: size_of::<Control>(),
        flags: 0,
    };
    let arguments = [
        raw::fd(socket.as_fd().as_raw_fd()),
        raw::write(&mut message),
        usize::try_from(RecvFlags::TRUNC.bits()).map_err(|_| Errno::INVAL)?,
        0,
        0,
        0,
    ];
    // SAFETY:
    // 1. `message`, `vector`, `sender` and `control` have the kernel's layout and live over the call.
    // 2. The vector covers `buffer`, which this function borrows for writing.
    // 3. The areas of name and control are `sender` and `control` whole, in which any bytes are a value.
    let length = rustix::io::retry_on_intr(|| unsafe { raw::syscall(__NR_recvmsg, arguments) })?;
    if length > buffer.len() {
        return Err(Errno::MSGSIZE);
    }
    let told = message.control_length > 0 && (control.level, control.kind) == (SOL_IPV6, IPV6_HOPLIMIT);
    let hops = if told { u8::try_from(control.value).ok() } else { None };
    Ok(Received { length, sender: sender.address.into(), hops })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!((size_of::<Sender>(), size_of::<Control>()), (28, 24));
    }

    #[test]
    fn a_datagram_tells_sender_and_hop_limit() {
        // A machine without IPv6 has nothing to see.
        let Ok(here) = UdpSocket::bind("[::1]:0") else { return };
        let to = here.local_addr().unwrap();
        let mut buffer = [0; 16];
        here.send_to(b"first", to).unwrap();
        let first = receive(&here, &mut buffer).unwrap();
        assert_eq!(first, Received { length: 5, sender: Ipv6Addr::LOCALHOST, hops: None });
        assert_eq!(&buffer[..5], b"first");
        tell(&here).unwrap();
        here.send_to(b"second", to).unwrap();
        let hops = receive(&here, &mut buffer).unwrap().hops;
        // The kernel's default; a machine may have another one.
        assert!(hops.is_some_and(|hops| hops > 0), "{hops:?}");
        here.send_to(b"this one is too long", to).unwrap();
        assert_eq!(receive(&here, &mut buffer).unwrap_err(), Errno::MSGSIZE);
        here.set_nonblocking(true).unwrap();
        assert_eq!(receive(&here, &mut buffer).unwrap_err(), Errno::AGAIN);
    }
}
