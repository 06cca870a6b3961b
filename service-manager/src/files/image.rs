//! The image's files as they are below everything that was mounted over them.
//!
//! An append that ran twice (a new machined repeats the phase that was cut off) would otherwise read its own result.
//! Source: open_tree(2): a clone of the root mount alone shows the root file system without what is mounted in it.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{OpenTreeFlags, open_tree};

/// Larger files are not ones that a config appends to.
const MAX_BYTES: u64 = 16 << 20;

/// A view of a root.
pub(crate) struct Image {
    root: OwnedFd,
}

/// A regular file of the image.
pub(super) struct Original {
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
}

/// What there is at a path.
pub(super) enum Found {
    /// A regular file.
    File(Original),
    /// Something else.
    Other,
    /// Nothing.
    Nothing,
}

impl Image {
    /// The root file system, without what is mounted in it.
    pub(crate) fn open() -> Result<Self, String> {
        let root = open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
            .map_err(|errno| format!("clone the root mount to read the image's own files: {errno}"))?;
        Ok(Self { root })
    }

    /// A directory that stands for the root.
    #[cfg(test)]
    pub(crate) fn of_directory(directory: &Path) -> Self {
        Self { root: File::open(directory).unwrap().into() }
    }

    /// What there is at a path from the root, no link followed.
    pub(super) fn status(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        match openat2(&self.root, path, flags, Mode::empty(), resolve) {
            Ok(found) => File::from(found).metadata().map(Some),
            // A link on the way is found when its own path is looked at.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads a file; symbolic links stay inside.
    pub(super) fn find(&self, path: &Path) -> io::Result<Found> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        let mut file = match opened {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(Found::Nothing),
            Err(errno) => return Err(errno.into()),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Found::Other);
        }
        let mut content = Vec::new();
        Read::by_ref(&mut file).take(MAX_BYTES).read_to_end(&mut content)?;
        Ok(Found::File(Original { content, mode: metadata.permissions().mode() & 0o7777 }))
    }
}
