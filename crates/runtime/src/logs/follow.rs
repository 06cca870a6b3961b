//! A reader of a log that keeps up with it.
//!
//! Owns: its place in the log, across turn-overs: it keeps the file it reads open, so a renamed file is read to its
//! end before the next one is opened.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

use tokio::sync::watch;

use super::place::LogPlace;

/// Most bytes returned at once.
const CHUNK: usize = 32 * 1024;

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// At the oldest byte that is kept.
    All,
    /// So many lines before the end.
    Lines(usize),
}

/// A place in a log.
#[derive(Debug)]
pub struct Follower {
    place: LogPlace,
    grown: watch::Receiver<u64>,
    start: Option<Tail>,
    open: Option<File>,
    gaps: u64,
}

impl Follower {
    pub(super) fn new(place: LogPlace, grown: watch::Receiver<u64>, tail: Tail) -> Self {
        Self { place, grown, start: Some(tail), open: None, gaps: 0 }
    }

    /// The next bytes, none when there are none now.
    pub fn read_available(&mut self) -> io::Result<Vec<u8>> {
        self.grown.mark_unchanged();
        if let Some(tail) = self.start.take() {
            self.begin(tail)?;
        }
        loop {
            let Some(file) = &mut self.open else { return Ok(Vec::new()) };
            let mut bytes = Vec::new();
            file.take(CHUNK as u64).read_to_end(&mut bytes)?;
            if !bytes.is_empty() {
                return Ok(bytes);
            }
            if !self.next_file()? {
                return Ok(Vec::new());
            }
        }
    }

    /// How often this reader was so slow, since the last call, that bytes were gone before it came to them.
    pub fn take_gaps(&mut self) -> u64 {
        std::mem::take(&mut self.gaps)
    }

    /// Waits until the log has grown since the last read.
    pub async fn grown(&mut self) {
        if self.grown.changed().await.is_err() {
            // The log lives as long as machined: without a sender nothing will ever come.
            std::future::pending::<()>().await;
        }
    }

    fn begin(&mut self, tail: Tail) -> io::Result<()> {
        match tail {
            Tail::All => self.open = open(&self.place.older)?.or(open(&self.place.current)?),
            Tail::Lines(lines) => self.begin_before_end(lines)?,
        }
        Ok(())
    }

    fn begin_before_end(&mut self, lines: usize) -> io::Result<()> {
        let Some(mut current) = open(&self.place.current)? else { return Ok(()) };
        let found = seek_tail(&mut current, lines)?;
        self.open = Some(current);
        if found < lines
            && let Some(mut older) = open(&self.place.older)?
        {
            seek_tail(&mut older, lines - found)?;
            self.open = Some(older);
        }
        Ok(())
    }

    /// Goes on to the current file when the one being read is no longer it.
    fn next_file(&mut self) -> io::Result<bool> {
        let Some(current) = open(&self.place.current)? else { return Ok(false) };
        let Some(reading) = &mut self.open else { return Ok(false) };
        let (now, then) = (current.metadata()?, reading.metadata()?);
        if now.ino() != then.ino() {
            // Between the two there was a third one, unless the older file is the one just read.
            if open(&self.place.older)?
                .is_none_or(|older| older.metadata().is_ok_and(|m| m.ino() != then.ino()))
            {
                self.gaps += 1;
            }
            self.open = Some(current);
            return Ok(true);
        }
        if reading.stream_position()? > now.len() {
            // The file gave way to a full tmpfs: go on with what was written after that.
            self.gaps += 1;
            reading.seek(SeekFrom::Start(0))?;
            return Ok(now.len() > 0);
        }
        Ok(false)
    }
}

fn open(path: &std::path::Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Moves to so many lines before the end and says how many there are, at most `lines`.
pub fn seek_tail(file: &mut File, lines: usize) -> io::Result<usize> {
    let end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(0);
    }
    let mut found = 0;
    let mut at = end;
    let mut block = [0; 4096];
    while at > 0 {
        let length = usize::try_from(at).unwrap_or(usize::MAX).min(block.len());
        let start = at - length as u64;
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block[..length])?;
        for offset in (0..length).rev() {
            let position = start + offset as u64;
            // The newline that ends the last line begins no line.
            if block[offset] == b'\n' && position + 1 != end {
                found += 1;
                if found == lines {
                    file.seek(SeekFrom::Start(position + 1))?;
                    return Ok(found);
                }
            }
        }
        at = start;
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(if end > 0 { found + 1 } else { 0 })
}
