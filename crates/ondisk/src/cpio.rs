//! The cpio archive of an initramfs, format newc.
//!
//! Owns: writing segments that the kernel unpacks, the same bytes for the same entries; reading them back.
//! Does not: sort, compress, look at files. Entries keep the caller's order; parents must come first.
//! Source: kernel Documentation/driver-api/early-userspace/buffer-format.rst, init/initramfs.c.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Bytes of an entry's header.
const HEADER_BYTES: usize = 110;

/// Segments, names and data start at multiples of this.
pub const ALIGNMENT: usize = 4;

/// Longest name in bytes, its end included: the kernel skips longer ones (PATH_MAX).
const MAX_NAME_BYTES: usize = 4096;

/// Name of the entry that ends a segment.
const TRAILER: &str = "TRAILER!!!";

/// What an entry is. Names and modes as in stat(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A regular file with this content.
    File(&'a [u8]),
    /// A directory.
    Dir,
    /// A symbolic link to this target.
    Symlink(&'a str),
    /// A character device, major and minor.
    CharDevice(u32, u32),
    /// A block device, major and minor.
    BlockDevice(u32, u32),
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Path without leading or trailing `/`.
    pub name: &'a str,
    /// Permission bits, `0o755`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What it is.
    pub kind: Kind<'a>,
}

/// Why an archive cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A name is empty, absolute, too long, the trailer's, or holds a zero byte or a `..`.
    Name(String),
    /// A file of 4 GiB or more.
    TooLarge(String),
    /// No entry starts at this offset.
    BadHeader(usize),
    /// The archive ends inside the entry that starts at this offset.
    Truncated(usize),
}

impl<'a> Kind<'a> {
    /// The type bits of the mode.
    #[must_use]
    pub fn type_bits(self) -> u32 {
        match self {
            Self::File(_) => 0o100_000,
            Self::Dir => 0o040_000,
            Self::Symlink(_) => 0o120_000,
            Self::CharDevice(..) => 0o020_000,
            Self::BlockDevice(..) => 0o060_000,
        }
    }

    fn content(self) -> &'a [u8] {
        match self {
            Self::File(content) => content,
            Self::Symlink(target) => target.as_bytes(),
            _ => &[],
        }
    }

    fn device(self) -> (u32, u32) {
        match self {
            Self::CharDevice(major, minor) | Self::BlockDevice(major, minor) => (major, minor),
            _ => (0, 0),
        }
    }
}

/// Writes one segment.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    entries: u32,
}

impl Writer {
    /// An empty segment.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an entry.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(), Error> {
        check_name(entry.name)?;
        let content = entry.kind.content();
        let length = u32::try_from(content.len()).map_err(|_| Error::TooLarge(entry.name.into()))?;
        // Inode numbers count from 1; one link each, so that the kernel looks for no hard links.
        self.entries += 1;
        let links = if entry.kind == Kind::Dir { 2 } else { 1 };
        let (major, minor) = entry.kind.device();
        let mode = entry.kind.type_bits() | entry.mode & 0o7777;
        let fields = [self.entries, mode, entry.uid, entry.gid, links, 0, length, 0, 0, major, minor];
        self.header(fields, entry.name);
        self.bytes.extend_from_slice(content);
        self.pad();
        Ok(())
    }

    /// Ends the segment. Its length is a multiple of [`ALIGNMENT`], so another can follow.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.header([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], TRAILER);
        self.bytes
    }

    /// Inode, mode, uid, gid, links, mtime, size, device, device of a special file; then name size and no checksum.
    fn header(&mut self, fields: [u32; 11], name: &str) {
        let name_size = name.len() + 1;
        let mut header = String::from("070701");
        fields.iter().for_each(|field| header.push_str(&format!("{field:08X}")));
        header.push_str(&format!("{name_size:08X}{:08X}{name}\0", 0));
        self.bytes.extend_from_slice(header.as_bytes());
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let bad = name.is_empty()
        || name.len() >= MAX_NAME_BYTES
        || name == TRAILER
        || name.contains('\0')
        || name.split('/').any(|part| matches!(part, "" | "." | ".."));
    if bad { Err(Error::Name(name.into())) } else { Ok(()) }
}

/// An entry as read. Names are as stored: an archive of another writer may hold `.` or a leading `/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadEntry<'a> {
    /// Name.
    pub name: &'a str,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time in seconds since 1970.
    pub mtime: u32,
    /// Major and minor of a device.
    pub device: (u32, u32),
    /// Content of a file, target of a symbolic link.
    pub content: &'a [u8],
}

/// Reads the entries of uncompressed segments, one after the other; stops at the end or at anything else.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader from the start of a segment.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How far the reader got: where it ended, what follows the last segment begins.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Zero bytes may fill the gap between segments.
    fn skip_zeros(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        self.at += rest.iter().take_while(|byte| **byte == 0).count();
    }

    fn entry(&mut self) -> Result<ReadEntry<'a>, Error> {
        let start = self.at;
        let header = self.bytes.get(start..).and_then(|rest| rest.get(..HEADER_BYTES));
        let fields = fields(header.ok_or(Error::Truncated(start))?).ok_or(Error::BadHeader(start))?;
        let [_, mode, uid, gid, _, mtime, size, _, _, major, minor, name_size, _] = fields;
        let name = self.take(start, start + HEADER_BYTES, name_size)?;
        let name = name.strip_suffix(b"\0").and_then(|name| core::str::from_utf8(name).ok());
        let name = name.ok_or(Error::BadHeader(start))?;
        let content = self.take(start, self.at.next_multiple_of(ALIGNMENT), size)?;
        self.at = self.at.next_multiple_of(ALIGNMENT).min(self.bytes.len());
        Ok(ReadEntry { name, mode, uid, gid, mtime, device: (major, minor), content })
    }

    fn take(&mut self, entry: usize, from: usize, length: u32) -> Result<&'a [u8], Error> {
        let end = usize::try_from(length).ok().and_then(|length| from.checked_add(length));
        let end = end.ok_or(Error::Truncated(entry))?;
        let taken = self.bytes.get(from..end).ok_or(Error::Truncated(entry))?;
        self.at = end;
        Ok(taken)
    }
}

/// The thirteen numbers of a header, eight hex digits each.
fn fields(header: &[u8]) -> Option<[u32; 13]> {
    let digits = header.strip_prefix(b"070701").or_else(|| header.strip_prefix(b"070702"))?;
    let mut fields = [0; 13];
    for (field, digits) in fields.iter_mut().zip(digits.chunks_exact(8)) {
        for digit in digits {
            *field = *field << 4 | char::from(*digit).to_digit(16)?;
        }
    }
    Some(fields)
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<ReadEntry<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.skip_zeros();
            if self.bytes.get(self.at..).is_none_or(<[u8]>::is_empty) {
                return None;
            }
            match self.entry() {
                Ok(entry) if entry.name == TRAILER => {}
                Ok(entry) => return Some(Ok(entry)),
                Err(error) => {
                    // What follows a bad entry has no place of its own.
                    self.bytes = &[];
                    return Some(Err(error));
                }
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "cpio: {name:?} cannot be the name of an entry"),
            Self::TooLarge(name) => write!(f, "cpio: {name} is larger than 4 GiB"),
            Self::BadHeader(at) => write!(f, "cpio: no entry at byte {at}"),
            Self::Truncated(at) => write!(f, "cpio: ends inside the entry at byte {at}"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
