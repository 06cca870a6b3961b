//! The kernel log and the console.
//!
//! Owns: opening them, one write a line.
//! Source: Documentation/ABI/testing/dev-kmsg: a record is one write, `<priority>` first, at most 976 bytes of text.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::IoSlice;

use crate::{Errno, Result};

/// Opens the kernel log for writing.
pub fn open_kmsg() -> Result<OwnedFd> {
    rustix::fs::open("/dev/kmsg", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the kernel log even where no /dev is mounted, through a node of its own that is gone at once.
pub fn open_kmsg_anywhere() -> Result<OwnedFd> {
    /// `/dev/kmsg` is character device 1:11 on every Linux (Documentation/admin-guide/devices.txt).
    const KMSG: (u32, u32) = (1, 11);
    const NODE: &str = "/.kmsg";
    if let Ok(kmsg) = open_kmsg() {
        return Ok(kmsg);
    }
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        NODE,
        rustix::fs::FileType::CharacterDevice,
        mode,
        rustix::fs::makedev(KMSG.0, KMSG.1),
    )?;
    let kmsg = rustix::fs::open(NODE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let _ = rustix::fs::unlink(NODE);
    kmsg
}

/// Opens the kernel log for reading, at its oldest record; a read never waits.
pub fn open_kmsg_reader() -> Result<OwnedFd> {
    rustix::fs::open("/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

/// Reads the next record; `EAGAIN` after the newest. Goes on at the oldest if the log overtook this reader.
pub fn read_record<Fd: AsFd>(kmsg: Fd, buffer: &mut [u8]) -> Result<usize> {
    loop {
        match rustix::io::read(&kmsg, &mut *buffer) {
            Err(Errno::INTR | Errno::PIPE) => {}
            other => return other,
        }
    }
}

/// Opens /dev/null.
pub fn open_null() -> Result<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the console for reading and writing, without making it the controlling terminal.
pub fn open_console() -> Result<OwnedFd> {
    rustix::fs::open("/dev/console", OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
}

/// Writes one record; the text carries its priority, `<3>billet: …`, and no newline. The newline that ends it is
/// added here: without one the kernel holds the record back until the next one comes, and the last line before a
/// restart would never be seen.
pub fn write_record<Fd: AsFd>(kmsg: Fd, text: &str) -> Result<()> {
    let parts = [IoSlice::new(text.as_bytes()), IoSlice::new(b"\n")];
    rustix::io::retry_on_intr(|| rustix::io::writev(&kmsg, &parts)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_write_and_ends_with_a_newline() {
        // A packet socket shows where a write ends.
        let (ours, theirs) = crate::seqpacket::pair().unwrap();
        write_record(&theirs, "<6>billet: a line").unwrap();
        let mut buffer = [0; 64];
        let packet = crate::seqpacket::receive(&ours, &mut buffer).unwrap();
        assert_eq!(&buffer[..packet.len], b"<6>billet: a line\n");
    }
}
