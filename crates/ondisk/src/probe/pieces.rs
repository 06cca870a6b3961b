//! The parts of a device that hold signatures, read once.
//!
//! Owns: which ranges those are, the same for a file and a block device, whatever its sectors; access to them.
//! Does not: know a format.
//! Fails by: `None` for a place that was not read or lies behind the end.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::field::{be16, be32, be64, bytes, le16, le32, le64};
use crate::{ReadAt, ReadError};

/// From the start: past the uberblocks of ZFS's second label and the second LUKS2 header at 512 KiB.
const START_BYTES: u64 = (512 << 10) + STEP_BYTES;

/// From the end: the uberblocks of ZFS's third label begin 640 KiB before a last whole 256 KiB.
const END_BYTES: u64 = 1 << 20;

/// Ranges begin and end at multiples of this, as a device with sectors of 4096 bytes wants to be read.
const STEP_BYTES: u64 = 4096;

/// Second LUKS2 headers, and VMFS at the first two of them.
const FAR_FROM_START: [u64; 3] = [1 << 20, 2 << 20, 4 << 20];

/// Promise's superblock may lie this many sectors of 512 bytes before the end, further than [`END_BYTES`].
const FAR_FROM_END: u64 = 3087 * 512;

/// What is read of a device of this length: ascending, without overlap, at most 1.6 MiB.
#[must_use]
pub fn ranges(device_bytes: u64) -> Vec<Range<u64>> {
    let far = FAR_FROM_START.map(|at| at..at + STEP_BYTES);
    let promise = device_bytes.checked_sub(FAR_FROM_END).map(|at| at..at + 512);
    let mut wanted = vec![0..START_BYTES, device_bytes.saturating_sub(END_BYTES)..device_bytes];
    wanted.extend(far);
    wanted.extend(promise);
    merged(wanted, device_bytes)
}

/// Ranges in order, in whole steps, within a device of this length; those that touch are one.
pub(super) fn merged(wanted: Vec<Range<u64>>, device_bytes: u64) -> Vec<Range<u64>> {
    let whole = |range: Range<u64>| {
        let start = range.start / STEP_BYTES * STEP_BYTES;
        start..range.end.div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES).min(device_bytes)
    };
    let mut wanted: Vec<Range<u64>> =
        wanted.into_iter().map(whole).filter(|range| !range.is_empty()).collect();
    wanted.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in wanted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// What was read of a device.
#[derive(Debug, Clone)]
pub(super) struct Pieces {
    /// Length of the device.
    pub(super) bytes: u64,
    read: Vec<(u64, Vec<u8>)>,
}

impl Pieces {
    pub(super) fn read(device: &mut dyn ReadAt, bytes: u64) -> Result<Self, ReadError> {
        let mut read = Vec::new();
        for range in ranges(bytes) {
            let length = usize::try_from(range.end - range.start).unwrap_or(0);
            let mut piece = vec![0; length];
            device.read_at(range.start, &mut piece)?;
            read.push((range.start, piece));
        }
        Ok(Self { bytes, read })
    }

    /// `width` bytes at `at`, if they lie in one piece.
    pub(super) fn bytes(&self, at: u64, width: usize) -> Option<&[u8]> {
        let (start, piece) = self.read.iter().rev().find(|(start, _)| *start <= at)?;
        bytes(piece, usize::try_from(at - start).ok()?, width)
    }

    /// The first bytes, as many as there are of `most`.
    pub(super) fn start(&self, most: usize) -> &[u8] {
        let first = self.read.first().map_or(&[][..], |(_, piece)| piece.as_slice());
        first.get(..most).unwrap_or(first)
    }

    pub(super) fn has(&self, at: u64, wanted: &[u8]) -> bool {
        self.bytes(at, wanted.len()) == Some(wanted)
    }

    pub(super) fn u8(&self, at: u64) -> Option<u8> {
        self.bytes(at, 1)?.first().copied()
    }

    pub(super) fn le16(&self, at: u64) -> Option<u16> {
        le16(self.bytes(at, 2)?, 0)
    }

    pub(super) fn le32(&self, at: u64) -> Option<u32> {
        le32(self.bytes(at, 4)?, 0)
    }

    pub(super) fn le64(&self, at: u64) -> Option<u64> {
        le64(self.bytes(at, 8)?, 0)
    }

    pub(super) fn be16(&self, at: u64) -> Option<u16> {
        be16(self.bytes(at, 2)?, 0)
    }

    pub(super) fn be32(&self, at: u64) -> Option<u32> {
        be32(self.bytes(at, 4)?, 0)
    }

    pub(super) fn be64(&self, at: u64) -> Option<u64> {
        be64(self.bytes(at, 8)?, 0)
    }

    /// Whether only zeros were read; if not, where the first other byte lies.
    pub(super) fn first_byte(&self) -> Option<u64> {
        let first = |(start, piece): &(u64, Vec<u8>)| {
            let at = piece.iter().position(|byte| *byte != 0)?;
            Some(start + at as u64)
        };
        self.read.iter().find_map(first)
    }
}
