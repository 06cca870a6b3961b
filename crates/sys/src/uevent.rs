//! Kernel device events.
//!
//! Owns: the netlink socket and the fields of an event.
//! Does not: interpret them.
//! Fails by: `EAGAIN` when there is none, `ENOBUFS` when events were lost (look at /sys again).
//! Source: netlink(7), lib/kobject_uevent.c.

use rustix::fd::{AsFd, OwnedFd};
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use crate::{Errno, Result};

/// Longest event: the kernel's buffer is 2048 bytes (`UEVENT_BUFFER_SIZE`) plus the header line.
pub const MAX_BYTES: usize = 4096;

/// Multicast group of the kernel; udev's own messages use 2.
const KERNEL_GROUP: u32 = 1;

/// Opens a non-blocking socket that hears every device event from now on.
pub fn open() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
    // Coldplug of a big machine makes thousands of events before we read again.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 4 * 1024 * 1024);
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
    Ok(socket)
}

/// Reads one event into the buffer; messages that do not come from the kernel are passed over.
pub fn receive<Fd: AsFd>(socket: Fd, buffer: &mut [u8]) -> Result<usize> {
    loop {
        let (len, _, from) = rustix::io::retry_on_intr(|| {
            rustix::net::recvfrom(&socket, &mut buffer[..], RecvFlags::empty())
        })?;
        let sender = from.and_then(|a| SocketAddrNetlink::try_from(a).ok()).ok_or(Errno::PROTO)?;
        if sender.pid() == 0 {
            return Ok(len);
        }
    }
}

/// A field of an event: `field(event, "ACTION")`.
pub fn field<'e>(event: &'e [u8], name: &str) -> Option<&'e str> {
    event.split(|&b| b == 0).skip(1).find_map(|part| {
        let value = part.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        core::str::from_utf8(value).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let event =
            b"change@/devices/virtual/block/dm-1\0ACTION=change\0DEVNAME=dm-1\0DM_VERITY_ERR_BLOCK_NR=0,9\0";
        assert_eq!(field(event, "DEVNAME"), Some("dm-1"));
        assert_eq!(field(event, "DM_VERITY_ERR_BLOCK_NR"), Some("0,9"));
        assert_eq!(field(event, "DEV"), None);
        assert_eq!(field(b"", "DEV"), None);
    }
}
