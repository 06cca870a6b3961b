//! Work on several processors at once.
//!
//! Owns: running tasks of one kind to their end, in threads of this process; with and without the standard library.
//! Does not: keep threads: they are gone when [`run`] returns. Below each stack is a guard that ends who overflows it.
//! Fails by: doing alone what no thread could be made for.
//! Source: clone(2), futex(2), set_tid_address(2).

use core::sync::atomic::{AtomicUsize, Ordering};

/// Runs every task once, on as many processors as there are, and returns when all are done.
///
/// Without the standard library a task must not allocate: the allocator there is made for one thread.
pub fn run<F: FnMut() + Send>(tasks: &mut [F]) {
    let queue = Queue { tasks: tasks.as_mut_ptr(), count: tasks.len(), next: AtomicUsize::new(0) };
    let helpers = processors().min(queue.count).saturating_sub(1);
    on_threads(helpers, &|| queue.work());
}

/// Processors that this thread may run on; one if the kernel does not say.
fn processors() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| usize::try_from(set.count()).unwrap_or(1)).max(1)
}

/// Tasks, each of which goes to one thread.
struct Queue<F> {
    tasks: *mut F,
    count: usize,
    next: AtomicUsize,
}

// SAFETY: 1. Threads share the counter, which is atomic, and get each task by its number, which only one of them
//    draws; a task may go to another thread (`F: Send`).
unsafe impl<F: Send> Sync for Queue<F> {}

impl<F: FnMut()> Queue<F> {
    /// Takes tasks until none is left.
    fn work(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return;
            }
            // SAFETY:
            // 1. The number is below the length of the slice, which the caller of `run` lends for longer than this.
            // 2. No other thread drew it.
            let task = unsafe { &mut *self.tasks.wrapping_add(number) };
            task();
        }
    }
}

/// Runs the same work in so many threads and in this one.
#[cfg(any(test, feature = "std"))]
fn on_threads<W: Fn() + Sync>(helpers: usize, work: &W) {
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            // What cannot be started leaves its tasks to the others.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

#[cfg(not(any(test, feature = "std")))]
use bare::on_threads;

/// Threads without the standard library.
#[cfg(any(test, not(feature = "std")))]
mod bare {
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use core::ffi::c_void;
    use core::sync::atomic::{AtomicU32, Ordering};

    use linux_raw_sys::general as nr;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

    use crate::{Result, processor, raw};

    /// Room for a task's frames; one that derives keys needs about 8 KiB.
    pub(super) const STACK_BYTES: usize = 256 << 10;
    /// Below a stack nothing can be read or written: who overflows it ends there. A multiple of every page size.
    pub(super) const GUARD_BYTES: usize = 64 << 10;

    const FLAGS: u32 = nr::CLONE_VM
        | nr::CLONE_FS
        | nr::CLONE_FILES
        | nr::CLONE_SIGHAND
        | nr::CLONE_THREAD
        | nr::CLONE_SYSVSEM
        | nr::CLONE_PARENT_SETTID
        | nr::CLONE_CHILD_CLEARTID;

    /// A thread that is waited for when dropped.
    struct Thread {
        /// Its number; the kernel makes it zero when the thread is gone.
        id: Box<AtomicU32>,
        stack: Stack,
    }

    /// A mapping: the guard, and the stack above it.
    struct Stack(*mut c_void);

    impl Stack {
        fn new() -> Result<Self> {
            // SAFETY: 1. A fresh anonymous mapping at an address of the kernel's choice touches nothing that exists.
            let all = unsafe {
                rustix::mm::mmap_anonymous(
                    core::ptr::null_mut(),
                    GUARD_BYTES + STACK_BYTES,
                    ProtFlags::empty(),
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            }?;
            let stack = Self(all);
            // SAFETY: 1. The upper part of the mapping above, which nothing uses yet.
            unsafe {
                rustix::mm::mprotect(
                    all.wrapping_byte_add(GUARD_BYTES),
                    STACK_BYTES,
                    MprotectFlags::READ | MprotectFlags::WRITE,
                )
            }?;
            Ok(stack)
        }

        /// Where it begins; a multiple of the page size.
        fn top(&self) -> usize {
            self.0 as usize + GUARD_BYTES + STACK_BYTES
        }
    }

    impl Drop for Stack {
        fn drop(&mut self) {
            // SAFETY: 1. The mapping is this value's, and its thread is gone: `Thread` waits before its fields are dropped.
            let _ = unsafe { rustix::mm::munmap(self.0, GUARD_BYTES + STACK_BYTES) };
        }
    }

    /// Runs the same work in so many threads and in this one.
    pub(super) fn on_threads<W: Fn() + Sync>(helpers: usize, work: &W) {
        let mut threads: Vec<Thread> = Vec::with_capacity(helpers);
        for _ in 0..helpers {
            // What cannot be started leaves its tasks to the others.
            let Ok(thread) = start(work) else { break };
            threads.push(thread);
        }
        work();
        // Dropping waits for each: the work outlives them.
    }

    fn start<W: Fn() + Sync>(work: &W) -> Result<Thread> {
        let thread = Thread { id: Box::new(AtomicU32::new(0)), stack: Stack::new()? };
        let top = thread.stack.top();
        // SAFETY:
        // 1. The stack is this thread's alone, ends at a multiple of 16, and lives until the thread is gone (`drop`).
        // 2. `enter::<W>` gets the pointer it expects; the work is `Sync` and outlives the thread for the same reason.
        // 3. The number's place lives as long.
        let answer = unsafe {
            let (work, id) = (core::ptr::from_ref(work).cast(), core::ptr::from_ref(&*thread.id));
            processor::clone_thread(FLAGS, top, enter::<W>, work, id)
        };
        raw::split(answer).map(|_| thread)
    }

    extern "C" fn enter<W: Fn() + Sync>(work: *const ()) {
        // SAFETY: 1. `start` passes a pointer to a `W` that outlives this thread.
        let work = unsafe { &*work.cast::<W>() };
        work();
    }

    impl Drop for Thread {
        fn drop(&mut self) {
            const FUTEX_WAIT: usize = 0;
            loop {
                let id = self.id.load(Ordering::Acquire);
                if id == 0 {
                    return;
                }
                let arguments = [raw::read(&*self.id), FUTEX_WAIT, id as usize, 0, 0, 0];
                // SAFETY: 1. The word lives over the call, and no time is given. Not a private futex: the kernel wakes
                //    the end of a thread on a shared one.
                let _ = unsafe { raw::syscall(nr::__NR_futex, arguments) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn every_task_runs_once() {
        for count in [0_usize, 1, 2, 3, 64, 1000] {
            let mut done = vec![0_u32; count];
            let mut tasks: Vec<_> = done.iter_mut().map(|slot| move || *slot += 1).collect();
            run(&mut tasks);
            drop(tasks);
            assert!(done.iter().all(|times| *times == 1), "{count}");
        }
    }

    /// What the kernel says of the mapping with this address and of the one below it: bounds and rights.
    fn mappings_at(address: usize) -> [(usize, usize, String); 2] {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut below = (0, 0, String::new());
        for line in maps.lines() {
            let (bounds, rest) = line.split_once(' ').unwrap();
            let (from, to) = bounds.split_once('-').unwrap();
            let bound = |text| usize::from_str_radix(text, 16).unwrap();
            let this = (bound(from), bound(to), rest[..4].to_owned());
            if (this.0..this.1).contains(&address) {
                return [this, below];
            }
            below = this;
        }
        panic!("{address:x} is not mapped:\n{maps}");
    }

    #[test]
    fn nothing_can_be_written_below_a_stack() {
        let (own, address, seen) = (rustix::thread::gettid(), AtomicUsize::new(0), AtomicUsize::new(0));
        bare::on_threads(1, &|| {
            if rustix::thread::gettid() == own {
                while address.load(Ordering::Acquire) == 0 {
                    core::hint::spin_loop();
                }
                let [stack, guard] = mappings_at(address.load(Ordering::Acquire));
                assert_eq!((guard.1, guard.2.as_str()), (stack.0, "---p"), "{stack:x?} {guard:x?}");
                assert!(guard.1 - guard.0 >= bare::GUARD_BYTES && stack.2 == "rw-p", "{stack:x?} {guard:x?}");
                seen.store(1, Ordering::Release);
            } else {
                address.store(here(), Ordering::Release);
                while seen.load(Ordering::Acquire) == 0 {
                    core::hint::spin_loop();
                }
            }
        });
    }

    /// An address of the stack that this runs on.
    #[inline(never)]
    fn here() -> usize {
        let local = 0_u8;
        core::ptr::from_ref(core::hint::black_box(&local)) as usize
    }

    /// Uses so much of the stack, from the top down.
    #[inline(never)]
    fn descend(bytes: usize) -> u8 {
        let frame = core::hint::black_box([1_u8; 1024]);
        if bytes < 1024 { frame[0] } else { descend(bytes - 1024).wrapping_add(frame[1023]) }
    }

    /// This program again, for one test that ends it.
    const OVERFLOWS: &str = "BILLET_TEST_STACK_BYTES";

    #[test]
    fn a_stack_that_overflows_ends_the_process() {
        use std::os::unix::process::ExitStatusExt as _;
        if let Ok(bytes) = std::env::var(OVERFLOWS) {
            let (own, bytes) = (rustix::thread::gettid(), bytes.parse().unwrap());
            bare::on_threads(1, &|| {
                if rustix::thread::gettid() != own {
                    core::hint::black_box(descend(bytes));
                }
            });
            return;
        }
        let with = |bytes: usize| {
            let test = "threads::tests::a_stack_that_overflows_ends_the_process";
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", test]).env(OVERFLOWS, bytes.to_string());
            again.output().unwrap().status
        };
        assert!(with(bare::STACK_BYTES / 4).success());
        assert_eq!(with(bare::STACK_BYTES + 1024).signal(), Some(11));
    }

    #[test]
    fn threads_without_the_standard_library_come_back() {
        for helpers in [0, 1, 3, 7] {
            let sum = AtomicU64::new(0);
            for _ in 0..50 {
                bare::on_threads(helpers, &|| {
                    sum.fetch_add(1, Ordering::Relaxed);
                });
            }
            assert_eq!(sum.into_inner(), 50 * (u64::try_from(helpers).unwrap() + 1));
        }
    }
}
