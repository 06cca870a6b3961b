//! Files for programs without the standard library.
//!
//! Owns: whole-file reads and writes, directory listings, block reads, recursive removal on one file system, mounts,
//! the root switch.
//! Does not: cache or keep descriptors open.
//! Source: mount(2), chroot(2), Documentation/filesystems/ramfs-rootfs-initramfs.rst.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::{Errno, Result};

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Block device.
    Block,
    /// Anything else.
    Other,
}

/// What `stat` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// What it is.
    pub kind: Kind,
    /// Size in bytes of a regular file.
    pub size_bytes: u64,
}

/// Opens a file for reading.
pub fn open(path: &str) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Follows symbolic links.
pub fn status(path: &str) -> Result<Status> {
    let stat = rustix::fs::stat(path)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::BlockDevice => Kind::Block,
        _ => Kind::Other,
    };
    Ok(Status { kind, size_bytes: u64::try_from(stat.st_size).unwrap_or(0) })
}

/// Reads a whole file, `EFBIG` beyond the limit.
pub fn read(path: &str, limit_bytes: usize) -> Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    let mut used = 0;
    loop {
        if bytes.len() - used < 512 {
            bytes.resize((bytes.len() * 2).max(4096), 0);
        }
        match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut bytes[used..]))? {
            0 => break,
            len => used += len,
        }
        if used > limit_bytes {
            return Err(Errno::FBIG);
        }
    }
    bytes.truncate(used);
    Ok(bytes)
}

/// Reads exactly so many bytes at an offset; `ENODATA` if the file ends before.
pub fn read_at(path: &str, offset: u64, buffer: &mut [u8]) -> Result<()> {
    let file = open(path)?;
    let mut done = 0;
    while done < buffer.len() {
        let at = offset + u64::try_from(done).map_err(|_| Errno::OVERFLOW)?;
        match rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut buffer[done..], at))? {
            0 => return Err(Errno::NODATA),
            len => done += len,
        }
    }
    Ok(())
}

/// Writes to an existing file (in /proc or /sys) with one call.
pub fn write(path: &str, bytes: &[u8]) -> Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let len = rustix::io::write(file, bytes)?;
    if len == bytes.len() { Ok(()) } else { Err(Errno::IO) }
}

/// Makes a file with this content, or gives one its content.
pub fn create(path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    write_all(&rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?, bytes)
}

/// Adds to the end of an existing file.
pub fn append(path: &str, bytes: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
    write_all(&rustix::fs::open(path, flags, Mode::empty())?, bytes)
}

fn write_all(file: &OwnedFd, bytes: &[u8]) -> Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(file, rest)? {
            0 => return Err(Errno::IO),
            count => rest = rest.get(count..).unwrap_or(&[]),
        }
    }
    Ok(())
}

/// Names in a directory, sorted, without `.` and `..`. Follows a link to the directory, as /sys is full of them.
pub fn list(path: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(rustix::fs::open(path, flags, Mode::empty())?)? {
        let name = entry?.file_name().to_string_lossy().to_string();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The target of a symbolic link.
pub fn read_link(path: &str) -> Result<String> {
    let target = rustix::fs::readlink(path, Vec::new())?;
    Ok(target.to_string_lossy().to_string())
}

/// Makes a symbolic link with this text; one that is there is replaced.
pub fn make_link(path: &str, target: &str) -> Result<()> {
    match rustix::fs::symlink(target, path) {
        Err(Errno::EXIST) => {
            rustix::fs::unlink(path)?;
            rustix::fs::symlink(target, path)
        }
        other => other,
    }
}

/// Removes a file or link.
pub fn remove_file(path: &str) -> Result<()> {
    rustix::fs::unlink(path)
}

/// Makes a directory; one that exists already is fine.
pub fn make_directory(path: &str, mode: u32) -> Result<()> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Never through a symbolic link: what is removed below must be where it seems to be.
fn open_directory<Fd: AsFd, P: rustix::path::Arg>(at: Fd, path: P) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

/// Which properties a mount gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// `ro`
    pub read_only: bool,
    /// `nosuid`
    pub no_suid: bool,
    /// `nodev`
    pub no_dev: bool,
    /// `noexec`
    pub no_exec: bool,
}

impl Options {
    fn flags(self) -> MountFlags {
        let pairs = [
            (self.read_only, MountFlags::RDONLY),
            (self.no_suid, MountFlags::NOSUID),
            (self.no_dev, MountFlags::NODEV),
            (self.no_exec, MountFlags::NOEXEC),
        ];
        pairs.into_iter().filter(|(on, _)| *on).fold(MountFlags::empty(), |all, (_, flag)| all | flag)
    }
}

/// `int mount(source, target, fstype, flags, data)`
pub fn mount(source: &str, target: &str, kind: &str, options: Options, data: &str) -> Result<()> {
    let data = alloc::ffi::CString::new(data).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(source, target, kind, options.flags(), &*data)
}

/// Moves a mount with everything below it.
pub fn move_mount(from: &str, to: &str) -> Result<()> {
    rustix::mount::mount_move(from, to)
}

/// Unmounts; `detach` hides it now and lets the last user end it.
pub fn unmount(target: &str, detach: bool) -> Result<()> {
    rustix::mount::unmount(target, if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() })
}

/// Makes a mount and its file system read-only.
pub fn remount_read_only(target: &str) -> Result<()> {
    rustix::mount::mount_remount(target, MountFlags::RDONLY, c"")
}

/// Writes all caches of all file systems.
pub fn sync() {
    rustix::fs::sync();
}

/// Makes a mount the root of this process: moves it over `/`, changes root. Returns the old root directory, for
/// [`remove_contents`].
///
/// The new root is shared, with the mounts below it and those to come: what a container with a `shared` volume mounts there,
/// as a kubelet does for pods, is seen by the system and by its other containers. The kernel's default is private.
/// Source: mount_namespaces(7).
pub fn switch_root(new_root: &str) -> Result<OwnedFd> {
    let old = open_directory(CWD, "/")?;
    rustix::process::chdir(new_root)?;
    rustix::mount::mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")?;
    // Behind the move: a mount whose parent is shared cannot be moved.
    rustix::mount::mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)?;
    Ok(old)
}

/// Removes everything below a directory that lies on the directory's own file system, and returns how many entries went.
pub fn remove_contents(directory: &OwnedFd) -> Result<u32> {
    let device = rustix::fs::fstat(directory)?.st_dev;
    remove_below(directory.as_fd(), device)
}

fn remove_below(directory: BorrowedFd<'_>, device: u64) -> Result<u32> {
    let mut count = 0;
    // Names first: removing while reading may skip entries.
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if name.to_bytes() != b"." && name.to_bytes() != b".." {
            names.push(name);
        }
    }
    for name in names {
        let stat = rustix::fs::statat(directory, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
        if stat.st_dev != device {
            continue;
        }
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_directory {
            count += remove_below(open_directory(directory, &*name)?.as_fd(), device)?;
        }
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        if rustix::fs::unlinkat(directory, &*name, flags).is_ok() {
            count += 1;
        }
    }
    Ok(count)
}

/// A zeroed buffer.
pub fn buffer(len: usize) -> Vec<u8> {
    vec![0; len]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let directory = std::env::temp_dir().join(format!("billet-sys-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn files_are_read_whole_up_to_the_limit() {
        let directory = scratch("read");
        let path = directory.join("f");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(read(path, 10_000).unwrap().len(), 10_000);
        assert_eq!(read(path, 9_999), Err(Errno::FBIG));
        let mut part = [0; 4];
        assert_eq!(read_at(path, 9_996, &mut part), Ok(()));
        assert_eq!(part, [7; 4]);
        assert_eq!(read_at(path, 9_997, &mut part), Err(Errno::NODATA));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn files_grow_and_begin_anew() {
        let directory = scratch("append");
        let path = directory.join("f");
        let path = path.to_str().unwrap();
        assert_eq!(append(path, b"a"), Err(Errno::NOENT));
        create(path, 0o600, b"old").unwrap();
        create(path, 0o600, b"a").unwrap();
        append(path, b"bc").unwrap();
        assert_eq!(read(path, 10).unwrap(), b"abc");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn contents_are_removed_and_links_not_followed() {
        let directory = scratch("remove");
        let outside = scratch("outside");
        std::fs::write(outside.join("keep"), b"x").unwrap();
        std::fs::create_dir_all(directory.join("a/b/c")).unwrap();
        std::fs::write(directory.join("a/b/f"), b"x").unwrap();
        std::os::unix::fs::symlink(&outside, directory.join("a/link")).unwrap();
        let opened = open_directory(CWD, directory.to_str().unwrap()).unwrap();
        assert_eq!(remove_contents(&opened), Ok(5));
        assert_eq!(list(directory.to_str().unwrap()), Ok(vec![]));
        assert!(outside.join("keep").exists());
        std::fs::remove_dir_all(directory).unwrap();
        std::fs::remove_dir_all(outside).unwrap();
    }

    #[test]
    fn directories_are_listed_in_order_and_through_links() {
        let directory = scratch("list");
        std::fs::create_dir_all(directory.join("real")).unwrap();
        for name in ["b", "a"] {
            std::fs::write(directory.join("real").join(name), b"").unwrap();
        }
        make_link(directory.join("link").to_str().unwrap(), "elsewhere").unwrap();
        make_link(directory.join("link").to_str().unwrap(), "real").unwrap();
        let names = list(directory.join("link").to_str().unwrap()).unwrap();
        assert_eq!(names, ["a", "b"]);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn options_become_flags() {
        let all = Options { read_only: true, no_suid: true, no_dev: true, no_exec: true };
        assert_eq!(all.flags().bits(), 15);
        assert_eq!(Options::default().flags(), MountFlags::empty());
    }
}
