//! The dm-verity hash tree: salted SHA-256, hash format 1, 4096-byte blocks, no superblock.
//!
//! Owns: building a tree while data streams by, checking one block against a tree, the device-mapper table line.
//! Does not: hold the data; the kernel checks blocks on a node, [`Tree::verify_block`] is for builders and tests.
//! Order: the tree holds the topmost level first and the level of the data's own hashes last.
//! Source: kernel Documentation/admin-guide/device-mapper/verity.rst; cryptsetup's verity_hash.c for the layout.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use crate::Digest;
use crate::digest::DIGEST_BYTES;

/// Bytes of a data block and of a hash block.
pub const BLOCK_BYTES: usize = 4096;

/// Digests in one hash block.
pub const FANOUT: usize = BLOCK_BYTES / DIGEST_BYTES;

/// The hash tree of some data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// How many blocks of data it covers.
    pub data_blocks: u64,
    /// Hash of the topmost block.
    pub root: Digest,
    /// The tree as it lies behind the data; empty for a single block of data, whose hash is the root.
    pub bytes: Vec<u8>,
}

/// Why data has no tree or does not match one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// No data was pushed.
    NoData,
    /// The data does not end with a full block.
    PartialBlock {
        /// Bytes in the last block.
        bytes: usize,
    },
    /// The tree is shorter than the data asks for.
    TreeTooShort,
    /// The block's number is beyond the data.
    NoSuchBlock(u64),
    /// The hash of a block is not the one its parent holds. Level 0 is the data.
    Mismatch {
        /// Level of the block that is wrong.
        level: usize,
        /// Its number within the level.
        block: u64,
    },
}

/// Bytes of the tree over `data_blocks` blocks.
#[must_use]
pub fn tree_bytes(data_blocks: u64) -> u64 {
    level_blocks(data_blocks).iter().sum::<u64>().saturating_mul(BLOCK_BYTES as u64)
}

/// Hash blocks of each level, the one next to the data first.
fn level_blocks(data_blocks: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    let mut blocks = data_blocks;
    while blocks > 1 {
        blocks = blocks.div_ceil(FANOUT as u64);
        levels.push(blocks);
    }
    levels
}

fn hash_block(salt: &Digest, block: &[u8]) -> Digest {
    Digest::sha256(&[salt.as_bytes(), block])
}

/// Builds a [`Tree`] from data that is pushed piece by piece.
#[derive(Debug)]
pub struct TreeBuilder {
    salt: Digest,
    partial: Vec<u8>,
    /// Digests of the data blocks, end to end.
    digests: Vec<u8>,
}

impl TreeBuilder {
    /// A builder with nothing in it.
    #[must_use]
    pub fn new(salt: Digest) -> Self {
        Self { salt, partial: Vec::new(), digests: Vec::new() }
    }

    /// Adds data of any length.
    pub fn push(&mut self, mut data: &[u8]) {
        if !self.partial.is_empty() {
            let (head, rest) = data.split_at(data.len().min(BLOCK_BYTES - self.partial.len()));
            self.partial.extend_from_slice(head);
            data = rest;
            if self.partial.len() == BLOCK_BYTES {
                let block = core::mem::take(&mut self.partial);
                self.push_block(&block);
            }
        }
        let blocks = data.chunks_exact(BLOCK_BYTES);
        self.partial.extend_from_slice(blocks.remainder());
        blocks.for_each(|block| self.push_block(block));
    }

    fn push_block(&mut self, block: &[u8]) {
        self.digests.extend_from_slice(hash_block(&self.salt, block).as_bytes());
    }

    /// The tree over all data pushed so far, which must end with a full block.
    pub fn finish(self) -> Result<Tree, Error> {
        if !self.partial.is_empty() {
            return Err(Error::PartialBlock { bytes: self.partial.len() });
        }
        let data_blocks = (self.digests.len() / DIGEST_BYTES) as u64;
        let mut levels = Vec::new();
        let mut digests = self.digests;
        while digests.len() > DIGEST_BYTES {
            digests.resize(digests.len().next_multiple_of(BLOCK_BYTES), 0);
            let above = digests.chunks_exact(BLOCK_BYTES).flat_map(|b| hash_block(&self.salt, b).0).collect();
            levels.push(core::mem::replace(&mut digests, above));
        }
        let root = Digest(digests.try_into().map_err(|_| Error::NoData)?);
        let bytes = levels.into_iter().rev().flatten().collect();
        Ok(Tree { data_blocks, root, bytes })
    }
}

impl Tree {
    /// Checks data block `index` and every hash block on its way up to the root.
    pub fn verify_block(&self, salt: &Digest, index: u64, block: &[u8]) -> Result<(), Error> {
        if index >= self.data_blocks {
            return Err(Error::NoSuchBlock(index));
        }
        let levels = level_blocks(self.data_blocks);
        let mut digest = hash_block(salt, block);
        let mut level_end = tree_bytes(self.data_blocks);
        let mut position = index;
        for (level, blocks) in levels.iter().enumerate() {
            let start = level_end.saturating_sub(blocks.saturating_mul(BLOCK_BYTES as u64));
            let parent = position / FANOUT as u64;
            let hashes = block_at(&self.bytes, start, parent).ok_or(Error::TreeTooShort)?;
            let slot = usize::try_from(position % FANOUT as u64).unwrap_or(0) * DIGEST_BYTES;
            if crate::field::bytes(hashes, slot, DIGEST_BYTES) != Some(digest.as_bytes()) {
                return Err(Error::Mismatch { level, block: position });
            }
            digest = hash_block(salt, hashes);
            (position, level_end) = (parent, start);
        }
        let mismatch = Error::Mismatch { level: levels.len(), block: position };
        if digest == self.root { Ok(()) } else { Err(mismatch) }
    }
}

fn block_at(tree: &[u8], level_start: u64, index: u64) -> Option<&[u8]> {
    let offset = index.checked_mul(BLOCK_BYTES as u64)?.checked_add(level_start)?;
    crate::field::bytes(tree, usize::try_from(offset).ok()?, BLOCK_BYTES)
}

/// The device-mapper table of a verity device.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// Device with the data, `major:minor` or a path.
    pub data_device: &'a str,
    /// Device with the tree; the same one when the tree lies behind the data.
    pub hash_device: &'a str,
    /// Blocks of data.
    pub data_blocks: u64,
    /// Where the tree starts on its device, in blocks.
    pub hash_start_block: u64,
    /// The expected root hash.
    pub root: &'a Digest,
    /// The salt.
    pub salt: &'a Digest,
    /// Optional parameters, for example `restart_on_corruption`; none means a corrupt block reads as EIO.
    pub options: &'a [&'a str],
}

impl Table<'_> {
    /// Length of the device that the table makes, in 512-byte sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.data_blocks.saturating_mul((BLOCK_BYTES / 512) as u64)
    }

    /// The parameters of target `verity`.
    #[must_use]
    pub fn params(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "1 {} {} {BLOCK_BYTES} {BLOCK_BYTES} {} {} sha256 {} {}",
            self.data_device, self.hash_device, self.data_blocks, self.hash_start_block, self.root, self.salt
        );
        if !self.options.is_empty() {
            let _ = write!(text, " {}", self.options.len());
            self.options.iter().for_each(|option| {
                let _ = write!(text, " {option}");
            });
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoData => f.write_str("hash tree: no data"),
            Self::PartialBlock { bytes } => write!(f, "hash tree: last block has {bytes} bytes"),
            Self::TreeTooShort => f.write_str("hash tree: shorter than its data asks for"),
            Self::NoSuchBlock(index) => write!(f, "hash tree: no data block {index}"),
            Self::Mismatch { level: 0, block } => write!(f, "hash tree: data block {block} is corrupt"),
            Self::Mismatch { level, block } => {
                write!(f, "hash tree: block {block} of level {level} is corrupt")
            }
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
