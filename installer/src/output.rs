//! Files that appear whole or not at all, and writing that leaves holes where there are zeros.
//!
//! Owns: the temporary name, the rename, the removal after a failure.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

/// Zeros of this length and alignment are left out: a block of every common file system.
const HOLE_BYTES: usize = 4096;

/// How many outputs this process has opened.
static OUTPUTS: AtomicU64 = AtomicU64::new(0);

/// A file under a temporary name beside its final one.
pub(crate) struct Output {
    pub(crate) file: File,
    temporary: PathBuf,
    kept: bool,
}

impl Output {
    /// An empty file; one that an earlier run left under the temporary name is replaced.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let mut name = path.as_os_str().to_owned();
        // Process and number keep two builds apart that write the same file, in this process or another.
        let number = OUTPUTS.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".{}-{number}.partial", std::process::id()));
        let temporary = PathBuf::from(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&temporary);
        Ok(Self { file: file.map_err(Error::write(&temporary))?, temporary, kept: false })
    }

    /// Gives the file its final name.
    pub(crate) fn keep(mut self, path: &Path) -> Result<(), Error> {
        fs::rename(&self.temporary, path).map_err(Error::write(path))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.kept {
            // The error that led here is the one to report.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a whole file.
pub(crate) fn write_file(path: &Path, pieces: &[&[u8]]) -> Result<(), Error> {
    let mut output = Output::create(path)?;
    for piece in pieces {
        output.file.write_all(piece).map_err(Error::write(path))?;
    }
    output.keep(path)
}

/// Writes to a file that is all zeros there; blocks of zeros are left out.
pub(crate) fn write_sparse(file: &mut File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut run = 0..0;
    for (index, chunk) in bytes.chunks(HOLE_BYTES).enumerate() {
        let start = index * HOLE_BYTES;
        if chunk.iter().any(|byte| *byte != 0) {
            run = if run.is_empty() { start..start + chunk.len() } else { run.start..start + chunk.len() };
        } else {
            flush_run(file, offset, bytes, &run)?;
            run = 0..0;
        }
    }
    flush_run(file, offset, bytes, &run)
}

fn flush_run(file: &mut File, offset: u64, bytes: &[u8], run: &std::ops::Range<usize>) -> io::Result<()> {
    if run.is_empty() {
        return Ok(());
    }
    file.seek(SeekFrom::Start(offset + run.start as u64))?;
    file.write_all(bytes.get(run.clone()).unwrap_or(&[]))
}
