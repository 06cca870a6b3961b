//! Packets of a network interface as they pass: AF_PACKET sockets.
//!
//! Owns: opening one so that no packet outside filter and interface is ever seen.
//! Does not: interpret packets. Order: filter before bind, since a bound socket receives.
//! Fails by: `EPERM` without CAP_NET_RAW, `ENODEV` for an interface that is not there, `EINVAL` for a filter that the
//! kernel's checker refuses. Source: packet(7), socket(7).

use linux_raw_sys::general as nr;
use linux_raw_sys::if_packet::{PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC};
use linux_raw_sys::net::{SO_ATTACH_FILTER, SOL_PACKET, SOL_SOCKET};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

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
fn set_option<T>(socket: &OwnedFd, level: u32, name: u32, value: &T) -> Result<()> {
    let arguments = [
        raw::fd(socket.as_raw_fd()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!((size_of::<Instruction>(), size_of::<Program>()), (8, 16));
        assert_eq!((size_of::<LinkAddress>(), size_of::<Membership>()), (20, 16));
    }

    #[test]
    fn an_interface_that_is_not_there_is_refused() {
        // Without the privilege the socket is refused before the interface is.
        let error = open(0x7fff_fff0, true, &[]).unwrap_err();
        assert!([Errno::NODEV, Errno::PERM].contains(&error), "{error}");
    }
}
