//! The file behind a log: appends, turns over, gives way when the tmpfs is full.
//!
//! Order: the current file is renamed to `.1` (replacing the older one) when it has reached its limit, so a log
//! takes at most twice [`MAX_FILE_BYTES`].

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::io::Errno;
use tokio::sync::watch;

use super::place::LogPlace;

/// Size at which a log file is turned over (docs/users/logs.md).
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// An operation on a log file that failed.
#[derive(Debug, thiserror::Error)]
pub enum LogFileError {
    /// The directory cannot be made.
    #[error("create log directory {0}")]
    CreateDirectory(String, #[source] std::io::Error),
    /// The file cannot be opened.
    #[error("open log file {0}")]
    Open(String, #[source] std::io::Error),
    /// The file cannot be written.
    #[error("write log file {0}")]
    Write(String, #[source] std::io::Error),
}

/// A log open for appending.
#[derive(Debug)]
pub struct LogFile {
    place: LogPlace,
    file: File,
    written: u64,
    grown: watch::Sender<u64>,
}

impl LogFile {
    pub(super) fn open(dir: &Path, place: LogPlace, grown: watch::Sender<u64>) -> Result<Self, LogFileError> {
        std::fs::create_dir_all(dir)
            .map_err(|e| LogFileError::CreateDirectory(dir.display().to_string(), e))?;
        let (file, written) = open_at_end(&place.current)?;
        Ok(Self { place, file, written, grown })
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), LogFileError> {
        let written = match self.file.write_all(bytes) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {
                self.give_way()?;
                self.file.write_all(bytes)
            }
            Err(error) => Err(error),
        };
        written.map_err(|e| LogFileError::Write(self.name(), e))?;
        self.grew(bytes.len());
        Ok(())
    }

    /// Where splice(2) writes to.
    pub(super) fn target(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Counts bytes that were appended, turns over when it is time, wakes followers.
    pub(super) fn grew(&mut self, bytes: usize) {
        self.written += u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.written >= MAX_FILE_BYTES {
            // A failed turn-over costs the bound, not the log: it is tried again at the next write.
            let _ = self.turn_over();
        }
        self.grown.send_modify(|count| *count += 1);
    }

    fn turn_over(&mut self) -> Result<(), LogFileError> {
        std::fs::rename(&self.place.current, &self.place.older)
            .map_err(|e| LogFileError::Write(self.name(), e))?;
        (self.file, self.written) = open_at_end(&self.place.current)?;
        Ok(())
    }

    /// Frees space: the older file first, then the current one.
    pub(super) fn give_way(&mut self) -> Result<(), LogFileError> {
        if std::fs::remove_file(&self.place.older).is_ok() {
            return Ok(());
        }
        let cut = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        cut.map_err(|e| LogFileError::Write(self.name(), e))?;
        self.written = 0;
        Ok(())
    }

    fn name(&self) -> String {
        self.place.current.display().to_string()
    }
}

/// Opens without `O_APPEND`, which splice(2) refuses, and goes to the end.
fn open_at_end(path: &Path) -> Result<(File, u64), LogFileError> {
    let open = || {
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        let end = file.seek(SeekFrom::End(0))?;
        Ok((file, end))
    };
    open().map_err(|e| LogFileError::Open(path.display().to_string(), e))
}
