//! Loading the kernel that [`crate::system::end`] may start.
//!
//! Owns: `kexec_file_load`.
//! Source: kexec_file_load(2).

use core::ffi::CStr;

use linux_raw_sys::general::__NR_kexec_file_load;
use rustix::fd::{AsFd, AsRawFd};

use crate::{Result, raw};

/// `long kexec_file_load(int kernel_fd, int initrd_fd, unsigned long cmdline_len, const char *cmdline, flags)`.
pub fn load<Fd: AsFd>(kernel: Fd, initramfs: Fd, command_line: &CStr) -> Result<()> {
    let text = command_line.to_bytes_with_nul();
    let (kernel, initramfs) = (kernel.as_fd().as_raw_fd(), initramfs.as_fd().as_raw_fd());
    // SAFETY:
    // 1. Both descriptors are borrowed for the call.
    // 2. The command line is a C string whose stated length includes its end.
    unsafe {
        let arguments = [raw::fd(kernel), raw::fd(initramfs), text.len(), raw::read(text), 0, 0];
        raw::syscall(__NR_kexec_file_load, arguments)
    }
    .map(drop)
}
