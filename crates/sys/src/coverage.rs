//! Coverage counters of a program that was compiled for fuzzing.
//!
//! Owns: the function by which LLVM's sanitizer coverage tells where its counters are, and reading them.
//! Does not: turn the instrumentation on; `xtask fuzz` does, with compiler flags. Without it there are no counters.
//! Source: LLVM's SanitizerCoverage, "inline-8bit-counters".

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Counters: one byte each, one after the other, as many as `COUNT`.
static FIRST: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// `void __sanitizer_cov_8bit_counters_init(char *start, char *stop)`, called before `main` by each part of the
/// program that was compiled with counters; all parts of one program give the same two places.
///
/// # Safety
/// `start` and `stop` are the ends of one array of bytes that lives and may be written as long as the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    COUNT.store(stop.addr().saturating_sub(start.addr()), Ordering::Relaxed);
    FIRST.store(start, Ordering::Release);
}

/// How many counters the program has; 0 if it was compiled without.
pub fn counters() -> usize {
    if FIRST.load(Ordering::Acquire).is_null() { 0 } else { COUNT.load(Ordering::Relaxed) }
}

/// Calls `visit` with index and value of each counter that is not 0, and sets it to 0.
pub fn take(mut visit: impl FnMut(usize, u8)) {
    let first = FIRST.load(Ordering::Acquire);
    for index in 0..counters() {
        // SAFETY: `first` and `counters()` are what the compiler's own code gave as one array, and `index` is below the
        // second: the place is inside it.
        let place = unsafe { first.add(index) };
        // SAFETY: 1. The array is of plain bytes, always initialised and writable. 2. Only instrumented code counts
        // there, which is the thread that calls the targets, and that is the one that is here now.
        let count = unsafe { place.replace(0) };
        if count != 0 {
            visit(index, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_given_once() {
        let counters: &'static mut [u8] = Vec::leak(alloc::vec![0, 3, 0, 255]);
        let ends = counters.as_mut_ptr_range();
        // SAFETY: the array was leaked, so it lives on, and nothing else refers to it.
        unsafe { __sanitizer_cov_8bit_counters_init(ends.start, ends.end) };
        let mut seen = alloc::vec::Vec::new();
        take(|index, count| seen.push((index, count)));
        assert_eq!(seen, [(1, 3), (3, 255)]);
        take(|_, _| unreachable!("each count is given once"));
        assert_eq!(super::counters(), 4);
    }
}
