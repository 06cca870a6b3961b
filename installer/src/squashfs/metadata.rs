//! Metadata of a squashfs image that is read: tables of blocks, each packed by itself.
//!
//! Owns: positions in a table, what a block unpacks to. Does not: know what lies in a table; write.
//! Fails by: [`Fault`]; nothing is read outside of the table, and nothing is taken on trust.
//! Source: kernel Documentation/filesystems/squashfs.rst, "Metadata blocks"; little-endian throughout.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

/// Most bytes that a block unpacks to (squashfs_fs.h, SQUASHFS_METADATA_SIZE).
pub(super) const BLOCK_BYTES: usize = 8192;
/// Set in a block's header: it is not packed.
const PLAIN: u16 = 1 << 15;

/// Why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The file ends, or the disk fails.
    #[error("read {length} bytes at {offset}: {source}")]
    Read {
        /// Bytes from the image's start.
        offset: u64,
        /// How many were asked for.
        length: usize,
        /// Why.
        source: io::Error,
    },
    /// The bytes contradict the format.
    #[error("{part} at {offset}: {reason}")]
    Format {
        /// Which part of the image.
        part: &'static str,
        /// Bytes from the image's start, where the part or its block begins.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
}

/// Where blocks of one kind lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Table {
    pub(super) fn fault(self, offset: u64, reason: &'static str) -> Fault {
        Fault::Format { part: self.name, offset, reason }
    }
}

struct Block {
    bytes: Vec<u8>,
    /// Where the block behind it begins.
    next: u64,
}

/// The file of an image.
pub(super) struct Disk<'f> {
    file: &'f File,
    unpacker: RefCell<zstd::bulk::Decompressor<'static>>,
    blocks: RefCell<BTreeMap<u64, Rc<Block>>>,
}

impl<'f> Disk<'f> {
    pub(super) fn new(file: &'f File) -> Result<Self, Fault> {
        let unpacker = zstd::bulk::Decompressor::new();
        let unpacker = unpacker.map_err(|source| Fault::Read { offset: 0, length: 0, source })?;
        Ok(Self { file, unpacker: RefCell::new(unpacker), blocks: RefCell::default() })
    }

    pub(super) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; length];
        let read = self.file.read_exact_at(&mut bytes, offset);
        read.map_err(|source| Fault::Read { offset, length, source })?;
        Ok(bytes)
    }

    /// What zstd packed, if it is at most so long.
    pub(super) fn unpacked(&self, packed: &[u8], most: usize) -> Option<Vec<u8>> {
        self.unpacker.borrow_mut().decompress(packed, most).ok()
    }

    /// A position in a table: in the block that begins there, so many bytes into what it unpacks to.
    pub(super) fn cursor(&self, table: Table, block: u64, offset: usize) -> Result<Cursor<'_, 'f>, Fault> {
        let first = self.block(table, block)?;
        if offset > first.bytes.len() {
            return Err(table.fault(block, "a position lies behind the end of its block"));
        }
        Ok(Cursor { disk: self, table, block: first, at: offset })
    }

    fn block(&self, table: Table, start: u64) -> Result<Rc<Block>, Fault> {
        if let Some(block) = self.blocks.borrow().get(&start) {
            return Ok(block.clone());
        }
        let outside = || table.fault(start, "a block lies outside of its table");
        let content = start.checked_add(2).filter(|_| start >= table.start).ok_or_else(outside)?;
        if content > table.end {
            return Err(outside());
        }
        let header = self.read(start, 2)?;
        let header = u16::from_le_bytes(array(&header).ok_or_else(outside)?);
        let length = usize::from(header & !PLAIN);
        let next = content + length as u64;
        if next > table.end {
            return Err(outside());
        }
        let bytes = self.read(content, length)?;
        let bytes = if header & PLAIN != 0 { Some(bytes) } else { self.unpacked(&bytes, BLOCK_BYTES) };
        let bytes = bytes.filter(|bytes| (1..=BLOCK_BYTES).contains(&bytes.len()));
        let bytes = bytes.ok_or_else(|| table.fault(start, "a block does not unpack to 1 to 8192 bytes"))?;
        let block = Rc::new(Block { bytes, next });
        self.blocks.borrow_mut().insert(start, block.clone());
        Ok(block)
    }
}

/// A position from which fields are read, over the borders of blocks.
pub(super) struct Cursor<'d, 'f> {
    disk: &'d Disk<'f>,
    table: Table,
    block: Rc<Block>,
    at: usize,
}

impl Cursor<'_, '_> {
    pub(super) fn bytes(&mut self, count: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            let left = self.block.bytes.get(self.at..).unwrap_or_default();
            if left.is_empty() {
                self.block = self.disk.block(self.table, self.block.next)?;
                self.at = 0;
                continue;
            }
            let taken = left.len().min(count - bytes.len());
            bytes.extend_from_slice(left.get(..taken).unwrap_or_default());
            self.at += taken;
        }
        Ok(bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let fault = self.table.fault(self.block.next, "it ends within a field");
        array(&self.bytes(N)?).ok_or(fault)
    }
}

/// The first bytes of a slice.
pub(super) fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}
