//! The machine as a whole: clocks, modules, the end.
//!
//! Owns: boot-time clock and sleep, reboot, the Ctrl-Alt-Del switch.
//! Source: clock_gettime(2), reboot(2).

use alloc::string::String;

use linux_raw_sys::general as nr;
use rustix::fs::Timespec;
use rustix::system::RebootCommand;
use rustix::time::ClockId;

use crate::{Errno, Result, raw};

/// Nanoseconds since the kernel started, suspended time included (`CLOCK_BOOTTIME`).
pub fn boot_time_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Microseconds since 1970 (`CLOCK_REALTIME`); 0 before that.
pub fn wall_clock_us() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0) / 1000)
}

/// A length of time as the kernel wants it.
pub fn timespec(ns: u64) -> Timespec {
    let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
    let rest = i64::try_from(ns % 1_000_000_000).unwrap_or(0);
    Timespec { tv_sec: seconds, tv_nsec: rest }
}

/// Sleeps so long, signals or not.
pub fn sleep_ns(ns: u64) {
    let mut left = timespec(ns);
    while let rustix::thread::NanosleepRelativeResult::Interrupted(rest) = rustix::thread::nanosleep(&left) {
        left = rest;
    }
}

/// Fills a slice with random bytes. Blocks until the kernel has some.
pub fn random(bytes: &mut [u8]) -> Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => rest = rest.get_mut(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// `uname -r`.
pub fn kernel_release() -> String {
    String::from_utf8_lossy(rustix::system::uname().release().to_bytes()).into_owned()
}

/// How the machine ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Restart through the firmware.
    Restart,
    /// Cut the power.
    PowerOff,
    /// Stop the processors.
    Halt,
    /// Start the loaded kernel; `EINVAL` if none is loaded.
    Kexec,
}

/// `int reboot(int op)`: returns only on failure. Nothing is synced.
pub fn end(how: End) -> Errno {
    let command = match how {
        End::Restart => RebootCommand::Restart,
        End::PowerOff => RebootCommand::PowerOff,
        End::Halt => RebootCommand::Halt,
        End::Kexec => RebootCommand::Kexec,
    };
    rustix::system::reboot(command).err().unwrap_or(Errno::INVAL)
}

/// Makes Ctrl-Alt-Del send SIGINT to PID 1 instead of restarting at once.
pub fn catch_ctrl_alt_del() -> Result<()> {
    rustix::system::reboot(RebootCommand::CadOff)
}

/// `int mlockall(MCL_CURRENT)`: everything that this process has mapped now is read in and stays in memory.
pub fn lock_memory() -> Result<()> {
    const MCL_CURRENT: usize = 1;
    // SAFETY: 1. mlockall takes a number and changes no content of the memory.
    unsafe { raw::syscall(nr::__NR_mlockall, [MCL_CURRENT, 0, 0, 0, 0, 0]) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_runs() {
        let before = boot_time_ns();
        sleep_ns(1_000_000);
        assert!(boot_time_ns() >= before + 1_000_000);
    }

    #[test]
    fn nanoseconds_split() {
        let t = timespec(3_000_000_001);
        assert_eq!((t.tv_sec, t.tv_nsec), (3, 1));
    }
}
