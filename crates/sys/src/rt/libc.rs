//! The few names of libc that foreign code calls: ring asks the crate getrandom, which asks libc; on 64-bit ARM it asks
//! for the processor's abilities too.
//!
//! Owns: `syscall` for getrandom(2) and nothing else, errno, the text of an error, `getauxval` for abilities, the guard of
//! stacks that Debian's build of the compiler's own functions for 64-bit ARM checks.
//! Does not: be a libc. The linker takes what is missing here from the host's, silently and without its start-up: the check
//! of init's binary finds that.
//! Source: getrandom(2), syscall(2), strerror(3), getauxval(3).

use core::ffi::{c_char, c_int, c_long, c_ulong};
use core::sync::atomic::{AtomicI32, Ordering};

use linux_raw_sys::auxvec::{AT_HWCAP, AT_HWCAP2};
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

/// `unsigned long getauxval(unsigned long kind)`: what the kernel says that the processor can do; zero for all other kinds.
#[unsafe(no_mangle)]
extern "C" fn getauxval(kind: c_ulong) -> c_ulong {
    let (first, second) = rustix::param::linux_hwcap();
    let abilities = match u32::try_from(kind) {
        Ok(AT_HWCAP) => first,
        Ok(AT_HWCAP2) => second,
        _ => 0,
    };
    abilities as c_ulong
}

/// The functions that look at it are atomics' and do not write past their frames; a random guard needs a libc's start-up.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
static __stack_chk_guard: usize = 0x00ff_0a0d_5c1e_9b37;

/// `void __stack_chk_fail(void)`
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
extern "C" fn __stack_chk_fail() -> ! {
    super::panic::end_with(format_args!("a stack was written past its frame"))
}
