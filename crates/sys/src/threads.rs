//! Work on several processors at once.
//!
//! Owns: running tasks of one kind to their end, in threads of this process; with and without the standard library.
//! Does not: keep threads: they are gone when [`run`] returns.
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
    use core::sync::atomic::{AtomicU32, Ordering};

    use linux_raw_sys::general as nr;

    use crate::{Errno, Result, processor, raw};

    /// Room for a task's frames; one that derives keys needs about 8 KiB.
    const STACK_BYTES: usize = 256 << 10;

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
        _stack: Vec<u8>,
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
        let mut stack: Vec<u8> = Vec::new();
        stack.try_reserve_exact(STACK_BYTES).map_err(|_| Errno::NOMEM)?;
        let thread = Thread { id: Box::new(AtomicU32::new(0)), _stack: stack };
        let top = (thread._stack.as_ptr() as usize + STACK_BYTES) & !15;
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
