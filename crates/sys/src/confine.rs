//! What a program sees and may do that nobody trusts with the system: a root of its own, and no way to more rights.
//!
//! Owns: [`Root`], a mount namespace with a small read-only file system and single files of the real one; the end of
//! capabilities.
//! Does not: allocate or lock in the new process: everything is prepared before.
//! Order: the root first, which takes rights; then the bounding set and `no_new_privs`; then the identity, which takes the rest.
//! Source: mount_namespaces(7), pivot_root(2), capabilities(7), `no_new_privs` in prctl(2).

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;

use linux_raw_sys::general as nr;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::{Errno, Result, raw};

/// Nothing is written there: directories and empty files to mount on.
const SIZE: &CStr = c"mode=755,size=64k,nr_inodes=128";
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);
const FILE_MODE: Mode = Mode::from_raw_mode(0o444);
/// Of everything that is shown.
const SHOWN: MountFlags = MountFlags::RDONLY.union(MountFlags::NOSUID).union(MountFlags::NODEV);
/// More than the kernel has (41 in 2025): it says which one is the last.
const MOST_CAPABILITIES: usize = 64;

/// A root of its own, prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Where it is mounted; in the process's own namespace only.
    at: CString,
    /// From the root, each after those above it.
    directories: Vec<CString>,
    files: Vec<Shown>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    /// Where it is.
    source: CString,
    /// The same from the new root, without the slash.
    target: CString,
    is_program: bool,
}

impl Root {
    /// A root that holds the program and these files or sockets, at their own places. `at` is an empty directory of this system;
    /// others go on seeing it empty. A path through a symbolic link shows what it leads to.
    ///
    /// # Errors
    /// `EINVAL` for a path that is not absolute or leads upwards.
    pub fn new(at: &CStr, program: &CStr, files: &[&CStr]) -> Result<Self> {
        let mut directories: Vec<CString> = Vec::new();
        let mut shown = Vec::new();
        for (index, source) in core::iter::once(&program).chain(files).enumerate() {
            let target =
                source.to_bytes().strip_prefix(b"/").filter(|rest| is_plain(rest)).ok_or(Errno::INVAL)?;
            for end in target.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end) {
                let directory = c_string(target.get(..end).unwrap_or_default())?;
                if !directories.contains(&directory) {
                    directories.push(directory);
                }
            }
            let (source, target) = ((*source).into(), c_string(target)?);
            shown.push(Shown { source, target, is_program: index == 0 });
        }
        Ok(Self { at: at.into(), directories, files: shown })
    }

    /// Makes it the root of this process, which must be one of a single thread.
    pub(crate) fn enter(&self) -> Result<()> {
        // SAFETY: 1. unshare takes flags only; this process has no other thread that could see another mount table.
        unsafe { raw::syscall(nr::__NR_unshare, [nr::CLONE_NEWNS as usize, 0, 0, 0, 0, 0]) }?;
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount(c"root", &*self.at, c"tmpfs", flags, Some(SIZE))?;
        rustix::process::chdir(&*self.at)?;
        for directory in &self.directories {
            rustix::fs::mkdir(&**directory, FOLDER_MODE)?;
            // Whatever the mask of new files is.
            rustix::fs::chmod(&**directory, FOLDER_MODE)?;
        }
        self.files.iter().try_for_each(Shown::mount)?;
        rustix::mount::mount_remount(c".", flags | MountFlags::RDONLY, c"")?;
        // The old root lands on the new one and goes from there: no directory is needed for it.
        rustix::process::pivot_root(c".", c".")?;
        rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
        rustix::process::chdir(c"/")
    }
}

impl Shown {
    fn mount(&self) -> Result<()> {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(rustix::fs::openat(CWD, &*self.target, new, FILE_MODE)?);
        rustix::mount::mount_bind(&*self.source, &*self.target)?;
        let exec = if self.is_program { MountFlags::empty() } else { MountFlags::NOEXEC };
        rustix::mount::mount_remount(&*self.target, MountFlags::BIND | SHOWN | exec, c"")
    }
}

/// Neither empty nor upwards, nor twice the same by other words.
fn is_plain(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Errno::INVAL)
}

/// No program that this one becomes has more rights than it: neither by a file's mode nor by its capabilities. Takes
/// `CAP_SETPCAP`, so it comes before the identity.
pub(crate) fn give_up_rights() -> Result<()> {
    const PR_CAPBSET_DROP: usize = 24;
    for capability in 0..MOST_CAPABILITIES {
        // SAFETY: 1. prctl takes numbers only here.
        match unsafe { raw::syscall(nr::__NR_prctl, [PR_CAPBSET_DROP, capability, 0, 0, 0, 0]) } {
            // There is no such one, and none behind it.
            Err(Errno::INVAL) if capability > 0 => break,
            other => other.map(drop)?,
        }
    }
    rustix::thread::set_no_new_privs(true)
}

#[cfg(test)]
#[path = "confine_tests.rs"]
mod tests;
