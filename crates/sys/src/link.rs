//! What a network card does to frames before they are seen, whether it carries any, and what its driver is.
//!
//! Owns: whether received frames are merged, by the kernel (GRO) or by the card (LRO), of an interface given by name; the
//! versions of its driver and firmware, which netlink does not tell.
//! Does not: addresses, routes, or taking the interface up: `/sys/class/net/NAME/flags` takes that.
//! Fails by: `EOPNOTSUPP` where a card does not know, `ENODEV` for an interface that is not there.
//! Source: linux/ethtool.h, `ETHTOOL_GGRO`, `ETHTOOL_GFLAGS` and `ETHTOOL_GDRVINFO`; netdevice(7) for struct ifreq.

use alloc::borrow::ToOwned;
use alloc::string::String;

use linux_raw_sys::general::__NR_ioctl;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::{Errno, Result, raw};

/// linux/sockios.h.
const SIOCGIFFLAGS: usize = 0x8913;
const SIOCETHTOOL: usize = 0x8946;
/// linux/ethtool.h.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
/// `ETH_FLAG_LRO`.
const LRO: u32 = 1 << 15;
/// `IFF_UP` and `IFF_RUNNING` (linux/if.h).
const CARRIES: u16 = 1 | 1 << 6;
/// `ETHTOOL_FWVERS_LEN` and its like: texts of struct ethtool_drvinfo, which end with a zero or fill the field.
const TEXT_BYTES: usize = 32;
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

/// struct ethtool_drvinfo.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; TEXT_BYTES],
    version: [u8; TEXT_BYTES],
    firmware: [u8; TEXT_BYTES],
    bus: [u8; TEXT_BYTES],
    /// Its expansion ROM's version, 12 bytes that are reserved, five numbers of four bytes.
    rest: [u8; TEXT_BYTES + 12 + 20],
}

/// Versions of a card's driver and firmware; empty where the driver tells none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Driver {
    /// Of the driver.
    pub version: String,
    /// Of the firmware.
    pub firmware: String,
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

/// What an interface's driver tells of itself. int ioctl(int fd, SIOCETHTOOL, struct ifreq *)
pub fn driver(name: &str) -> Result<Driver> {
    let socket = socket()?;
    let empty = [0; TEXT_BYTES];
    let mut info = DriverInfo {
        command: ETHTOOL_GDRVINFO,
        driver: empty,
        version: empty,
        firmware: empty,
        bus: empty,
        rest: [0; TEXT_BYTES + 12 + 20],
    };
    let mut request = Request { name: name_field(name)?, data: raw::write(&mut info), rest: [0; 16] };
    let arguments = [raw::fd(socket.as_raw_fd()), SIOCETHTOOL, raw::write(&mut request), 0, 0, 0];
    // SAFETY:
    // 1. `request` is a struct ifreq of the kernel's size, read and written over the call.
    // 2. Its `data` points to a struct ethtool_drvinfo of the kernel's size, which this command writes and which lives over
    //    the call.
    unsafe { raw::syscall(__NR_ioctl, arguments) }?;
    Ok(Driver { version: text(&info.version), firmware: text(&info.firmware) })
}

/// A text up to its zero.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim().to_owned()
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
        assert_eq!(size_of::<DriverInfo>(), 196);
    }

    #[test]
    fn an_interface_that_is_not_there_is_refused() {
        assert_eq!(merging("no-such-link"), Err(Errno::NODEV));
        assert_eq!(merging("a-name-that-is-too-long"), Err(Errno::NODEV));
        assert_eq!(carries("no-such-link"), Err(Errno::NODEV));
        assert_eq!(carries("a-name-that-is-too-long"), Err(Errno::NODEV));
        assert_eq!(driver("no-such-link"), Err(Errno::NODEV));
        assert_eq!(driver("a-name-that-is-too-long"), Err(Errno::NODEV));
    }

    #[test]
    fn a_text_ends_with_a_zero_or_its_field() {
        assert_eq!(text(b"1.0.0\0rest"), "1.0.0");
        assert_eq!((text(b"full"), text(b"\0"), text(b" 7 \0")), ("full".into(), String::new(), "7".into()));
    }

    #[test]
    fn the_loopback_carries_frames_where_it_is_up() {
        let flags = std::fs::read_to_string("/sys/class/net/lo/flags").unwrap();
        let flags = u16::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap();
        assert_eq!(carries("lo"), Ok(flags & 1 != 0));
    }
}
