//! Pieces in memory and of files, read as one file with zeros between them.
//!
//! Owns: which piece a byte is of. Does not: hold what a file has; each read asks the file.
//! Fails by: an error where a file is shorter than it was.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Where a piece's bytes are.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// These, from this one on.
    Memory(Arc<[u8]>, usize),
    /// A file from its beginning.
    File(Arc<File>),
}

#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Where it begins in the whole.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) source: Source,
}

/// The whole; pieces are in order and do not overlap.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) length: u64,
    pub(crate) at: u64,
}

impl Read for Joined {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let at = self.at;
        let piece = self.pieces.iter().find(|piece| at < piece.start.saturating_add(piece.bytes));
        let end = match piece {
            Some(piece) if piece.start <= at => piece.start + piece.bytes,
            Some(next) => next.start,
            None => self.length,
        };
        let room = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = buffer.get_mut(..room).unwrap_or_default();
        if buffer.is_empty() {
            return Ok(0);
        }
        let count = match piece.filter(|piece| piece.start <= at) {
            Some(piece) => piece.source.read_at(buffer, at - piece.start)?,
            None => {
                buffer.fill(0);
                buffer.len()
            }
        };
        self.at += count as u64;
        Ok(count)
    }
}

impl Source {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let short = || io::Error::new(io::ErrorKind::UnexpectedEof, "a file of the bundle became shorter");
        match self {
            Self::Memory(bytes, from) => {
                let from = usize::try_from(at).ok().and_then(|at| from.checked_add(at)).ok_or_else(short)?;
                let rest = bytes.get(from..).unwrap_or_default();
                rest.take(buffer.len() as u64).read_exact(buffer).map_err(|_| short())?;
                Ok(buffer.len())
            }
            Self::File(file) => match file.read_at(buffer, at)? {
                0 => Err(short()),
                count => Ok(count),
            },
        }
    }
}

impl Seek for Joined {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::End(by) => (self.length, by),
            SeekFrom::Current(by) => (self.at, by),
        };
        self.at = from.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_from_anywhere_with_zeros_between() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), b"file").unwrap();
        let file = Arc::new(File::open(directory.path().join("file")).unwrap());
        let piece = |start, bytes, source| Piece { start, bytes, source };
        let memory = Source::Memory(Arc::from(&b"--memory"[..]), 2);
        let pieces = vec![piece(0, 6, memory), piece(8, 4, Source::File(file.clone()))];
        let mut whole = Joined { pieces, length: 14, at: 0 };
        let expected = b"memory\0\0file\0\0";
        for from in 0..=14 {
            whole.seek(SeekFrom::Start(from)).unwrap();
            let mut rest = Vec::new();
            whole.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, expected[usize::try_from(from).unwrap()..], "{from}");
        }
        std::fs::write(directory.path().join("file"), b"f").unwrap();
        whole.seek(SeekFrom::Start(0)).unwrap();
        let error = whole.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("became shorter"), "{error}");
    }
}
