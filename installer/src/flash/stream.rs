//! An image as a stream of pieces, read by one thread while another one writes or compares.
//!
//! | thread | in | out | ends |
//! |---|---|---|---|
//! | reader | the image, empty buffers | chunks | with the image, or when nobody takes chunks any more |
//! | caller | chunks | empty buffers | with the reader, or at its own first error |
//!
//! Owns: which bytes of a chunk are worth writing: runs of zeros are told as such, in packed images too.

use std::ops::Range;
use std::sync::mpsc::{channel, sync_channel};

use super::Error;
use super::image::{CHUNK_BYTES, Chunk, Image};
use crate::device::Buffer;

/// Chunks that are read ahead.
const DEPTH: usize = 4;

/// Zeros are told apart in blocks of this: large enough that a disk does not get small writes for it.
const RUN_BYTES: usize = 256 << 10;

static ZEROS: [u8; RUN_BYTES] = [0; RUN_BYTES];

/// A part of an image.
pub(super) enum Piece<'b> {
    /// Zeros.
    Zeros { offset: u64, length: u64 },
    /// These bytes; they lie at a multiple of 4096 in memory and in the image.
    Bytes { offset: u64, bytes: &'b [u8] },
}

impl Piece<'_> {
    /// Zeros in this range.
    pub(super) fn zeros(range: &Range<u64>) -> Self {
        Self::Zeros { offset: range.start, length: range.end.saturating_sub(range.start) }
    }

    /// Behind its last byte.
    pub(super) fn end(&self) -> u64 {
        match self {
            Self::Zeros { offset, length } => offset + length,
            Self::Bytes { offset, bytes } => offset + bytes.len() as u64,
        }
    }
}

/// Hands the image to `each`, from the front.
pub(super) fn stream(
    image: &Image,
    mut each: impl FnMut(Piece<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (chunks, taken) = sync_channel(DEPTH);
    let (give_back, free) = channel();
    for _ in 0..DEPTH {
        let _ = give_back.send(Buffer::new(CHUNK_BYTES));
    }
    // Moved into the scope, both ends are gone when it is left by an error: the reader then ends.
    std::thread::scope(move |scope| {
        scope.spawn(move || {
            let mut send = |chunk| chunks.send(Ok(chunk)).is_ok();
            if let Err(error) = image.read(&mut || free.recv().ok(), &mut send) {
                let _ = chunks.send(Err(error));
            }
        });
        for chunk in taken {
            match chunk? {
                Chunk::Zeros { offset, length } => each(Piece::Zeros { offset, length })?,
                Chunk::Bytes { offset, buffer, length } => {
                    let bytes = buffer.bytes().get(..length).unwrap_or(&[]);
                    for (range, is_zero) in runs(bytes) {
                        let offset = offset + range.start as u64;
                        match bytes.get(range) {
                            Some(bytes) if is_zero => {
                                each(Piece::Zeros { offset, length: bytes.len() as u64 })?;
                            }
                            Some(bytes) => each(Piece::Bytes { offset, bytes })?,
                            None => {}
                        }
                    }
                    let _ = give_back.send(buffer);
                }
            }
        }
        Ok(())
    })
}

/// Ranges of zeros and of other bytes, in turn.
fn runs(bytes: &[u8]) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    for (index, block) in bytes.chunks(RUN_BYTES).enumerate() {
        let (start, is_zero) = (index * RUN_BYTES, ZEROS.starts_with(block));
        match runs.last_mut() {
            Some((range, same)) if *same == is_zero => range.end += block.len(),
            _ => runs.push((start..start + block.len(), is_zero)),
        }
    }
    runs
}

/// The part of a piece that lies in a range.
pub(super) fn clip<'b>(piece: Piece<'b>, range: &Range<u64>) -> Option<Piece<'b>> {
    let within = |offset: u64, length: u64| {
        let (start, end) = (offset.max(range.start), (offset + length).min(range.end));
        (start < end).then(|| (start, end - start))
    };
    match piece {
        Piece::Zeros { offset, length } => {
            within(offset, length).map(|(offset, length)| Piece::Zeros { offset, length })
        }
        Piece::Bytes { offset, bytes } => {
            let (start, length) = within(offset, bytes.len() as u64)?;
            let skip = usize::try_from(start - offset).ok()?;
            let bytes = bytes.get(skip..skip + usize::try_from(length).ok()?)?;
            Some(Piece::Bytes { offset: start, bytes })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_zeros_are_told_apart() {
        let mut bytes = vec![0; 5 * RUN_BYTES + 100];
        bytes[RUN_BYTES + 7] = 1;
        bytes[2 * RUN_BYTES] = 1;
        let run = |from: usize, to: usize| from * RUN_BYTES..to * RUN_BYTES;
        let mut wanted = vec![(run(0, 1), true), (run(1, 3), false), (run(3, 5), true)];
        wanted[2].0.end += 100;
        assert_eq!(runs(&bytes), wanted);
        assert_eq!(runs(&[]), []);
    }
}
