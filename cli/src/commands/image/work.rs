//! What an image is made with beside its place: a folder for what is unpacked, and files that are not whole yet.
//!
//! Owns: that folder; removing all of it at the end, at a failure, at Ctrl-C and SIGTERM, and what an earlier run left that
//! was killed. An output folder that was made and has nothing in it goes too.
//! Does not: touch what a process has that is still there, or anything without a process's number in its name.
//! Fails by: what cannot be removed is left; what counts is the result, or why there is none.

use anyhow::{Context as _, Error, Result};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
};

use crate::output::bytes_si;

/// The folder's name, before the number of the process.
const FOLDER: &str = ".billetctl-";
/// Ends of the names of what is not whole.
const UNFINISHED: [&str; 2] = [".partial", ".unpacked"];
/// What Linux says of a full disk.
const FULL: &str = "No space left on device";
/// Exit status of a program that a signal ended, without the signal's number, as shells count it.
const SIGNALLED: i32 = 128;

/// The folder; gone with this value.
pub(super) struct Work {
    left: Leavings,
    /// Bytes that were free at the beginning.
    free_bytes: Option<u64>,
    interruption: JoinHandle<()>,
}

/// What has to go when nothing more is made.
#[derive(Clone)]
struct Leavings {
    /// Where the results go.
    output: PathBuf,
    work: PathBuf,
    /// Folders that were not there, the innermost first.
    made: Vec<PathBuf>,
}

impl Work {
    /// In the folder that the results go to, which is made where it is not there.
    pub(super) fn new(output: &Path) -> Result<Self> {
        let output = if output == Path::new("") { Path::new(".") } else { output };
        let made = output.ancestors().take_while(|path| *path != Path::new("") && !path.exists());
        let made = made.map(Path::to_owned).collect();
        fs::create_dir_all(output).with_context(|| format!("create {}", output.display()))?;
        sweep(output, &|process| !Path::new("/proc").join(process.to_string()).exists());
        let work = output.join(format!("{FOLDER}{}", process::id()));
        let left = Leavings { output: output.to_owned(), work, made };
        let signals = [SignalKind::interrupt(), SignalKind::terminate()];
        let [interrupt, terminate] = signals.map(|kind| signal(kind).context("wait for signals"));
        let interruption = tokio::spawn(interrupted(interrupt?, terminate?, left.clone()));
        let free_bytes = rustix::fs::statvfs(output).ok().map(|status| status.f_bavail * status.f_frsize);
        let new = Self { left, free_bytes, interruption };
        fs::create_dir_all(new.path()).with_context(|| format!("create {}", new.path().display()))?;
        Ok(new)
    }

    pub(super) fn path(&self) -> &Path {
        &self.left.work
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
        let _ = fs::remove_dir_all(&self.work);
        sweep(&self.output, &|process| process == process::id());
        for folder in &self.made {
            // One with something in it stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Removes what processes left that are `gone`.
fn sweep(folder: &Path, gone: &dyn Fn(u32) -> bool) {
    for item in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = item.file_name();
        if !name.to_str().and_then(process_of).is_some_and(gone) {
            continue;
        }
        let is_folder = item.file_type().is_ok_and(|kind| kind.is_dir());
        let _ = if is_folder { fs::remove_dir_all(item.path()) } else { fs::remove_file(item.path()) };
    }
}

/// The process that something of this name belongs to: `.billetctl-7`, `disk.raw.7.unpacked`, `disk.raw.7-1.partial`.
fn process_of(name: &str) -> Option<u32> {
    if let Some(number) = name.strip_prefix(FOLDER) {
        return number.parse().ok();
    }
    let stem = UNFINISHED.iter().find_map(|end| name.strip_suffix(end))?;
    let (_, numbers) = stem.rsplit_once('.')?;
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
        "{} has no room: this takes about {}{free}; make room, or write to another folder (--output)",
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
            (".billetctl-17", Some(17)),
            ("metal-amd64.raw.17-3.partial", Some(17)),
            ("metal-amd64.raw.zst.17.unpacked", Some(17)),
            ("metal-amd64.raw.zst.17.unpacked.17-0.partial", Some(17)),
            ("metal-amd64.partial", None),
            ("notes.unpacked", None),
            ("metal-amd64.raw", None),
            (".billetctl-x", None),
            ("17.partial", None),
        ] {
            assert_eq!(process_of(name), process, "{name}");
        }
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
