//! A squashfs image of a tree.
//!
//! Owns: the choice of format options, and reading the host's files one at a time while they are compressed; what was written
//! is read back by code of another author ([`check`]) before it counts.
//! Does not: write extended attributes: its writer knows none.
//! Source: the `backhand` crate; kernel Documentation/filesystems/squashfs.rst.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use backhand::compression::{CompressionOptions, Compressor, Zstd};
use backhand::{BackhandError, FilesystemCompressor, FilesystemWriter, NodeHeader};

use crate::tree::{Entry, Node, Tree};
use crate::{Error, Progress};

mod compare;
mod metadata;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use compare::check;

/// Writes the image of a tree from the start of `file`; it ends at a multiple of 4096 bytes.
pub(crate) fn write(
    tree: &Tree,
    zstd_level: u32,
    block_bytes: u32,
    file: &mut File,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let report = RefCell::new(Report { done: 0, total: tree.content_bytes(), progress });
    let whole = |error| squash_error("", &error);
    let mut writer = FilesystemWriter::default();
    writer.set_block_size(block_bytes);
    writer.set_time(0);
    writer.set_root_mode(compare::ROOT_MODE);
    writer.set_compressor(compressor(zstd_level).map_err(whole)?);
    for (path, entry) in tree.iter() {
        push(&mut writer, path, entry, &report).map_err(|error| squash_error(path, &error))?;
    }
    writer.write(file).map_err(whole)?;
    Ok(())
}

fn squash_error(path: &str, error: &BackhandError) -> Error {
    Error::Squash { path: path.into(), reason: error.to_string() }
}

fn compressor(level: u32) -> Result<FilesystemCompressor, BackhandError> {
    let options = CompressionOptions::Zstd(Zstd { compression_level: level });
    FilesystemCompressor::new(Compressor::Zstd, Some(options))
}

fn push<'c>(
    writer: &mut FilesystemWriter<'_, '_, 'c>,
    path: &str,
    entry: &Entry,
    report: &'c RefCell<Report<'_>>,
) -> Result<(), BackhandError> {
    let mode = u16::try_from(entry.mode & 0o7777).unwrap_or(0);
    let header = NodeHeader::new(mode, entry.uid, entry.gid, 0);
    match &entry.node {
        Node::Dir => writer.push_dir(path, header),
        Node::Bytes(bytes) => {
            writer.push_file(Counted::new(io::Cursor::new(bytes.clone()), report), path, header)
        }
        Node::File(host) => writer.push_file(Counted::new(Lazy::Closed(host.clone()), report), path, header),
        Node::Symlink(target) => writer.push_symlink(target, path, header),
        Node::CharDevice(major, minor) => writer.push_char_device(device(*major, *minor), path, header),
        Node::BlockDevice(major, minor) => writer.push_block_device(device(*major, *minor), path, header),
    }
}

/// The kernel's `new_encode_dev`: minor bits 0-7, major, minor bits 8 and up.
fn device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

struct Report<'p> {
    done: u64,
    total: u64,
    progress: &'p mut dyn FnMut(Progress),
}

/// Reports what is read through it.
struct Counted<'c, 'p, R> {
    inner: R,
    report: &'c RefCell<Report<'p>>,
}

impl<'c, 'p, R> Counted<'c, 'p, R> {
    fn new(inner: R, report: &'c RefCell<Report<'p>>) -> Self {
        Self { inner, report }
    }
}

impl<R: Read> Read for Counted<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let mut report = self.report.borrow_mut();
        report.done += count as u64;
        let progress = Progress { step: "squash", done_bytes: report.done, total_bytes: report.total };
        (report.progress)(progress);
        Ok(count)
    }
}

/// A file that is open from its first read to its end: an image has more files than a process may open.
enum Lazy {
    Closed(PathBuf),
    Open(PathBuf, File),
    Done,
}

impl Read for Lazy {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let named = |path: &PathBuf, error: io::Error| {
            io::Error::new(error.kind(), format!("read {}: {error}", path.display()))
        };
        if let Self::Closed(path) = self {
            let file = File::open(&*path).map_err(|error| named(path, error))?;
            *self = Self::Open(std::mem::take(path), file);
        }
        let Self::Open(path, file) = self else { return Ok(0) };
        let count = file.read(buffer).map_err(|error| named(path, error))?;
        if count == 0 && !buffer.is_empty() {
            *self = Self::Done;
        }
        Ok(count)
    }
}
