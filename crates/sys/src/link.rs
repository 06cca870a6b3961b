//! What a network card does to frames before they are seen.
//!
//! Owns: whether received frames are merged, by the kernel (GRO) or by the card (LRO), of an interface given by name.
//! Does not: addresses, routes, or whether the interface is up: `/sys/class/net/NAME/flags` takes that.
//! Fails by: `EOPNOTSUPP` where a card does not know, `ENODEV` for an interface that is not there.
//! Source: linux/ethtool.h, `ETHTOOL_GGRO` and `ETHTOOL_GFLAGS`; netdevice(7) for struct ifreq.

use linux_raw_sys::general::__NR_ioctl;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::{Errno, Result, raw};

/// linux/sockios.h.
const SIOCETHTOOL: usize = 0x8946;
/// linux/ethtool.h.
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
/// `ETH_FLAG_LRO`.
const LRO: u32 = 1 << 15;
/// `IFNAMSIZ`, its closing zero included.
const NAME_BYTES: usize = 16;

/// struct ifreq, with `ifr_data`.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    data: usize,
    rest: [u8; 16],
}

/// struct ethtool_value.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// How received frames are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merging {
    /// By the kernel.
    pub kernel: bool,
    /// By the card.
    pub card: bool,
}

/// How an interface merges.
pub fn merging(name: &str) -> Result<Merging> {
    let socket = socket()?;
    let kernel = ethtool(&socket, name, ETHTOOL_GGRO, 0)? != 0;
    let card = ethtool(&socket, name, ETHTOOL_GFLAGS, 0)? & LRO != 0;
    Ok(Merging { kernel, card })
}

/// Has an interface merge or not.
pub fn set_merging(name: &str, wanted: Merging) -> Result<()> {
    let socket = socket()?;
    ethtool(&socket, name, ETHTOOL_SGRO, u32::from(wanted.kernel))?;
    let flags = ethtool(&socket, name, ETHTOOL_GFLAGS, 0)?;
    let changed = if wanted.card { flags | LRO } else { flags & !LRO };
    if changed != flags {
        ethtool(&socket, name, ETHTOOL_SFLAGS, changed)?;
    }
    Ok(())
}

/// Any socket carries the call.
fn socket() -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// int ioctl(int fd, SIOCETHTOOL, struct ifreq *): the value that is there afterwards.
fn ethtool(socket: &OwnedFd, name: &str, command: u32, data: u32) -> Result<u32> {
    let mut value = Value { command, data };
    let mut request = Request { name: [0; NAME_BYTES], data: raw::write(&mut value), rest: [0; 16] };
    // The last byte stays the closing zero.
    let field = request.name.get_mut(..name.len()).filter(|field| field.len() < NAME_BYTES);
    field.ok_or(Errno::NODEV)?.copy_from_slice(name.as_bytes());
    let arguments = [raw::fd(socket.as_raw_fd()), SIOCETHTOOL, raw::write(&mut request), 0, 0, 0];
    // SAFETY:
    // 1. `request` is a struct ifreq of the kernel's size, read and written over the call.
    // 2. Its `data` points to a struct ethtool_value, which these four commands read and write and which lives over
    //    the call.
    unsafe { raw::syscall(__NR_ioctl, arguments) }?;
    Ok(value.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!((size_of::<Request>(), size_of::<Value>()), (40, 8));
    }

    #[test]
    fn an_interface_that_is_not_there_is_refused() {
        assert_eq!(merging("no-such-link"), Err(Errno::NODEV));
        assert_eq!(merging("a-name-that-is-too-long"), Err(Errno::NODEV));
    }
}
