//! Hardware watchdog.
//!
//! Owns: its three requests. Opening the device arms it; closing it without [`disarm`] leaves it armed.
//! Source: Documentation/watchdog/watchdog-api.rst, include/uapi/linux/watchdog.h.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};

use crate::{Result, raw};

/// `_IOR('W', 5, int)`
const WDIOC_KEEPALIVE: usize = 0x8004_5705;
/// `_IOWR('W', 6, int)`
const WDIOC_SETTIMEOUT: usize = 0xc004_5706;

/// Opens and thereby arms a watchdog.
pub fn open(path: &str) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Asks for a timeout and returns the one the device took.
pub fn set_timeout<Fd: AsFd>(watchdog: Fd, seconds: u32) -> Result<u32> {
    let mut value = i32::try_from(seconds).unwrap_or(i32::MAX);
    request(watchdog, WDIOC_SETTIMEOUT, &mut value)?;
    Ok(u32::try_from(value).unwrap_or(seconds))
}

/// Starts the countdown anew.
pub fn feed<Fd: AsFd>(watchdog: Fd) -> Result<()> {
    request(watchdog, WDIOC_KEEPALIVE, &mut 0)
}

/// The "magic close": the following close stops the countdown, where the driver allows that.
pub fn disarm<Fd: AsFd>(watchdog: Fd) -> Result<()> {
    rustix::io::write(watchdog, b"V").map(drop)
}

fn request<Fd: AsFd>(watchdog: Fd, number: usize, value: &mut i32) -> Result<()> {
    let fd = watchdog.as_fd().as_raw_fd();
    // SAFETY: 1. Both requests read and write one int, which lives over the call.
    unsafe {
        raw::syscall(linux_raw_sys::general::__NR_ioctl, [raw::fd(fd), number, raw::write(value), 0, 0, 0])
    }
    .map(drop)
}
