//! A file that zstd packed: whether it is whole, how much it unpacks to, the way through it.
//!
//! Owns: the frames and the lengths of their blocks, which are read without unpacking anything.
//! Does not: check what is in a block: its frame's checksum does, when it is unpacked.
//! Fails by: [`Fault`].
//! Source: RFC 8878 §3.1.1 (frame header: magic 4, descriptor 1, window 0 or 1, dictionary 0 to 4, content size 0 to 8;
//! block header: 3 bytes, last 1 bit, type 2 bits, size 21 bits), §3.1.2 (skippable frames); numbers are little-endian.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;

/// What begins a zstd frame.
pub(super) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What begins a frame that holds nothing, but for its lowest four bits.
const SKIPPABLE: u64 = 0x184d_2a50;

/// Bytes of a frame header, at most.
const HEADER_BYTES: usize = 18;

/// A block of one byte that is repeated.
const REPEATED: u64 = 1;

/// Why it cannot be unpacked.
#[derive(Debug)]
pub(super) enum Fault {
    /// It ends within a frame.
    Cut,
    /// It was read and makes no sense.
    Damaged(io::Error),
    /// It could not be read.
    Read(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        // What the kernel says has a number; what zstd says has none.
        match (error.raw_os_error(), error.kind()) {
            (Some(_), _) => Self::Read(error),
            (None, io::ErrorKind::UnexpectedEof) => Self::Cut,
            (None, _) => Self::Damaged(error),
        }
    }
}

/// What it unpacks to, from its first byte on.
pub(super) fn decoder(mut file: &File) -> io::Result<zstd::Decoder<'static, io::BufReader<File>>> {
    file.seek(SeekFrom::Start(0))?;
    zstd::Decoder::new(file.try_clone()?)
}

/// How much it unpacks to: its frames say it, or it is unpacked once to be counted. One that was cut off is found out
/// here, before anything is made of it.
pub(super) fn unpacked_bytes(file: &File) -> Result<u64, Fault> {
    let end = file.metadata()?.len();
    let (mut at, mut sum) = (0, Some(0_u64));
    while at < end {
        let frame = frame(file, at)?;
        sum = sum.zip(frame.content_bytes).and_then(|(sum, bytes)| sum.checked_add(bytes));
        at = frame.end;
        if at > end {
            return Err(Fault::Cut);
        }
    }
    match sum {
        Some(sum) => Ok(sum),
        None => Ok(io::copy(&mut decoder(file)?, &mut io::sink())?),
    }
}

struct Frame {
    /// Behind its last byte, which the file need not have.
    end: u64,
    /// Length of what it holds, if it says so.
    content_bytes: Option<u64>,
}

/// The frame that starts here.
fn frame(file: &File, start: u64) -> Result<Frame, Fault> {
    let mut header = [0; HEADER_BYTES];
    let count = file.read_at(&mut header, start)?;
    let header = header.get(..count).unwrap_or(&[]);
    let magic = number(header, 0, 4)?;
    if magic & !0xf == SKIPPABLE {
        return Ok(Frame { end: start + 8 + number(header, 4, 4)?, content_bytes: Some(0) });
    }
    if magic != number(&MAGIC, 0, 4)? {
        let reason = "something that is not packed follows what is";
        return Err(Fault::Damaged(io::Error::new(io::ErrorKind::InvalidData, reason)));
    }
    let descriptor = number(header, 4, 1)?;
    let window = usize::from(descriptor & 0x20 == 0);
    let dictionary = match descriptor & 3 {
        3 => 4,
        0 => 0,
        1 => 1,
        _ => 2,
    };
    let (content, added) = match descriptor >> 6 {
        0 => (1 - window, 0),
        1 => (2, 256),
        2 => (4, 0),
        _ => (8, 0),
    };
    let at = 5 + window + dictionary;
    let content_bytes = match content {
        0 => None,
        width => number(header, at, width)?.checked_add(added),
    };
    let has_checksum = descriptor & 4 != 0;
    let end = behind_blocks(file, start + (at + content) as u64)?;
    Ok(Frame { end: end + if has_checksum { 4 } else { 0 }, content_bytes })
}

/// Behind the last of the blocks that start here.
fn behind_blocks(file: &File, start: u64) -> Result<u64, Fault> {
    let mut at = start;
    loop {
        let mut header = [0; 3];
        file.read_exact_at(&mut header, at)?;
        let header = number(&header, 0, 3)?;
        let (is_last, kind, size) = (header & 1 == 1, header >> 1 & 3, header >> 3);
        at += 3 + if kind == REPEATED { 1 } else { size };
        if is_last {
            return Ok(at);
        }
    }
}

/// A number of up to eight bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> Result<u64, Fault> {
    let stored = bytes.get(at..at + width).ok_or(Fault::Cut)?;
    Ok(stored.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// Noise and a run of zeros: packed blocks, raw ones and repeated bytes.
    fn content(length: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        });
        let mut bytes: Vec<u8> = noise.take(length / 3).collect();
        bytes.resize(length / 3 * 2, 0);
        bytes.extend((bytes.len()..length).map(|at| b"abcdefg"[at % 7]));
        bytes
    }

    fn packed(length: usize, says_length: bool, has_checksum: bool) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(has_checksum).unwrap();
        if says_length {
            encoder.set_pledged_src_size(Some(length as u64)).unwrap();
        }
        encoder.write_all(&content(length)).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_length_is_known_with_and_without_being_said() {
        for length in [0, 1, 255, 256, 70_000, 1_000_000] {
            for (says, sum) in [(true, true), (true, false), (false, true), (false, false)] {
                let one = packed(length, says, sum);
                assert_eq!(unpacked_bytes(&file(&one)).unwrap(), length as u64, "{length} {says} {sum}");
                let nothing = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
                let several = [&one[..], &nothing, &packed(1000, says, sum)].concat();
                assert_eq!(unpacked_bytes(&file(&several)).unwrap(), length as u64 + 1000);
            }
        }
    }

    #[test]
    fn one_that_was_cut_off_anywhere_is_found_out() {
        let whole = packed(300_000, true, true);
        let ends = (1..40).chain((40..whole.len() - 40).step_by(997)).chain(whole.len() - 40..whole.len());
        for end in ends {
            let found = unpacked_bytes(&file(&whole[..end]));
            assert!(matches!(found, Err(Fault::Cut)), "cut to {end} of {}: {found:?}", whole.len());
        }
    }

    #[test]
    fn what_follows_unpacked_is_damage() {
        let found = unpacked_bytes(&file(&[packed(1000, true, true), vec![1; 100]].concat()));
        assert!(matches!(found, Err(Fault::Damaged(_))), "{found:?}");
    }
}
