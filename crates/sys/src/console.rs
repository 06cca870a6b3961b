//! The kernel log and the console.
//!
//! Owns: opening them, one write a line.
//! Source: Documentation/ABI/testing/dev-kmsg: a record is one write, `<priority>` first, at most 976 bytes of text.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};

use crate::Result;

/// Opens the kernel log for writing.
pub fn open_kmsg() -> Result<OwnedFd> {
    rustix::fs::open("/dev/kmsg", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the console for reading and writing, without making it the controlling terminal.
pub fn open_console() -> Result<OwnedFd> {
    rustix::fs::open("/dev/console", OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
}

/// Writes one record; the text carries its priority, `<3>billet: …`.
pub fn write_record<Fd: AsFd>(kmsg: Fd, text: &str) -> Result<()> {
    rustix::io::retry_on_intr(|| rustix::io::write(&kmsg, text.as_bytes())).map(drop)
}
