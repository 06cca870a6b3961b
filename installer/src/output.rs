//! Files and directories that appear whole or not at all, and writing that leaves holes where there are zeros.
//!
//! Owns: the temporary name, the rename, the removal after a failure, what of a directory outlives another one in its place.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::Error;

/// Zeros of this length and alignment are left out: a block of every common file system.
const HOLE_BYTES: usize = 4096;

/// End of the names of what is not whole yet, behind a dot and the number of the process that makes it.
pub const UNFINISHED: &str = ".billet-partial";

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
        let temporary = beside(path);
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

/// A name of nobody else's.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    // Process and number keep two builds apart that write the same file, in this process or another.
    let number = OUTPUTS.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{number}{UNFINISHED}", std::process::id()));
    PathBuf::from(name)
}

/// A directory under a temporary name beside its final one.
pub(crate) struct Directory {
    /// The temporary name.
    path: PathBuf,
    target: PathBuf,
    /// What has the temporary name is somebody else's.
    kept: bool,
}

impl Directory {
    /// An empty directory, for this path.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        // A link to a directory stays one.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if target.exists() && !target.is_dir() {
            return Err(Error::write(&target)(io::ErrorKind::NotADirectory.into()));
        }
        let path = beside(&target);
        fs::create_dir_all(&path).map_err(Error::write(&path))?;
        Ok(Self { path, target, kept: false })
    }

    /// Where to write what belongs into it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the directory its final name. Of one that has it, everything goes that is called as something of ours; what
    /// somebody put beside that is kept.
    pub(crate) fn keep(mut self, ours: &[&str]) -> Result<(), Error> {
        if !self.target.exists() {
            return fs::rename(&self.path, &self.target).map_err(Error::write(&self.target));
        }
        let directories = self.link_others(ours)?;
        exchange(&self.path, &self.target).map_err(Error::write(&self.target))?;
        // The former directory has the temporary name now, with somebody's directories in it.
        self.kept = true;
        for (number, name) in directories.iter().enumerate() {
            let to = self.target.join(name);
            if let Err(error) = fs::rename(self.path.join(name), &to) {
                self.take_back(directories.get(..number).unwrap_or_default())?;
                return Err(Error::write(&to)(error));
            }
        }
        fs::remove_dir_all(&self.path).map_err(Error::write(&self.path))
    }

    /// Gives the former directory its name again, with these directories, which the new one has already.
    fn take_back(&mut self, moved: &[OsString]) -> Result<(), Error> {
        for name in moved {
            let to = self.path.join(name);
            fs::rename(self.target.join(name), &to).map_err(Error::write(&to))?;
        }
        exchange(&self.path, &self.target).map_err(Error::write(&self.target))?;
        self.kept = false;
        Ok(())
    }

    /// Links what is none of ours, so that it is there before and after. Directories cannot be linked: their names are returned.
    fn link_others(&self, ours: &[&str]) -> Result<Vec<OsString>, Error> {
        let failed = || Error::write(&self.target);
        let mut directories = Vec::new();
        for entry in fs::read_dir(&self.target).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name();
            if ours.iter().any(|own| *own == name) {
                continue;
            }
            if entry.file_type().map_err(failed())?.is_dir() {
                directories.push(name);
                continue;
            }
            let (from, to) = (entry.path(), self.path.join(&name));
            // Not all file systems have links.
            let kept = fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop));
            kept.map_err(Error::write(&to))?;
        }
        Ok(directories)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.kept {
            // The error that led here is the one to report; after success there is nothing.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes what was not finished: a file, or a directory with files and directories of these names. Other directories in it are somebody's,
/// for a moment: they stay where they are, and it with them.
pub(crate) fn remove(path: &Path, ours: &[&str]) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path())?;
        } else if ours.iter().any(|own| *own == entry.file_name()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// Each gets the other's name at once, or one after the other where the file system does not know how.
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        done => return Ok(done?),
    }
    let aside = beside(other);
    fs::rename(other, &aside)?;
    fs::rename(one, other).or_else(|error| fs::rename(&aside, other).and(Err(error)))?;
    fs::rename(aside, one)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// In a new one of ours lies a directory of the name of somebody's, which cannot be moved there.
    #[test]
    fn a_directory_whose_own_cannot_be_moved_is_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("made");
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for name in ["ours", "a/file", "b/file", "c/file"] {
            write(target.join(name), "before");
        }
        let directory = Directory::create(&target).unwrap();
        for name in ["ours", "b/other"] {
            write(directory.path().join(name), "after");
        }
        let error = directory.keep(&["ours"]).unwrap_err().to_string();
        assert!(error.contains("made/b"), "{error}");
        for name in ["ours", "a/file", "b/file", "c/file"] {
            assert_eq!(fs::read_to_string(target.join(name)).unwrap(), "before", "{name}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_is_not_finished_goes_without_what_is_somebodys() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("directory");
        for name in ["layers", "configs"] {
            fs::create_dir_all(directory.join(name)).unwrap();
            fs::write(directory.join(name).join("file"), "").unwrap();
        }
        fs::write(directory.join("vmlinuz"), "").unwrap();
        assert!(remove(&directory, &["layers"]).is_err());
        assert!(directory.join("configs/file").exists());
        assert!(!directory.join("layers").exists() && !directory.join("vmlinuz").exists());
        fs::remove_dir_all(directory.join("configs")).unwrap();
        remove(&directory, &["layers"]).unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        remove(&file, &[]).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
