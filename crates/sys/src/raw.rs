//! System calls by their numbers.
//!
//! Owns: the split of the kernel's answer into value and errno, and how arguments are made.
//! Does not: know any single call; the modules beside it say what their arguments mean. The instruction is [`processor`]'s.
//! Source: syscall(2).

use core::ffi::c_void;

use crate::{Errno, Result, processor};

/// A call with up to six arguments; unused ones are zero.
///
/// # Safety
/// The arguments must be what the numbered call requires: pointers valid for the reads and writes it does for as
/// long as it does them, descriptors that the caller may use that way.
pub(crate) unsafe fn syscall(number: u32, arguments: [usize; 6]) -> Result<usize> {
    // SAFETY: 1. The same obligations.
    split(unsafe { processor::call_kernel(number, arguments) })
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
