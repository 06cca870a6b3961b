//! Memory functions that compiled code calls by name.
//!
//! Owns: memcpy, memmove, memset, memcmp, bcmp, strlen, and the unwinder's two names.
//! Does not: use plain loops where the compiler would recognise the function and turn the body into a call to itself;
//! the processor's own instructions do the work.

use crate::processor;

/// `void *memcpy(void *to, const void *from, size_t len)`
///
/// # Safety
/// Both must be valid for `len` bytes and not overlap.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: 1. Both are valid for `len` bytes and do not overlap.
    unsafe { processor::copy_up(to, from, len) };
    to
}

/// `void *memmove(void *to, const void *from, size_t len)`
///
/// # Safety
/// Both must be valid for `len` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: 1. Copying upwards is right when the target does not begin inside the source.
        unsafe { processor::copy_up(to, from, len) };
        return to;
    }
    // SAFETY: 1. Copying downwards is right when the target begins inside the source.
    unsafe { processor::copy_down(to, from, len) };
    to
}

/// `void *memset(void *to, int byte, size_t len)`
///
/// # Safety
/// The target must be valid for `len` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    // SAFETY: 1. The same obligation.
    unsafe { processor::fill(to, byte.to_le_bytes()[0], len) };
    to
}

/// `int memcmp(const void *a, const void *b, size_t len)`
///
/// # Safety
/// Both must be valid for `len` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    let mut at = 0;
    while at + 8 <= len {
        // SAFETY: 1. Eight bytes from `at` are within the `len` the caller vouches for; no alignment is assumed.
        let x = unsafe { a.wrapping_add(at).cast::<u64>().read_unaligned() };
        // SAFETY: 1. As above.
        let y = unsafe { b.wrapping_add(at).cast::<u64>().read_unaligned() };
        if x != y {
            return if x.swap_bytes() < y.swap_bytes() { -1 } else { 1 };
        }
        at += 8;
    }
    while at < len {
        // SAFETY: 1. `at` is below `len`. Volatile, so that this loop stays a loop.
        let x = unsafe { a.wrapping_add(at).read_volatile() };
        // SAFETY: 1. As above.
        let y = unsafe { b.wrapping_add(at).read_volatile() };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
        at += 1;
    }
    0
}

/// `int bcmp(const void *a, const void *b, size_t len)`
///
/// # Safety
/// Both must be valid for `len` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: 1. Same obligations.
    unsafe { memcmp(a, b, len) }
}

/// `size_t strlen(const char *text)`
///
/// # Safety
/// The text must end in a zero byte.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut len = 0;
    // SAFETY: 1. Every byte up to and with the zero is readable. Volatile, so that this loop stays a loop.
    while unsafe { text.wrapping_add(len).read_volatile() } != 0 {
        len += 1;
    }
    len
}

/// Named by the unwind tables of the compiled `core` and `alloc`; with `panic = "abort"` nothing ever calls it.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As [`rust_eh_personality`].
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    crate::process::exit(134)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths around the word size, where the two halves of each function meet.
    const LENGTHS: [usize; 9] = [0, 1, 7, 8, 9, 15, 16, 17, 100];

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|n| u8::try_from(n % 251).unwrap()).collect()
    }

    #[test]
    fn copies_of_every_length_are_exact() {
        for len in LENGTHS {
            let from = pattern(len);
            let mut to = vec![0xee; len + 1];
            // SAFETY: 1. Both hold `len` bytes and are different vectors.
            unsafe { memcpy(to.as_mut_ptr(), from.as_ptr(), len) };
            assert_eq!(to[..len], from);
            assert_eq!(to[len], 0xee);
        }
    }

    #[test]
    fn moves_that_overlap_either_way_are_exact() {
        for len in LENGTHS {
            for shift in [1, 3, 8, 11] {
                let (mut up, mut down) = (pattern(len + shift), pattern(len + shift));
                let (mut want_up, mut want_down) = (up.clone(), down.clone());
                want_up.copy_within(..len, shift);
                want_down.copy_within(shift.., 0);
                let (up_at, down_at) = (up.as_mut_ptr(), down.as_mut_ptr());
                // SAFETY: 1. Both ranges of `len` bytes lie in the vector of `len + shift`.
                unsafe { memmove(up_at.wrapping_add(shift), up_at, len) };
                // SAFETY: 1. As above.
                unsafe { memmove(down_at, down_at.wrapping_add(shift), len) };
                assert_eq!((up, down), (want_up, want_down), "{len} by {shift}");
            }
        }
    }

    #[test]
    fn fills_use_the_low_byte() {
        for len in LENGTHS {
            let mut to = vec![0; len + 1];
            // SAFETY: 1. The vector holds more than `len` bytes.
            unsafe { memset(to.as_mut_ptr(), 0x1ab, len) };
            assert!(to[..len].iter().all(|b| *b == 0xab));
            assert_eq!(to[len], 0);
        }
    }

    #[test]
    fn comparison_orders_bytes_without_sign() {
        for len in LENGTHS.into_iter().filter(|l| *l > 0) {
            for at in [0, len / 2, len - 1] {
                let (low, mut high) = (pattern(len), pattern(len));
                high[at] = 0xff;
                let compare = |a: &[u8], b: &[u8]| {
                    // SAFETY: 1. Both hold `len` bytes.
                    unsafe { memcmp(a.as_ptr(), b.as_ptr(), len) }
                };
                let (less, more) = (compare(&low, &high), compare(&high, &low));
                // SAFETY: 1. As above.
                let same = unsafe { bcmp(low.as_ptr(), low.as_ptr(), len) };
                assert!(less < 0 && more > 0 && same == 0, "{len} at {at}");
            }
        }
    }

    #[test]
    fn length_stops_at_the_zero() {
        // SAFETY: 1. A C string ends in zero.
        assert_eq!(unsafe { strlen(c"kettle".as_ptr().cast()) }, 6);
    }
}
