//! A limit on how many VMs run at once, across threads and processes.
//!
//! Owns: one lock file a slot in `target/qemu-tests/slots`; the kernel frees it when its holder ends, however it ends.
//! Order: a waiter first takes the queue lock, so that waiters are served one after another.

use std::fs::File;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::process::POLL_INTERVAL;
use crate::{failure, paths};

/// Held while a VM runs.
#[derive(Debug)]
pub struct Slot {
    _lock: File,
}

/// As many VMs as cores, but at least two: one may be shared by the tests of a file while each has one of its own.
pub fn count() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).max(2)
}

/// Waits for a free slot. There is no deadline: the holders have theirs. Who waits is a test, and says when it fails.
pub fn take() -> Result<Slot> {
    failure::tell_at_once();
    take_of(&paths::work_dir().join("slots"), count())
}

fn take_of(dir: &std::path::Path, slots: usize) -> Result<Slot> {
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let queue = open(&dir.join("queue"))?;
    queue.lock().context("lock the queue of VM slots")?;
    let start = Instant::now();
    let mut told = false;
    loop {
        for number in 0..slots {
            let file = open(&dir.join(number.to_string()))?;
            if file.try_lock().is_ok() {
                return Ok(Slot { _lock: file });
            }
        }
        if !told && start.elapsed().as_secs() >= 60 {
            eprintln!("waiting for one of {slots} VM slots; holders lock files in {}", dir.display());
            told = true;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn open(path: &std::path::Path) -> Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn never_more_holders_than_slots() {
        let dir = tempfile::tempdir().unwrap();
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let slot = take_of(dir.path(), 2).unwrap();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                    drop(slot);
                });
            }
        });
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
    }

    #[test]
    fn a_dropped_slot_is_free_again() {
        let dir = tempfile::tempdir().unwrap();
        drop(take_of(dir.path(), 1).unwrap());
        take_of(dir.path(), 1).unwrap();
    }
}
