//! Signals as something to read.
//!
//! Owns: the mask of the calling thread and signalfd.
//! Does not: install handlers; PID 1 has none.
//! Source: rt_sigprocmask(2), signalfd(2).

use linux_raw_sys::general as nr;
use rustix::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
pub use rustix::process::Signal;

use crate::{Errno, Result, raw};

/// Bit `n - 1` stands for signal `n`: the kernel's 64-bit sigset_t.
fn mask(signals: &[Signal]) -> u64 {
    signals.iter().fold(0, |mask, signal| mask | 1 << (signal.as_raw() - 1))
}

fn set_mask(how: u32, mask: u64) -> Result<()> {
    // SAFETY:
    // 1. `mask` is a sigset_t of the stated 8 bytes and lives over the call.
    // 2. The old set may be null.
    unsafe {
        raw::syscall(nr::__NR_rt_sigprocmask, [how as usize, raw::read(&mask), 0, size_of::<u64>(), 0, 0])
    }
    .map(drop)
}

/// Lets every signal through again: a spawned program must not start with the mask of PID 1.
pub fn unblock_all() -> Result<()> {
    set_mask(nr::SIG_SETMASK, 0)
}

/// Blocks the signals and returns a non-blocking, close-on-exec descriptor that delivers them.
pub fn descriptor(signals: &[Signal]) -> Result<OwnedFd> {
    let mask = mask(signals);
    set_mask(nr::SIG_BLOCK, mask)?;
    let flags = (nr::O_NONBLOCK | nr::O_CLOEXEC) as usize;
    // SAFETY: 1. -1 asks for a new descriptor; `mask` is a sigset_t of the stated size and lives over the call.
    let fd = unsafe {
        raw::syscall(nr::__NR_signalfd4, [raw::fd(-1), raw::read(&mask), size_of::<u64>(), flags, 0, 0])
    }?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::OVERFLOW)?;
    // SAFETY: 1. The kernel just returned it; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number of the next delivered signal; `EAGAIN` when there is none.
pub fn read<Fd: AsFd>(descriptor: Fd) -> Result<i32> {
    // struct signalfd_siginfo: 128 bytes, ssi_signo first.
    let mut record = [0; 128];
    let len = rustix::io::retry_on_intr(|| rustix::io::read(&descriptor, &mut record[..]))?;
    if len != record.len() {
        return Err(Errno::BADMSG);
    }
    Ok(i32::from_ne_bytes([record[0], record[1], record[2], record[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_count_from_one() {
        assert_eq!(mask(&[Signal::HUP]), 1);
        assert_eq!(mask(&[Signal::CHILD, Signal::HUP]), 1 << 16 | 1);
    }

    #[test]
    fn a_blocked_signal_is_read() {
        let fd = descriptor(&[Signal::USR1]).unwrap();
        assert_eq!(read(&fd), Err(Errno::AGAIN));
        // To this thread, which has it blocked: other test threads have not.
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let pid = i32::try_from(std::process::id()).unwrap();
        // SAFETY: 1. tgkill takes numbers only.
        unsafe {
            raw::syscall(
                nr::__NR_tgkill,
                [raw::fd(pid), raw::fd(tid), Signal::USR1.as_raw() as usize, 0, 0, 0],
            )
        }
        .unwrap();
        assert_eq!(read(&fd), Ok(Signal::USR1.as_raw()));
        unblock_all().unwrap();
    }
}
