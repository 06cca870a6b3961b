//! What a freestanding program knows of itself: what its heap holds, and how long the line of a bug stays readable.
//!
//! Owns: the numbers, which `rt` counts and reads.
//! Does not: exist for `rt` alone: in a program with the standard library everything counted is zero, and what is set has
//! no effect.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes that the allocator gave out and that did not come back.
pub(crate) static IN_USE_BYTES: AtomicU64 = AtomicU64::new(0);
/// How often the allocator was asked.
pub(crate) static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// How long a failed boot stays readable; what is there before the command line was read.
pub(crate) static FAILURE_WAIT_SECONDS: AtomicU64 = AtomicU64::new(10);

/// What the allocator of a freestanding program did; all zero in programs with the standard library.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeapCounters {
    /// Bytes that the program holds now.
    pub in_use_bytes: u64,
    /// Allocations since the start, growth of a block included.
    pub allocations: u64,
}

/// Reads the allocator's counters.
pub fn heap_counters() -> HeapCounters {
    HeapCounters {
        in_use_bytes: IN_USE_BYTES.load(Ordering::Relaxed),
        allocations: ALLOCATIONS.load(Ordering::Relaxed),
    }
}

/// Tells the panic handler of a freestanding program how long its line stays readable, as `panic=` says; zero means for
/// ever.
pub fn set_failure_wait(seconds: u64) {
    FAILURE_WAIT_SECONDS.store(seconds, Ordering::Relaxed);
}
