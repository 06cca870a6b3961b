//! A disk in memory that takes room only for what was written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use ondisk::{ReadAt, ReadError};

use super::{BlockDevice, DeviceError};

/// What is kept or shared as one piece.
const BLOCK: usize = 4096;

/// A block that was never written.
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// A disk in memory. Clones share what neither of them changed.
#[derive(Debug, Clone)]
pub struct Memory {
    blocks: BTreeMap<u64, Arc<[u8; BLOCK]>>,
    bytes: u64,
    sector_bytes: u32,
}

impl Memory {
    /// A disk of zeros.
    #[must_use]
    pub fn new(bytes: u64, sector_bytes: u32) -> Self {
        Self { blocks: BTreeMap::new(), bytes, sector_bytes }
    }

    /// The same content on a longer disk.
    #[must_use]
    pub fn enlarged(&self, bytes: u64) -> Self {
        Self { blocks: self.blocks.clone(), bytes: bytes.max(self.bytes), sector_bytes: self.sector_bytes }
    }

    /// Writes it as a sparse image.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.bytes)?;
        let blank = Self::new(self.bytes, self.sector_bytes);
        self.blocks_unlike(&blank).try_for_each(|(at, block)| file.write_all_at(block, at))
    }

    /// Blocks of 4 KiB that `offset..offset + length` touches, each with the part that is meant: number, start within
    /// the block, start within the range, length.
    fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
        let block = BLOCK as u64;
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset + done as u64;
            let within = usize::try_from(at % block).unwrap_or(0);
            let count = (BLOCK - within).min(length - done);
            let piece = (count > 0).then_some((at / block, within, done, count));
            done += count;
            piece
        })
    }

    /// The blocks of 4 KiB, as offset and content, that are not as in `other`; a disk of zeros gives all that hold something.
    pub fn blocks_unlike<'d>(&'d self, other: &'d Self) -> impl Iterator<Item = (u64, &'d [u8; BLOCK])> {
        let mine = self.blocks.iter().filter(|(number, block)| match other.blocks.get(number) {
            Some(before) => !Arc::ptr_eq(before, block) && before != *block,
            None => ***block != ZEROS,
        });
        let gone = other
            .blocks
            .iter()
            .filter(|(number, block)| !self.blocks.contains_key(number) && ***block != ZEROS);
        mine.map(|(number, block)| (number * BLOCK as u64, &**block))
            .chain(gone.map(|(number, _)| (number * BLOCK as u64, &ZEROS)))
    }

    fn check(&self, operation: &'static str, offset: u64, length: u64) -> Result<(), DeviceError> {
        match offset.checked_add(length).filter(|end| *end <= self.bytes) {
            Some(_) => Ok(()),
            None => Err(DeviceError {
                operation,
                device: "memory".into(),
                offset,
                length,
                source: io::Error::from(io::ErrorKind::UnexpectedEof),
            }),
        }
    }
}

impl ReadAt for Memory {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        self.check("read", offset, length as u64).map_err(|_| ReadError { offset, length, errno: 0 })?;
        for (number, within, start, count) in Self::pieces(offset, length) {
            let into = &mut buffer[start..start + count];
            match self.blocks.get(&number) {
                Some(block) => into.copy_from_slice(&block[within..within + count]),
                None => into.fill(0),
            }
        }
        Ok(())
    }
}

impl BlockDevice for Memory {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check("write", offset, bytes.len() as u64)?;
        for (number, within, start, count) in Self::pieces(offset, bytes.len()) {
            let block = self.blocks.entry(number).or_insert_with(|| Arc::new([0; BLOCK]));
            Arc::make_mut(block)[within..within + count].copy_from_slice(&bytes[start..start + count]);
        }
        Ok(())
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.check("zero", offset, length)?;
        let block = BLOCK as u64;
        let whole = offset.div_ceil(block)..(offset + length) / block;
        let inner: Vec<u64> =
            self.blocks.range(whole.start..whole.end.max(whole.start)).map(|(n, _)| *n).collect();
        for number in inner {
            self.blocks.remove(&number);
        }
        let head = (whole.start * block).min(offset + length) - offset;
        let tail = (whole.end * block).max(offset + head);
        let zeros = [0; BLOCK];
        self.write_at(offset, &zeros[..usize::try_from(head).unwrap_or(0)])?;
        self.write_at(tail, &zeros[..usize::try_from(offset + length - tail).unwrap_or(0)])
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }
}
