//! What a network card does to frames before they are seen, and whether it carries any.
//!
//! Owns: whether received frames are merged, by the kernel (GRO) or by the card (LRO), of an interface given by name.
//! Does not: addresses, routes, or taking the interface up: `/sys/class/net/NAME/flags` takes that.
//! Fails by: `EOPNOTSUPP` where a card does not know, `ENODEV` for an interface that is not there.
//! Source: linux/ethtool.h, `ETHTOOL_GGRO` and `ETHTOOL_GFLAGS`; netdevice(7) for struct ifreq.

use linux_raw_sys::general::__NR_ioctl;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::{Errno, Result, raw};

/// linux/sockios.h.
const SIOCGIFFLAGS: usize = 0x8913;
const SIOCETHTOOL: usize = 0x8946;
/// linux/ethtool.h.
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
/// `ETH_FLAG_LRO`.
const LRO: u32 = 1 << 15;
/// `IFF_UP` and `IFF_RUNNING` (linux/if.h).
const CARRIES: u16 = 1 | 1 << 6;
/// `IFNAMSIZ`, its closing zero included.
const NAME_BYTES: usize = 16;

/// struct ifreq, with `ifr_data`.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    data: usize,
    rest: [u8; 16],
}

/// struct ifreq, with `ifr_flags`.
#[repr(C)]
struct FlagsRequest {
    name: [u8; NAME_BYTES],
    flags: u16,
    rest: [u8; 22],
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

/// Whether an interface is up and its cable carries frames, as far as its driver knows. Looks into the network namespace
/// of the caller, which sysfs may not. int ioctl(int fd, SIOCGIFFLAGS, struct ifreq *)
pub fn carries(name: &str) -> Result<bool> {
    let socket = socket()?;
    let mut request = FlagsRequest { name: name_field(name)?, flags: 0, rest: [0; 22] };
    let arguments = [raw::fd(socket.as_raw_fd()), SIOCGIFFLAGS, raw::write(&mut request), 0, 0, 0];
    // SAFETY:
    // 1. `request` is a struct ifreq of the kernel's size, read and written over the call.
    // 2. This command uses its name and its flags, and follows no pointer.
    unsafe { raw::syscall(__NR_ioctl, arguments) }?;
    Ok(request.flags & CARRIES == CARRIES)
}

/// A name as struct ifreq has it.
fn name_field(name: &str) -> Result<[u8; NAME_BYTES]> {
    let mut field = [0; NAME_BYTES];
    // The last byte stays the closing zero.
    let part = field.get_mut(..name.len()).filter(|part| part.len() < NAME_BYTES);
    part.ok_or(Errno::NODEV)?.copy_from_slice(name.as_bytes());
    Ok(field)
}

/// Any socket carries the call.
fn socket() -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// int ioctl(int fd, SIOCETHTOOL, struct ifreq *): the value that is there afterwards.
fn ethtool(socket: &OwnedFd, name: &str, command: u32, data: u32) -> Result<u32> {
    let mut value = Value { command, data };
    let mut request = Request { name: name_field(name)?, data: raw::write(&mut value), rest: [0; 16] };
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
        assert_eq!((size_of::<Request>(), size_of::<FlagsRequest>(), size_of::<Value>()), (40, 40, 8));
    }

    #[test]
    fn an_interface_that_is_not_there_is_refused() {
        assert_eq!(merging("no-such-link"), Err(Errno::NODEV));
        assert_eq!(merging("a-name-that-is-too-long"), Err(Errno::NODEV));
        assert_eq!(carries("no-such-link"), Err(Errno::NODEV));
        assert_eq!(carries("a-name-that-is-too-long"), Err(Errno::NODEV));
    }

    #[test]
    fn the_loopback_carries_frames_where_it_is_up() {
        let flags = std::fs::read_to_string("/sys/class/net/lo/flags").unwrap();
        let flags = u16::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap();
        assert_eq!(carries("lo"), Ok(flags & 1 != 0));
    }
}
