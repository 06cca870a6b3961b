//! A program of an image that runs to its end, and what it said meanwhile.
//!
//! Owns: the FIFO of its output. What an earlier run left under the id is removed before, and nothing is left behind.
//! Does not: fetch images or unpack them.
//! Fails by: [`OnceError`]; a program that ends with another status than 0 is no failure of this.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use sys::rights::OwnRights;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::description::Description;
use crate::{Client, NewContainer, Unpacked};

/// Bytes of the output that are kept, from its end.
const KEPT: usize = 8 << 10;

/// A program that is to run once.
#[derive(Debug, Clone, Copy)]
pub struct Once<'a> {
    /// The container's id, unique in its namespace.
    pub id: &'a str,
    /// Reference of its image, which is there.
    pub image: &'a str,
    /// The image's layers.
    pub unpacked: &'a Unpacked,
    /// What runs.
    pub description: &'a Description,
    /// Where the FIFO of its output is made; its directory is there.
    pub log: &'a Path,
    /// For the program to end; it is ended then.
    pub deadline: Duration,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status; above 128 it was a signal.
    pub status: u32,
    /// The end of what it wrote to both streams.
    pub output: String,
}

/// Why it is unknown how it ended.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    /// containerd refused.
    #[error("{what} container {id}: {}", .source.message())]
    Engine {
        /// `create`, `start`, `wait for`, `remove`.
        what: &'static str,
        /// The container.
        id: String,
        /// containerd's words.
        source: Box<tonic::Status>,
    },
    /// Its output cannot be read.
    #[error("read the output of container {id}: {source}")]
    Output {
        /// The container.
        id: String,
        /// Why not.
        source: io::Error,
    },
    /// It was ended.
    #[error("container {id} has not ended within {} s and was ended", .deadline.as_secs())]
    Late {
        /// The container.
        id: String,
        /// How long it had.
        deadline: Duration,
    },
}

impl Client {
    /// Runs a program and waits for its end.
    ///
    /// # Errors
    /// [`OnceError`]. Dropped before its end, the program may go on; the next run under this id ends it.
    pub async fn run_once(&self, once: &Once<'_>) -> Result<Ended, OnceError> {
        let failed = |what| engine(what, once.id);
        let mut output = open(once.log).map_err(|source| OnceError::Output { id: once.id.into(), source })?;
        self.remove(once.id).await.map_err(failed("remove the earlier"))?;
        let ended = tokio::time::timeout(once.deadline, self.run_to_end(once, &mut output)).await;
        self.remove(once.id).await.map_err(failed("remove"))?;
        // What is left is made anew by the next run.
        let _ = std::fs::remove_file(once.log);
        ended.unwrap_or_else(|_| Err(OnceError::Late { id: once.id.into(), deadline: once.deadline }))
    }

    async fn run_to_end(&self, once: &Once<'_>, output: &mut pipe::Receiver) -> Result<Ended, OnceError> {
        let failed = |what| engine(what, once.id);
        let new = NewContainer {
            id: once.id,
            image: once.image,
            unpacked: once.unpacked,
            spec: &once.description.to_spec(&OwnRights::of_this_process()),
            log: once.log,
        };
        self.create(&new).await.map_err(failed("create"))?;
        self.start(once.id).await.map_err(failed("start"))?;
        let (mut kept, mut part) = (Vec::new(), vec![0; KEPT]);
        let wait = self.wait(once.id);
        tokio::pin!(wait);
        let status = loop {
            tokio::select! {
                status = &mut wait => break status.map_err(failed("wait for"))?,
                read = output.read(&mut part) => {
                    let count = read.map_err(|source| OnceError::Output { id: once.id.into(), source })?;
                    keep(&mut kept, part.get(..count).unwrap_or_default());
                }
            }
        };
        // Nothing is written any more: what is in the FIFO is all.
        while let Ok(count @ 1..) = output.try_read(&mut part) {
            keep(&mut kept, part.get(..count).unwrap_or_default());
        }
        Ok(Ended { status, output: String::from_utf8_lossy(&kept).into_owned() })
    }
}

fn engine<'a>(what: &'static str, id: &'a str) -> impl Fn(tonic::Status) -> OnceError + 'a {
    move |source| OnceError::Engine { what, id: id.to_owned(), source: Box::new(source) }
}

/// Opened for both directions it waits for no writer, and has no end while it is open.
fn open(path: &Path) -> io::Result<pipe::Receiver> {
    match rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    pipe::OpenOptions::new().read_write(true).open_receiver(path)
}

/// Adds to the end, and drops from the beginning what is too much.
fn keep(kept: &mut Vec<u8>, part: &[u8]) {
    kept.extend_from_slice(part);
    kept.drain(..kept.len().saturating_sub(KEPT));
}

#[cfg(test)]
mod tests {
    use super::{KEPT, keep};

    #[test]
    fn the_end_of_the_output_is_kept() {
        let mut kept = Vec::new();
        keep(&mut kept, &vec![b'a'; KEPT]);
        keep(&mut kept, b"end");
        assert_eq!((kept.len(), &kept[KEPT - 4..]), (KEPT, &b"aend"[..]));
    }
}
