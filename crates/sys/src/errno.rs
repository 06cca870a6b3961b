//! Error numbers in words.
//!
//! Owns: name and meaning of the errors that a boot, a mount or a device can give; the rest prints as a number.
//! Source: errno(3), include/uapi/asm-generic/errno*.h.

use core::fmt;

use crate::Errno;

/// The symbolic name, `ENOENT`; `None` for numbers that do not occur here.
pub fn name(errno: Errno) -> Option<&'static str> {
    entry(errno).map(|e| e.1)
}

/// What it means, as a person would say it.
pub fn meaning(errno: Errno) -> Option<&'static str> {
    entry(errno).map(|e| e.2)
}

/// Prints `ENOENT (no such file or directory)`, or `errno 200`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described(pub Errno);

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match entry(self.0) {
            Some((_, name, meaning)) => write!(f, "{name} ({meaning})"),
            None => write!(f, "errno {}", self.0.raw_os_error()),
        }
    }
}

fn entry(errno: Errno) -> Option<&'static (Errno, &'static str, &'static str)> {
    TABLE.iter().find(|e| e.0 == errno)
}

const TABLE: &[(Errno, &str, &str)] = &[
    (Errno::PERM, "EPERM", "operation not permitted"),
    (Errno::NOENT, "ENOENT", "no such file or directory"),
    (Errno::SRCH, "ESRCH", "no such process"),
    (Errno::INTR, "EINTR", "interrupted"),
    (Errno::IO, "EIO", "input/output error"),
    (Errno::NXIO, "ENXIO", "no such device or address"),
    (Errno::TOOBIG, "E2BIG", "argument list too long"),
    (Errno::NOEXEC, "ENOEXEC", "wrong program or module format"),
    (Errno::BADF, "EBADF", "not an open descriptor"),
    (Errno::CHILD, "ECHILD", "no child process"),
    (Errno::AGAIN, "EAGAIN", "not ready yet"),
    (Errno::NOMEM, "ENOMEM", "out of memory"),
    (Errno::ACCESS, "EACCES", "permission denied"),
    (Errno::FAULT, "EFAULT", "bad address"),
    (Errno::NOTBLK, "ENOTBLK", "not a block device"),
    (Errno::BUSY, "EBUSY", "in use"),
    (Errno::EXIST, "EEXIST", "exists already"),
    (Errno::XDEV, "EXDEV", "on another file system"),
    (Errno::NODEV, "ENODEV", "no such device or file system type"),
    (Errno::NOTDIR, "ENOTDIR", "not a directory"),
    (Errno::ISDIR, "EISDIR", "is a directory"),
    (Errno::INVAL, "EINVAL", "not valid, or not what it is said to be"),
    (Errno::NFILE, "ENFILE", "too many open files in the system"),
    (Errno::MFILE, "EMFILE", "too many open files"),
    (Errno::NOTTY, "ENOTTY", "device does not know this request"),
    (Errno::TXTBSY, "ETXTBSY", "program file is being written"),
    (Errno::FBIG, "EFBIG", "file too large"),
    (Errno::NOSPC, "ENOSPC", "no space left"),
    (Errno::SPIPE, "ESPIPE", "cannot seek"),
    (Errno::ROFS, "EROFS", "read-only file system"),
    (Errno::PIPE, "EPIPE", "reader is gone"),
    (Errno::RANGE, "ERANGE", "out of range"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG", "name too long"),
    (Errno::NOSYS, "ENOSYS", "kernel does not know this call"),
    (Errno::NOTEMPTY, "ENOTEMPTY", "directory not empty"),
    (Errno::LOOP, "ELOOP", "too many symbolic links"),
    (Errno::NODATA, "ENODATA", "no data"),
    (Errno::PROTO, "EPROTO", "protocol error"),
    (Errno::BADMSG, "EBADMSG", "damaged content"),
    (Errno::OVERFLOW, "EOVERFLOW", "value too large"),
    (Errno::UCLEAN, "EUCLEAN", "file system needs cleaning"),
    (Errno::MSGSIZE, "EMSGSIZE", "message too long"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP", "not supported"),
    (Errno::NOBUFS, "ENOBUFS", "no buffer space"),
    (Errno::CONNRESET, "ECONNRESET", "connection reset"),
    (Errno::NOTCONN, "ENOTCONN", "not connected"),
    (Errno::TIMEDOUT, "ETIMEDOUT", "timed out"),
    (Errno::CONNREFUSED, "ECONNREFUSED", "connection refused"),
    (Errno::NOMEDIUM, "ENOMEDIUM", "no medium in the drive"),
    (Errno::KEYREJECTED, "EKEYREJECTED", "signature not trusted"),
    (Errno::NOKEY, "ENOKEY", "no key to check the signature"),
    (Errno::HWPOISON, "EHWPOISON", "memory page has a hardware error"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_name_and_meaning() {
        assert_eq!(Described(Errno::NOENT).to_string(), "ENOENT (no such file or directory)");
        assert_eq!(Described(Errno::from_raw_os_error(200)).to_string(), "errno 200");
    }

    #[test]
    fn no_number_is_listed_twice() {
        for (index, entry) in TABLE.iter().enumerate() {
            assert!(
                TABLE[..index].iter().all(|other| other.0 != entry.0 && other.1 != entry.1),
                "{}",
                entry.1
            );
        }
    }
}
