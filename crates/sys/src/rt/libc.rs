//! The few names of libc that foreign code calls: ring asks the crate getrandom, which asks libc.
//!
//! Owns: `syscall` for getrandom(2) and nothing else, errno, the text of an error.
//! Does not: be a libc. The linker takes what is missing here from the host's, silently and without its start-up: the check
//! of init's binary finds that.
//! Source: getrandom(2), syscall(2), strerror(3).

use core::ffi::{c_char, c_int, c_long};
use core::sync::atomic::{AtomicI32, Ordering};

use linux_raw_sys::general::__NR_getrandom;

use crate::{Errno, raw};

/// A program with one thread has one.
static ERRNO: AtomicI32 = AtomicI32::new(0);

/// `int *__errno_location(void)`
#[unsafe(no_mangle)]
extern "C" fn __errno_location() -> *mut c_int {
    ERRNO.as_ptr()
}

/// `long syscall(long number, void *buffer, size_t length, unsigned flags)`; variadic in C, whose callers put the same
/// arguments into the same registers.
///
/// # Safety
/// The buffer must be valid for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(number: c_long, buffer: *mut u8, length: usize, flags: u32) -> c_long {
    let result = if number == c_long::from(__NR_getrandom) {
        // SAFETY: 1. The kernel writes no more than `length` bytes, which the caller vouches for.
        unsafe { raw::syscall(__NR_getrandom, [buffer as usize, length, flags as usize, 0, 0, 0]) }
    } else {
        Err(Errno::NOSYS)
    };
    match result {
        Ok(count) => c_long::try_from(count).unwrap_or(c_long::MAX),
        Err(errno) => {
            ERRNO.store(errno.raw_os_error(), Ordering::Relaxed);
            -1
        }
    }
}

/// `int __xpg_strerror_r(int error, char *text, size_t length)`: nobody's text is shown.
///
/// # Safety
/// The text must be valid for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn __xpg_strerror_r(_: c_int, text: *mut c_char, length: usize) -> c_int {
    if length > 0 {
        // SAFETY: 1. There is room for one byte.
        unsafe { text.write(0) };
    }
    0
}
