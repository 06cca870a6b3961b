//! Files and directories below `/var`, where workloads write too: no link of theirs is followed. Where something is made or written, a
//! link gives way: a node that did not start because of one could not be mended. Where something is read, it is an error.
//!
//! Owns: the way to a path, name by name, each opened by openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, and kept open for
//! what comes next: nothing is looked up twice, so nothing can be put in its place in between.
//! Does not: know what is written.
//! Fails by: an I/O error that names the link, or the system call's own.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

/// What is put beside a file before it takes its name: a hidden name, since what reads whole directories, as the kubelet does,
/// leaves such names out.
const NEW: &str = ".billet-new.";
/// Most directories in directories that are removed: as many as a path may have names.
const MOST_DEPTH: usize = 2048;

/// A directory that is open.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    /// For errors.
    path: PathBuf,
}

/// The directory and the last name of a path below `root`; directories on the way that are not there are made, mode 0755.
pub fn make_parent(root: &Path, path: &Path) -> io::Result<(Directory, PathBuf)> {
    let (parent, name) = split(path)?;
    Ok((make_directory(root, parent, 0o755)?, name))
}

/// The same without making anything; `NotFound` where there is no such directory.
pub fn parent(root: &Path, path: &Path) -> io::Result<(Directory, PathBuf)> {
    let (parent, name) = split(path)?;
    Ok((Directory::open(root)?.descend(parent, None)?, name))
}

/// The directory at a path below `root`, made with this mode where it is not there, and so are those on the way.
pub fn make_directory(root: &Path, path: &Path, mode: u32) -> io::Result<Directory> {
    Directory::open(root)?.descend(path, Some(mode))
}

/// What a regular file at a path below `root` holds; `NotFound` where there is none.
pub fn read(root: &Path, path: &Path) -> io::Result<Vec<u8>> {
    let (parent, name) = parent(root, path)?;
    parent.read(&name)
}

fn split(path: &Path) -> io::Result<(&Path, PathBuf)> {
    let bad =
        || io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no path of a file", path.display()));
    let (parent, name) = path.parent().zip(path.file_name()).ok_or_else(bad)?;
    Ok((parent, PathBuf::from(name)))
}

impl Directory {
    /// The root, whose own path is trusted.
    fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { fd: rustix::fs::open(root, flags, Mode::empty())?, path: root.to_owned() })
    }

    fn descend(mut self, path: &Path, make: Option<u32>) -> io::Result<Self> {
        for part in path.components() {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => self = self.enter(name, make)?,
                Component::ParentDir | Component::Prefix(_) => {
                    let text = format!("{} has .. in it", path.display());
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
                }
            }
        }
        Ok(self)
    }

    fn enter(&self, name: &OsStr, make: Option<u32>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let fd = match (self.step(name, flags), make) {
            (Err(_), Some(mode)) => {
                if self.is_link(name) {
                    self.remove(Path::new(name))?;
                }
                match rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode)) {
                    // Somebody was faster, or it is no directory: opening it says which.
                    Ok(()) | Err(Errno::EXIST) => self.step(name, flags)?,
                    Err(errno) => return Err(self.failed(name, errno)),
                }
            }
            (opened, _) => opened?,
        };
        Ok(Self { fd, path: self.path.join(name) })
    }

    fn is_link(&self, name: &OsStr) -> bool {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Symlink)
    }

    /// Opens one name.
    fn step(&self, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = rustix::fs::openat2(&self.fd, name, flags, Mode::empty(), resolve);
        opened.map_err(|errno| self.failed(name, errno))
    }

    fn failed(&self, name: &OsStr, errno: Errno) -> io::Error {
        let path = self.path.join(name);
        if self.is_link(name) && matches!(errno, Errno::LOOP | Errno::NOTDIR) {
            let text =
                format!("{} is a symbolic link, which is not followed there: remove it", path.display());
            return io::Error::new(io::ErrorKind::InvalidInput, text);
        }
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    }

    /// Its permission bits.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        // A descriptor that is only a place cannot be changed itself.
        Ok(rustix::fs::chmod(self.place(), Mode::from_raw_mode(mode))?)
    }

    /// A path that leads to this very directory while it is open, for system calls that take paths.
    pub fn place(&self) -> PathBuf {
        fd_path(self.fd.as_fd())
    }

    /// A regular file that is there, to be read; `None`: nothing has the name.
    pub fn file(&self, name: &Path) -> io::Result<Option<File>> {
        // A FIFO would wait for somebody to write to it.
        let opened = self.step(name.as_os_str(), OFlags::RDONLY | OFlags::NONBLOCK);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => File::from(other?),
        };
        if file.metadata()?.is_file() {
            return Ok(Some(file));
        }
        let text = format!("{} is no regular file", self.path.join(name).display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// What a regular file holds; `NotFound` where there is none.
    pub fn read(&self, name: &Path) -> io::Result<Vec<u8>> {
        let mut file = self.file(name)?.ok_or(io::ErrorKind::NotFound)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        Ok(content)
    }

    /// A new file; what has the name is an error.
    pub fn create_new(&self, name: &Path, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let created = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode));
        created.map(File::from).map_err(|errno| self.failed(name.as_os_str(), errno))
    }

    /// Has a file hold this with these permissions, whole or as before; nothing is written where it does. A link of that name
    /// goes, and what it leads to stays.
    pub fn replace(&self, name: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        self.replace_for(name, content, mode, None)
    }

    /// The same for this user and group.
    pub fn replace_for(&self, name: &Path, content: &[u8], mode: u32, owner: Option<u32>) -> io::Result<()> {
        let set = |file: &File| {
            if let Some(id) = owner {
                rustix::fs::fchown(file, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?;
            }
            Ok::<_, io::Error>(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
        };
        let is_link = self.is_link(name.as_os_str());
        if let Some(mut file) = if is_link { None } else { self.file(name)? } {
            let mut present = Vec::new();
            let limit = content.len() as u64 + 1;
            (&mut file).take(limit).read_to_end(&mut present)?;
            if present == content {
                return set(&file);
            }
        }
        let mut new = OsString::from(NEW);
        new.push(name);
        let new = PathBuf::from(new);
        // Whatever has that name: a cut-off start of ours, or something that was put there.
        self.remove(&new)?;
        let mut file = self.create_new(&new, 0o600)?;
        set(&file)?;
        file.write_all(content)?;
        file.sync_all()?;
        self.rename(&new, name)
    }

    /// Gives the directory to this user and group.
    pub fn set_owner(&self, id: u32) -> io::Result<()> {
        Ok(rustix::fs::chown(self.place(), Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?)
    }

    /// Gives the directory and everything in it to this user and group. Nothing is written where that is so already.
    pub fn set_owner_below(&self, id: u32) -> io::Result<()> {
        self.own_below(id, 0)
    }

    fn own_below(&self, id: u32, depth: usize) -> io::Result<()> {
        let listed = self.step(OsStr::new("."), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let (user, group) = (Some(Uid::from_raw(id)), Some(Gid::from_raw(id)));
        let status = rustix::fs::fstat(&listed)?;
        if (status.st_uid, status.st_gid) != (id, id) {
            rustix::fs::fchown(&listed, user, group)?;
        }
        for entry in Dir::new(listed)? {
            let entry = entry?;
            let name = OsStr::new(entry.file_name().to_str().map_err(io::Error::other)?);
            if name == "." || name == ".." {
                continue;
            }
            let status = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| self.failed(name, errno))?;
            if FileType::from_raw_mode(status.st_mode) == FileType::Directory && depth < MOST_DEPTH {
                self.enter(name, None)?.own_below(id, depth + 1)?;
            } else if (status.st_uid, status.st_gid) != (id, id) {
                rustix::fs::chownat(&self.fd, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|errno| self.failed(name, errno))?;
            }
        }
        Ok(())
    }

    /// Has the names in the directory be on the disk.
    pub fn sync(&self) -> io::Result<()> {
        let listed = self.step(OsStr::new("."), OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(rustix::fs::fsync(&listed)?)
    }

    /// Gives a file another name in this directory.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let renamed = rustix::fs::renameat(&self.fd, from, &self.fd, to);
        renamed.map_err(|errno| self.failed(to.as_os_str(), errno))
    }

    /// Removes a file or link, if there is one.
    pub fn remove(&self, name: &Path) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed(name.as_os_str(), errno)),
        }
    }

    /// Makes a link of this name, unless something has it.
    pub fn link(&self, name: &Path, target: &Path) -> io::Result<()> {
        match rustix::fs::symlinkat(target, &self.fd, name) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(self.failed(name.as_os_str(), errno)),
        }
    }

    /// Removes whatever has this name, with all that lies in it.
    pub fn remove_all(&self, name: &Path) -> io::Result<()> {
        self.remove_below(name.as_os_str(), 0)
    }

    fn remove_below(&self, name: &OsStr, depth: usize) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR) if depth < MOST_DEPTH => {}
            Err(errno) => return Err(self.failed(name, errno)),
        }
        let directory = self.enter(name, None)?;
        let listed = directory.step(OsStr::new("."), OFlags::RDONLY | OFlags::DIRECTORY)?;
        for entry in Dir::new(listed)? {
            let entry = entry?;
            let inner = OsStr::new(entry.file_name().to_str().map_err(io::Error::other)?);
            if inner != "." && inner != ".." {
                directory.remove_below(inner, depth + 1)?;
            }
        }
        let removed = rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR);
        removed.map_err(|errno| self.failed(name, errno))
    }
}

/// A path that leads to what a descriptor is of, whatever has its name by now.
pub fn fd_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn replace(root: &Path, path: &str, content: &str) -> io::Result<()> {
        let (directory, name) = make_parent(root, Path::new(path))?;
        directory.replace(&name, content.as_bytes(), 0o640)
    }

    #[test]
    fn files_and_directories_are_made_replaced_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("var/deep/er/file");
        for content in ["first", "second", "second", ""] {
            replace(dir.path(), "/var/deep/er/file", content).unwrap();
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), (content, 0o640));
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let var = make_directory(dir.path(), Path::new("/var"), 0o755).unwrap();
        var.set_mode(0o711).unwrap();
        assert_eq!(mode(&dir.path().join("var")), 0o711);
        fs::create_dir_all(dir.path().join("kept/in")).unwrap();
        symlink(dir.path().join("kept"), dir.path().join("var/deep/link")).unwrap();
        var.remove_all(Path::new("deep")).unwrap();
        assert!(!dir.path().join("var/deep").exists() && dir.path().join("kept/in").exists());
        var.remove_all(Path::new("gone")).unwrap();
    }

    /// Whoever may write below /var puts a link where the node writes: on the way, in the place of the file, and in the place
    /// of what is written beside it.
    #[test]
    fn no_planted_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, secret) = (dir.path(), dir.path().join("system/secret"));
        fs::create_dir_all(root.join("system")).unwrap();
        fs::create_dir_all(root.join("var/etc")).unwrap();
        let plant = |name: &str, target: &str| symlink(target, root.join(name)).unwrap();
        fs::write(&secret, "untouched").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        plant("var/etc/cri", "../../system");
        plant("var/etc/file", "../../system/secret");
        plant("var/etc/.billet-new.good", "../../system/secret");
        for (path, named) in [("/var/etc/cri/secret", "var/etc/cri"), ("/var/etc/file", "var/etc/file")] {
            let error = read(root, Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(&format!("{named} is a symbolic link, which is not followed")), "{error}");
            replace(root, path, "written").unwrap();
            assert_eq!(fs::read_to_string(root.join(&path[1..])).unwrap(), "written");
        }
        replace(root, "/var/etc/good", "written").unwrap();
        assert_eq!(read(root, Path::new("/var/etc/good")).unwrap(), b"written");
        for path in ["/var/etc/gone", "/var/gone/file"] {
            assert_eq!(read(root, Path::new(path)).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert!(!root.join("var/etc/.billet-new.good").exists());
        let var = make_directory(root, Path::new("var/etc"), 0o755).unwrap();
        plant("var/etc/new", "../../system/secret");
        assert!(var.create_new(Path::new("new"), 0o600).is_err());
        assert!(make_directory(root, Path::new("/var/../system"), 0o755).is_err());
        assert_eq!((fs::read_to_string(&secret).unwrap().as_str(), mode(&secret)), ("untouched", 0o600));
        assert_eq!(fs::read_dir(root.join("system")).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_regular_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("directory")).unwrap();
        let fifo = rustix::fs::CWD;
        rustix::fs::mknodat(fifo, dir.path().join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let (directory, _) = parent(dir.path(), Path::new("/x")).unwrap();
        for name in ["directory", "fifo"] {
            let error = directory.file(Path::new(name)).unwrap_err().to_string();
            assert!(error.ends_with("is no regular file"), "{error}");
        }
        assert!(directory.file(Path::new("gone")).unwrap().is_none());
    }
}
