//! Packets of a network interface as they pass: AF_PACKET sockets.
//!
//! Owns: opening one so that no packet outside filter and interface is ever seen.
//! Does not: interpret packets. Order: filter before bind, since a bound socket receives.
//! Fails by: `EPERM` without CAP_NET_RAW, `ENODEV` for an interface that is not there, `EINVAL` for a filter that the
//! kernel's checker refuses. Source: packet(7), socket(7).

use linux_raw_sys::general as nr;
use linux_raw_sys::if_packet::{PACKET_ADD_MEMBERSHIP, PACKET_AUXDATA, PACKET_MR_PROMISC};
use linux_raw_sys::net::{SO_ATTACH_FILTER, SOL_PACKET, SOL_SOCKET};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::{Errno, Result, raw};

/// Every protocol (linux/if_ether.h).
const ETH_P_ALL: u16 = 3;
/// Longest filter (`BPF_MAXINSNS`, linux/bpf_common.h).
pub const MOST_INSTRUCTIONS: usize = 4096;

/// One instruction of a classic BPF program: struct sock_filter.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Jump if true.
    pub jump_true: u8,
    /// Jump if false.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

/// struct sock_fprog.
#[repr(C)]
struct Program {
    length: u16,
    filter: *const Instruction,
}

/// struct sockaddr_ll.
#[repr(C)]
struct LinkAddress {
    family: u16,
    protocol: u16,
    interface: i32,
    hardware: u16,
    kind: u8,
    length: u8,
    address: [u8; 8],
}

/// struct packet_mreq.
#[repr(C)]
struct Membership {
    interface: i32,
    kind: u16,
    length: u16,
    address: [u8; 8],
}

/// What a card did with a packet before it was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Bytes in the buffer.
    pub length: usize,
    /// The VLAN tag that was taken off.
    pub tag: Option<u16>,
    /// The transport's checksum was left for a card to fill in.
    pub checksum_missing: bool,
}

/// struct msghdr, as the kernel has it.
#[repr(C)]
pub(crate) struct Message {
    pub(crate) name: usize,
    pub(crate) name_length: usize,
    pub(crate) vectors: usize,
    pub(crate) vector_count: usize,
    pub(crate) control: usize,
    pub(crate) control_length: usize,
    pub(crate) flags: usize,
}

/// struct iovec.
#[repr(C)]
pub(crate) struct Vector {
    pub(crate) base: usize,
    pub(crate) length: usize,
}

/// struct cmsghdr, and struct tpacket_auxdata behind it.
#[repr(C)]
#[derive(Default)]
struct Auxiliary {
    length: usize,
    level: u32,
    kind: u32,
    status: u32,
    packet_length: u32,
    snapshot_length: u32,
    link_offset: u16,
    network_offset: u16,
    tag: u16,
    tag_type: u16,
    padding: u32,
}

/// `TP_STATUS_CSUMNOTREADY` (linux/if_packet.h).
const CHECKSUM_NOT_READY: u32 = 1 << 3;
/// `TP_STATUS_VLAN_VALID`.
const TAG_VALID: u32 = 1 << 4;

/// Opens a non-blocking socket that receives what passes the interface with this index and the filter (everything
/// when it is empty).
pub fn open(interface: u32, promiscuous: bool, filter: &[Instruction]) -> Result<OwnedFd> {
    let interface = i32::try_from(interface).map_err(|_| Errno::NODEV)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Protocol 0: nothing arrives before the socket is bound.
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    if !filter.is_empty() {
        attach(&socket, filter)?;
    }
    if promiscuous {
        let kind = u16::try_from(PACKET_MR_PROMISC).map_err(|_| Errno::INVAL)?;
        let membership = Membership { interface, kind, length: 0, address: [0; 8] };
        set_option(&socket, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership)?;
    }
    bind(&socket, interface)?;
    Ok(socket)
}

fn attach(socket: &OwnedFd, filter: &[Instruction]) -> Result<()> {
    let length = u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?;
    let program = Program { length, filter: filter.as_ptr() };
    set_option(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program)
}

/// int setsockopt(int sockfd, int level, int optname, const void *optval, socklen_t optlen)
pub(crate) fn set_option<T, Fd: AsFd>(socket: &Fd, level: u32, name: u32, value: &T) -> Result<()> {
    let arguments = [
        raw::fd(socket.as_fd().as_raw_fd()),
        usize::try_from(level).map_err(|_| Errno::INVAL)?,
        usize::try_from(name).map_err(|_| Errno::INVAL)?,
        raw::read(value),
        size_of::<T>(),
        0,
    ];
    // SAFETY:
    // 1. `value` is read for its own size only and lives over the call; the kernel copies it.
    // 2. Of the types passed here only `Program` points further: to `length` instructions of a slice that its maker
    //    borrows over this call.
    unsafe { raw::syscall(nr::__NR_setsockopt, arguments) }.map(drop)
}

/// int bind(int sockfd, const struct sockaddr *addr, socklen_t addrlen)
fn bind(socket: &OwnedFd, interface: i32) -> Result<()> {
    let address = LinkAddress {
        family: AddressFamily::PACKET.as_raw(),
        protocol: ETH_P_ALL.to_be(),
        interface,
        hardware: 0,
        kind: 0,
        length: 0,
        address: [0; 8],
    };
    let arguments = [raw::fd(socket.as_raw_fd()), raw::read(&address), size_of::<LinkAddress>(), 0, 0, 0];
    // SAFETY:
    // 1. `address` is a struct sockaddr_ll of the size given, read by the kernel, and lives over the call.
    unsafe { raw::syscall(nr::__NR_bind, arguments) }.map(drop)
}

/// Reads one packet. Returns how many bytes are in the buffer and how many the packet had; `EAGAIN` when there is none.
pub fn receive<Fd: AsFd>(socket: Fd, buffer: &mut [u8]) -> Result<(usize, usize)> {
    rustix::io::retry_on_intr(|| rustix::net::recv(&socket, &mut *buffer, RecvFlags::TRUNC))
}

/// Has [`receive_whole`] tell what the card did, and the kernel hold so many bytes of unread packets, also more
/// than programs may ask for.
pub fn watch_cards(socket: &OwnedFd, queue_bytes: usize) -> Result<()> {
    tell_cards(socket)?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, queue_bytes)
}

/// Has [`receive_whole`] tell what the card did.
pub fn tell_cards(socket: &OwnedFd) -> Result<()> {
    set_option(socket, SOL_PACKET, PACKET_AUXDATA, &1_u32)
}

/// Reads one packet with what the card did to it; `EAGAIN` when there is none, `EMSGSIZE` if the buffer is too small.
/// ssize_t recvmsg(int sockfd, struct msghdr *msg, int flags)
pub fn receive_whole(socket: &OwnedFd, buffer: &mut [u8]) -> Result<Arrived> {
    let mut vector = Vector { base: buffer.as_mut_ptr() as usize, length: buffer.len() };
    let mut auxiliary = Auxiliary::default();
    let mut message = Message {
        name: 0,
        name_length: 0,
        vectors: raw::write(&mut vector),
        vector_count: 1,
        control: raw::write(&mut auxiliary),
        control_length: size_of::<Auxiliary>(),
        flags: 0,
    };
    let arguments = [
        raw::fd(socket.as_raw_fd()),
        raw::write(&mut message),
        usize::try_from(RecvFlags::TRUNC.bits()).map_err(|_| Errno::INVAL)?,
        0,
        0,
        0,
    ];
    // SAFETY:
    // 1. `message`, `vector` and `auxiliary` have the kernel's layout and live over the call.
    // 2. The vector covers `buffer`, which this function borrows for writing; the control area is `auxiliary` whole,
    //    in which any bytes are a value.
    let length = rustix::io::retry_on_intr(|| unsafe { raw::syscall(nr::__NR_recvmsg, arguments) })?;
    if length > buffer.len() {
        return Err(Errno::MSGSIZE);
    }
    let told =
        message.control_length > 0 && (auxiliary.level, auxiliary.kind) == (SOL_PACKET, PACKET_AUXDATA);
    let status = if told { auxiliary.status } else { 0 };
    Ok(Arrived {
        length,
        tag: (status & TAG_VALID != 0).then_some(auxiliary.tag),
        checksum_missing: status & CHECKSUM_NOT_READY != 0,
    })
}

/// Sends one packet, its link's header included; `ENOBUFS` or `EAGAIN` when the card's queue is full.
pub fn send<Fd: AsFd>(socket: Fd, packet: &[u8]) -> Result<()> {
    rustix::io::retry_on_intr(|| rustix::net::send(&socket, packet, SendFlags::empty())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!((size_of::<Message>(), size_of::<Vector>(), size_of::<Auxiliary>()), (56, 16, 40));
        assert_eq!((size_of::<Instruction>(), size_of::<Program>()), (8, 16));
        assert_eq!((size_of::<LinkAddress>(), size_of::<Membership>()), (20, 16));
    }

    /// Needs the privilege, like the test of whoever sends: without it there is nothing to see.
    #[test]
    fn packets_of_the_loopback_come_with_what_was_done_to_them() {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap().trim().parse().unwrap();
        let Ok(socket) = open(index, false, &[]) else { return };
        watch_cards(&socket, 1 << 20).unwrap();
        let here = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = here.local_addr().unwrap();
        here.send_to(b"what the packet socket sees", to).unwrap();
        let mut buffer = [0; 2048];
        let seen = |found: &Arrived, buffer: &[u8]| buffer[..found.length].ends_with(b"packet socket sees");
        let found = (0..1000).find_map(|_| match receive_whole(&socket, &mut buffer) {
            Ok(found) if seen(&found, &buffer) => Some(found),
            Ok(_) => None,
            Err(errno) => panic!("{errno}"),
        });
        // The loopback leaves checksums out.
        assert_eq!(found, Some(Arrived { length: 14 + 28 + 27, tag: None, checksum_missing: true }));
        let sent = buffer[..14 + 28 + 27].to_vec();
        send(&socket, &sent).unwrap();
    }

    #[test]
    fn an_interface_that_is_not_there_is_refused() {
        // Without the privilege the socket is refused before the interface is.
        let error = open(0x7fff_fff0, true, &[]).unwrap_err();
        assert!([Errno::NODEV, Errno::PERM].contains(&error), "{error}");
    }
}
