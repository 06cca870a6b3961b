//! Allocator.
//!
//! Owns: talc over anonymous mappings for small blocks, a mapping of its own for each large one (so that the
//! scratch memory of booting goes back to the kernel), counted for whoever proves a steady state.
//! Fails by: a null block, which the `alloc` crate turns into a panic.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MapFlags, ProtFlags};
use talc::base::{Talc, binning::Binning};
use talc::lock_api::{GuardSend, RawMutex};
use talc::source::Source;

use crate::freestanding::{ALLOCATIONS, IN_USE_BYTES};

/// Blocks of this size and more get a mapping of their own.
const LARGE_BYTES: usize = 128 * 1024;

/// How much the small-block heap grows by.
const GROW_BYTES: usize = 256 * 1024;

const PAGE_BYTES: usize = 4096;

#[global_allocator]
static HEAP: Heap = Heap { small: talc::TalcLock::new(Mappings) };

struct Heap {
    small: talc::TalcLock<Spin, Mappings>,
}

// SAFETY:
// 1. Both halves return blocks of at least the asked size and alignment (a mapping is page-aligned, larger
//    alignments go to talc), disjoint from all live ones.
// 2. Which half owns a block follows from its layout alone, which callers must repeat when they free it.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        IN_USE_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        if is_large(layout) {
            return map(layout.size()).map_or(core::ptr::null_mut(), NonNull::as_ptr);
        }
        // SAFETY: 1. The layout is passed on as it came.
        unsafe { self.small.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        if is_large(layout) {
            // SAFETY: 1. The block came from `map` with this size (same layout, same half).
            let _ = unsafe { rustix::mm::munmap(block.cast(), round(layout.size())) };
            return;
        }
        // SAFETY: 1. The block came from the small half (same layout).
        unsafe { self.small.dealloc(block, layout) }
    }
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE_BYTES && layout.align() <= PAGE_BYTES
}

fn round(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

fn map(bytes: usize) -> Option<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: 1. A new private mapping at an address of the kernel's choice overlaps nothing.
    let address = unsafe {
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), round(bytes), protection, MapFlags::PRIVATE)
    };
    address.ok().and_then(|a| NonNull::new(a.cast()))
}

/// Where talc gets memory from.
#[derive(Debug)]
struct Mappings;

// SAFETY: 1. It only maps memory and hands it to the talc given; it never allocates.
unsafe impl Source for Mappings {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        // Talc's own bookkeeping in a new heap is under 4 KiB.
        let needed = layout.size() + layout.align() + PAGE_BYTES;
        let bytes = round(needed.max(GROW_BYTES));
        let base = map(bytes).ok_or(())?;
        // SAFETY: 1. The mapping is fresh, readable, writable, and stays mapped for ever.
        unsafe { talc.claim(base.as_ptr(), bytes) }.map(drop).ok_or(())
    }
}

/// A lock for a program with one thread: it is never contended.
struct Spin(AtomicBool);

// SAFETY: 1. `try_lock` succeeds only when it turned false into true, and only `unlock` turns it back.
unsafe impl RawMutex for Spin {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait asks for a constant to start from")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            core::hint::spin_loop();
        }
    }

    fn try_lock(&self) -> bool {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}
