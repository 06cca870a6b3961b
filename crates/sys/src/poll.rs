//! Waiting for descriptors.
//!
//! Owns: `ppoll` over a fixed number of descriptors, some of which may be absent; allocates nothing.
//! Source: poll(2).

use linux_raw_sys::general as nr;
use rustix::fd::{AsRawFd, BorrowedFd};

use crate::{Errno, Result, raw};

/// What is possible on a descriptor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// Reading does not block; the other end being closed counts.
    pub readable: bool,
    /// Writing does not block.
    pub writable: bool,
}

/// struct pollfd.
#[repr(C)]
#[derive(Clone, Copy)]
struct PollFd {
    fd: i32,
    wanted: u16,
    found: u16,
}

const POLLIN: u16 = 1;
const POLLOUT: u16 = 4;
const POLLERR: u16 = 8;
const POLLHUP: u16 = 16;

/// Waits until one of the descriptors is readable (or writable, where the flag says so), or the time has passed. An
/// interruption by a signal counts as nothing found.
pub fn wait<const N: usize>(
    wanted: [(Option<BorrowedFd<'_>>, bool); N],
    timeout_ns: Option<u64>,
) -> Result<[State; N]> {
    let mut fds = wanted.map(|(fd, write)| PollFd {
        // The kernel passes over negative descriptors.
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        wanted: POLLIN | if write { POLLOUT } else { 0 },
        found: 0,
    });
    let timeout = timeout_ns.map(crate::system::timespec);
    let timeout = timeout.as_ref().map_or(0, raw::read);
    // SAFETY:
    // 1. `fds` is an array of N struct pollfd, written by the kernel, and lives over the call.
    // 2. The timeout is null or a timespec that lives over the call; the signal mask may be null.
    let found = unsafe { raw::syscall(nr::__NR_ppoll, [raw::write(&mut fds), N, timeout, 0, 0, 0]) };
    match found {
        Ok(_) => Ok(fds.map(|fd| State {
            readable: fd.found & (POLLIN | POLLERR | POLLHUP) != 0,
            writable: fd.found & POLLOUT != 0,
        })),
        Err(Errno::INTR) => Ok([State::default(); N]),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fd::AsFd;

    use super::*;

    #[test]
    fn readiness_absence_and_time_out() {
        let (here, there) = crate::seqpacket::pair().unwrap();
        let quiet = wait([(Some(there.as_fd()), false), (None, false)], Some(1_000_000)).unwrap();
        assert_eq!(quiet, [State::default(); 2]);
        crate::seqpacket::send(&here, b"x", None).unwrap();
        let found = wait([(None, false), (Some(there.as_fd()), true)], None).unwrap();
        assert_eq!(found[1], State { readable: true, writable: true });
        drop(here);
        assert!(wait([(Some(there.as_fd()), false)], None).unwrap()[0].readable);
    }
}
