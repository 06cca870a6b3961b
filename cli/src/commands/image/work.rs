//! What an image is made with beside its place: a directory for what is unpacked, and files that are not whole yet.
//!
//! Owns: that directory, which is locked while somebody works in it; removing all of it at the end, at a failure, at Ctrl-C and
//! SIGTERM, and what an earlier run left that was killed. An output directory that was made and has nothing in it goes too.
//! Does not: touch what a process has that is still there, in another container too, or anything whose name is not of
//! billetctl.
//! Fails by: what cannot be removed is left; what counts is the result, or why there is none.

use anyhow::{Context as _, Error, Result};
use installer::UNFINISHED;
use installer::image::remove_unfinished;
use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    process,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
};

use crate::output::bytes_si;

/// The directory's name, before the number of the process.
const DIRECTORY: &str = ".billetctl-";
/// How often what is left is removed: the image is being made by another thread, which is not told of a signal.
const REMOVALS: u32 = 3;
/// What Linux says of a full disk.
const FULL: &str = "No space left on device";
/// Exit status of a program that a signal ended, without the signal's number, as shells count it.
const SIGNALLED: i32 = 128;

/// The directory; gone with this value.
pub(super) struct Work {
    left: Leavings,
    work: PathBuf,
    _lock: Lock,
    /// Bytes that were free at the beginning.
    free_bytes: Option<u64>,
    interruption: JoinHandle<()>,
}

/// The directory, locked. The lock ends with the process, however that ends.
#[derive(Debug)]
struct Lock(File);

/// A program that is being started has all open files for a moment, and a file stays locked while one has it.
impl Drop for Lock {
    fn drop(&mut self) {
        // A file system without locks has none to end.
        let _ = self.0.unlock();
    }
}

/// What has to go when nothing more is made.
#[derive(Clone)]
struct Leavings {
    /// Where the results go.
    output: PathBuf,
    /// Directories that were not there, the innermost first.
    made: Vec<PathBuf>,
}

impl Work {
    /// In the directory that the results go to, which is made where it is not there.
    pub(super) fn new(output: &Path) -> Result<Self> {
        let output = if output == Path::new("") { Path::new(".") } else { output };
        let made = output.ancestors().take_while(|path| *path != Path::new("") && !path.exists());
        let made = made.map(Path::to_owned).collect();
        fs::create_dir_all(output).with_context(|| format!("create {}", output.display()))?;
        sweep(output);
        let lock = claim(&work_in(output, process::id()))?;
        let left = Leavings { output: output.to_owned(), made };
        let signals = [SignalKind::interrupt(), SignalKind::terminate()];
        let [interrupt, terminate] = signals.map(|kind| signal(kind).context("wait for signals"));
        let interruption = tokio::spawn(interrupted(interrupt?, terminate?, left.clone()));
        let free_bytes = rustix::fs::statvfs(output).ok().map(|status| status.f_bavail * status.f_frsize);
        let work = work_in(output, process::id());
        Ok(Self { left, work, _lock: lock, free_bytes, interruption })
    }

    pub(super) fn path(&self) -> &Path {
        &self.work
    }

    /// An error with what a full disk lacks, where it is that.
    pub(super) fn with_room(&self, error: Error, needed_bytes: u64) -> Error {
        with_room(error, &self.left.output, needed_bytes, self.free_bytes)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.interruption.abort();
        self.left.remove();
    }
}

impl Leavings {
    fn remove(&self) {
        for _ in 0..REMOVALS {
            remove(&self.output, process::id());
        }
        for directory in &self.made {
            // One with something in it stays.
            let _ = fs::remove_dir(directory);
        }
    }
}

fn work_in(output: &Path, process: u32) -> PathBuf {
    output.join(format!("{DIRECTORY}{process}"))
}

/// A new directory of nobody else's, locked.
fn claim(work: &Path) -> Result<Lock> {
    loop {
        match fs::create_dir(work) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(taken(work)),
            made => made.with_context(|| format!("create {}", work.display()))?,
        }
        let directory = match File::open(work) {
            // Swept by another process before it was locked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            directory => directory.with_context(|| format!("open {}", work.display()))?,
        };
        // Where a file system has no locks, no other process removes the directory.
        let _ = directory.lock();
        if work.exists() {
            return Ok(Lock(directory));
        }
    }
}

/// Why a directory that is there is not this process's.
fn taken(work: &Path) -> Error {
    let is_free = File::open(work).is_ok_and(|directory| directory.try_lock().is_ok());
    let why = if is_free {
        "is what a run left that was killed, and cannot be removed: remove it as its owner, or write to another directory \
         (--output)"
    } else {
        "is in use: another billetctl, in another container, has the same process number and writes to the same directory; \
         wait for it, or write to another directory (--output)"
    };
    Error::msg(format!("{} {why}", work.display()))
}

/// Removes what processes left that are gone: nobody has their directory's lock.
fn sweep(output: &Path) {
    for item in fs::read_dir(output).into_iter().flatten().flatten() {
        let name = item.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(DIRECTORY));
        let Some(process) = number.and_then(|number| number.parse().ok()) else { continue };
        let Ok(directory) = File::open(item.path()) else { continue };
        let is_left = match directory.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            // A file system without locks. This process has not begun.
            Err(TryLockError::Error(_)) => process == process::id(),
        };
        if is_left {
            remove(output, process);
        }
    }
}

/// Removes what a process has: its directory last, without which nobody would know of the rest.
fn remove(output: &Path, process: u32) {
    for item in fs::read_dir(output).into_iter().flatten().flatten() {
        if item.file_name().to_str().and_then(process_of) != Some(process) {
            continue;
        }
        let _ = remove_unfinished(&item.path());
    }
    let _ = fs::remove_dir_all(work_in(output, process));
}

/// The process that is making a file or directory of this name: `disk.raw.7-1.billet-partial`.
fn process_of(name: &str) -> Option<u32> {
    let (_, numbers) = name.strip_suffix(UNFINISHED)?.rsplit_once('.')?;
    numbers.split_once('-').map_or(numbers, |(process, _)| process).parse().ok()
}

async fn interrupted(mut interrupt: Signal, mut terminate: Signal, left: Leavings) {
    let kind = tokio::select! {
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
    };
    left.remove();
    eprintln!("interrupted: what was not finished is removed");
    process::exit(SIGNALLED + kind.as_raw_value());
}

fn with_room(error: Error, output: &Path, needed_bytes: u64, free_bytes: Option<u64>) -> Error {
    // What squashes, and qemu-img, hand on the words alone.
    let is_full = |cause: &(dyn std::error::Error + 'static)| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        kind == Some(io::ErrorKind::StorageFull) || cause.to_string().contains(FULL)
    };
    if !error.chain().any(is_full) {
        return error;
    }
    let free = free_bytes.map(|bytes| format!(", {} were free", bytes_si(bytes))).unwrap_or_default();
    error.context(format!(
        "{} has no room: this takes about {}{free}; make room, or write to another directory (--output)",
        output.display(),
        bytes_si(needed_bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_whose_they_are() {
        for (name, process) in [
            ("metal-amd64.raw.17-3.billet-partial", Some(17)),
            ("metal-amd64.raw.zst.17.billet-partial", Some(17)),
            ("metal-amd64.raw.zst.17.billet-partial.17-0.billet-partial", Some(17)),
            ("metal-amd64.billet-partial", None),
            ("17.billet-partial", None),
            ("dump.20261123.partial", None),
            ("linux-6.1.115.unpacked", None),
            ("metal-amd64.raw", None),
        ] {
            assert_eq!(process_of(name), process, "{name}");
        }
    }

    #[test]
    fn what_a_killed_process_left_goes_and_everything_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path();
        let others = ["dump.17.partial", "linux-6.1.17.unpacked", "x.18-0.billet-partial", "metal-amd64.raw"];
        let killed = ["x.17-0.billet-partial", "y.17.billet-partial"];
        for name in others.iter().chain(&killed) {
            fs::write(output.join(name), "").unwrap();
        }
        fs::create_dir(work_in(output, 17)).unwrap();
        fs::write(work_in(output, 17).join("disk.raw"), "old").unwrap();
        let live = claim(&work_in(output, 18)).unwrap();
        sweep(output);
        let mut left: Vec<String> = fs::read_dir(output)
            .unwrap()
            .map(|item| item.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [".billetctl-18", others[0], others[1], others[3], others[2]]);
        let taken = claim(&work_in(output, 18)).unwrap_err().to_string();
        assert!(taken.contains("has the same process number"), "{taken}");
        drop(live);
        // Another user's, who may not remove it.
        let left = claim(&work_in(output, 18)).unwrap_err().to_string();
        assert!(left.contains("remove it as its owner"), "{left}");
        sweep(output);
        assert!(!work_in(output, 18).exists() && !output.join(others[2]).exists());
    }

    /// In a container the process number may be the same every time: what a killed run left is not this run's.
    #[tokio::test]
    async fn what_a_killed_run_with_this_number_left_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let directory = work_in(dir.path(), process::id());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("disk.raw"), "old").unwrap();
        let work = Work::new(dir.path()).unwrap();
        assert_eq!(work.path(), directory);
        assert!(fs::read_dir(&directory).unwrap().next().is_none());
        drop(work);
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
    }

    #[test]
    fn a_full_disk_is_told_with_what_is_needed() {
        let full = || Error::new(io::Error::from(io::ErrorKind::StorageFull)).context("write out/disk.raw");
        let said = format!("{:#}", with_room(full(), Path::new("out"), 3_000_000, Some(1_000_000)));
        assert!(said.starts_with("out has no room: this takes about 3"), "{said}");
        assert!(said.contains("were free; make room") && said.contains(": write out/disk.raw: "), "{said}");
        let words = Error::msg("squash /a: No space left on device (os error 28)");
        assert!(with_room(words, Path::new("out"), 1, None).to_string().starts_with("out has no room"));
        let other = Error::new(io::Error::from(io::ErrorKind::NotFound)).context("read x");
        let before = format!("{other:#}");
        assert_eq!(format!("{:#}", with_room(other, Path::new("out"), 1, None)), before);
    }
}
