//! The `syscall` instruction.
//!
//! Owns: the register convention of x86-64 Linux and the split of its result into value and errno.
//! Does not: know any single call; the modules beside it say what their arguments mean.
//! Source: syscall(2), "Architecture calling conventions".

use core::arch::asm;
use core::ffi::c_void;

use crate::{Errno, Result};

/// A call with up to six arguments; unused ones are zero.
///
/// # Safety
/// The arguments must be what the numbered call requires: pointers valid for the reads and writes it does for as
/// long as it does them, descriptors that the caller may use that way.
pub(crate) unsafe fn syscall(number: u32, arguments: [usize; 6]) -> Result<usize> {
    let result: isize;
    // SAFETY:
    // 1. The instruction clobbers rcx and r11 and returns in rax: all three are declared.
    // 2. It leaves the user stack alone (`nostack`).
    // 3. Memory reached through the arguments is the caller's obligation; without `nomem`, the compiler assumes that
    //    any memory may change.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as usize as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack, preserves_flags),
        );
    }
    split(result)
}

/// -4095..=-1 are negated error numbers, all else is a value.
pub(crate) fn split(result: isize) -> Result<usize> {
    if (-4095..0).contains(&result) {
        let number = i32::try_from(-result).unwrap_or(i32::MAX);
        return Err(Errno::from_raw_os_error(number));
    }
    Ok(result.cast_unsigned())
}

/// A descriptor as a call argument.
pub(crate) fn fd(fd: i32) -> usize {
    (fd as isize).cast_unsigned()
}

/// A pointer for the kernel to read through, as a call argument.
pub(crate) fn read<T: ?Sized>(from: &T) -> usize {
    core::ptr::from_ref(from).cast::<c_void>() as usize
}

/// A pointer for the kernel to write through, as a call argument.
pub(crate) fn write<T: ?Sized>(into: &mut T) -> usize {
    core::ptr::from_mut(into).cast::<c_void>() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_split_into_values_and_errors() {
        assert_eq!(split(0), Ok(0));
        assert_eq!(split(7), Ok(7));
        assert_eq!(split(-2), Err(Errno::NOENT));
        assert_eq!(split(-4096), Ok((-4096_isize).cast_unsigned()));
    }

    #[test]
    fn a_call_reaches_the_kernel() {
        // SAFETY: 1. getpid takes no arguments.
        let pid = unsafe { syscall(linux_raw_sys::general::__NR_getpid, [0; 6]) };
        assert_eq!(pid.map(|p| u32::try_from(p).unwrap()), Ok(std::process::id()));
    }
}
