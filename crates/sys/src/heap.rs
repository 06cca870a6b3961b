//! A program's heap, counted for each thread: what a call held at most, and how often it asked.
//!
//! Owns: [`Counted`], the system's allocator behind counters; [`held_by`].
//! Does not: limit anything, or see what another thread allocates for a call.
//! Fails by: nothing of its own; a null block is the system allocator's.

extern crate std;

use core::cell::Cell;
use std::alloc::{GlobalAlloc, Layout, System};
use std::thread_local;

/// What a thread allocated since a mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Blocks that were asked for, and blocks that were made longer or shorter.
    pub allocations: u64,
    /// Most bytes at one time, beyond those at the mark.
    pub most_bytes: usize,
}

/// Bytes now, less those at the mark: what was freed that another thread or an earlier call allocated counts too.
#[derive(Clone, Copy)]
struct Counters {
    allocations: u64,
    bytes: isize,
    most: isize,
}

const ZERO: Counters = Counters { allocations: 0, bytes: 0, most: 0 };

thread_local! {
    // Without a destructor: it is there as long as the thread, and making it allocates nothing.
    static COUNTERS: Cell<Counters> = const { Cell::new(ZERO) };
}

/// The allocator, for `#[global_allocator]`.
#[derive(Debug)]
pub struct Counted;

/// Runs `work`, and answers what this thread held for it. A call within another one ends the count of that.
pub fn held_by<T>(work: impl FnOnce() -> T) -> (T, Held) {
    COUNTERS.set(ZERO);
    let result = work();
    let counters = COUNTERS.get();
    let most_bytes = counters.most.max(0).unsigned_abs();
    (result, Held { allocations: counters.allocations, most_bytes })
}

fn note(grown: usize, freed: usize) {
    // A thread that ends has no counters any more; what it frees then is nobody's.
    let _ = COUNTERS.try_with(|counters| {
        let Counters { allocations, bytes, most } = counters.get();
        let bytes = bytes.saturating_add_unsigned(grown).saturating_sub_unsigned(freed);
        let allocations = allocations + u64::from(grown > 0);
        counters.set(Counters { allocations, bytes, most: most.max(bytes) });
    });
}

// SAFETY:
// 1. Every block is the system allocator's, asked for and freed with the layout that the caller gave.
// 2. Counting allocates nothing and does not unwind.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: 1. The caller's layout, which has a size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: 1. The caller's layout, which has a size.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: 1. The block is the system allocator's, of this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: 1. The block is the system allocator's, of this layout. 2. The new size is the caller's, who keeps its
        // bounds.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[global_allocator]
    static HEAP: Counted = Counted;

    #[test]
    fn what_is_held_at_one_time_counts_and_what_was_freed_does_not() {
        let (kept, held) = held_by(|| {
            for _ in 0..100 {
                drop(Vec::<u8>::with_capacity(1000));
            }
            Vec::<u8>::with_capacity(3000)
        });
        assert_eq!((held.allocations, held.most_bytes), (101, 3000));
        let ((), held) = held_by(|| drop(kept));
        assert_eq!(held, Held::default());
        let (mut grown, _) = held_by(|| Vec::<u8>::with_capacity(10));
        let ((), held) = held_by(|| grown.reserve_exact(500));
        assert_eq!((held.allocations, held.most_bytes), (1, 490));
    }
}
