//! /dev/tpmrm0: the TPM behind the kernel's resource manager, which gives each open file objects and sessions of its own
//! and frees them when it is closed.
//!
//! Fails by: the kernel's error; a TPM that does not answer ends with `ETIMEDOUT`.
//! Source: Documentation/security/tpm/tpm_tis.rst and drivers/char/tpm/tpm-dev-common.c: with `O_NONBLOCK` a command is
//! carried out beside, and its answer is there to read when the file is readable.

use alloc::vec;
use alloc::vec::Vec;

use rustix::fs::{Mode, OFlags};
use sys::{AsFd as _, Errno, OwnedFd};

use crate::command::Transport;

/// The device.
pub const PATH: &str = "/dev/tpmrm0";

/// For one command: making a key takes a slow TPM some seconds.
pub const EXCHANGE_DEADLINE_MS: u64 = 20_000;
/// Between a TPM's word that it is busy and the next try.
const PAUSE_MS: u64 = 100;
/// The longest answer that the driver gives.
const MAX_BYTES: usize = 4096;
const MS_NS: u64 = 1_000_000;

/// The device, open.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl Device {
    /// Opens it. `ENOENT`: the kernel found no TPM.
    pub fn open(path: &str) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::open(path, flags, Mode::empty()).map(Self)
    }
}

impl Transport for Device {
    fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, Errno> {
        rustix::io::write(&self.0, command)?;
        let deadline = sys::system::boot_time_ns() + EXCHANGE_DEADLINE_MS * MS_NS;
        loop {
            let left = deadline.saturating_sub(sys::system::boot_time_ns());
            let [state] = sys::poll::wait([(Some(self.0.as_fd()), false)], Some(left))?;
            if state.readable {
                break;
            }
            if left == 0 {
                return Err(Errno::TIMEDOUT);
            }
        }
        let mut answer = vec![0; MAX_BYTES];
        let count = rustix::io::read(&self.0, &mut answer)?;
        answer.truncate(count);
        Ok(answer)
    }

    fn pause(&mut self) {
        let _ = sys::poll::wait([(None, false)], Some(PAUSE_MS * MS_NS));
    }
}
