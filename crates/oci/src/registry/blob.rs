//! A blob as a stream that goes on after a broken connection, where it was.
//!
//! Owns: the position, the digest so far, the next attempt from any address.
//! Does not: keep more than one piece.
//! Fails by: [`Error::Digest`] or [`Error::Length`] at its end; what was read before counts for nothing then.

use std::io::{self, Read};
use std::sync::Arc;

use http::header::RANGE;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::exchange::{ANSWER_DEADLINE, Fault};
use super::{Client, Rounds};
use crate::document::Descriptor;
use crate::{Error, Hasher};

/// Pieces between the connection and a blocking reader; one is at most some hundred KiB.
const QUEUE: usize = 4;

/// A blob that is being fetched.
pub struct Blob<'c> {
    client: &'c Client,
    descriptor: Descriptor,
    what: String,
    rounds: Rounds<'c>,
    body: Option<Incoming>,
    hash: Hasher,
    /// Bytes of the current body that came before: the server does not know ranges.
    skip: u64,
}

impl<'c> Blob<'c> {
    pub(super) fn new(client: &'c Client, descriptor: &Descriptor) -> Self {
        let what = format!("blob sha256:{} of {}", descriptor.digest, client.reference);
        let rounds = Rounds::new(client, &what);
        let descriptor = descriptor.clone();
        Self { client, descriptor, what, rounds, body: None, hash: Hasher::default(), skip: 0 }
    }

    /// The next piece; `None` once all of it was there and had the right digest.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if self.hash.bytes() == self.descriptor.size {
                self.body = None;
                return self.end().map(|()| None);
            }
            self.rounds.check_total()?;
            match self.attempt().await {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => {
                    if self.hash.bytes() + piece.len() as u64 > self.descriptor.size {
                        return Err(self.bad_length());
                    }
                    self.hash.push(&piece);
                    self.rounds.progressed();
                    return Ok(Some(piece));
                }
                Err(fault) => {
                    self.body = None;
                    self.rounds.note(fault);
                    self.rounds.pause().await?;
                }
            }
        }
    }

    fn end(&self) -> Result<(), Error> {
        let (wanted, found) = (self.descriptor.digest, self.hash.clone().finish());
        if found == wanted {
            return Ok(());
        }
        Err(Error::Digest { what: self.what.clone(), wanted, found })
    }

    fn bad_length(&self) -> Error {
        Error::Length { what: self.what.clone(), wanted: self.descriptor.size }
    }

    /// A piece from the connection there is, or from a new one.
    async fn attempt(&mut self) -> Result<Bytes, Fault> {
        if self.body.is_none() {
            self.connect().await?;
        }
        let Some(body) = self.body.as_mut() else { return Ok(Bytes::new()) };
        let late =
            |_| Fault::Passing(format!("nothing for {} s (deadline answer)", ANSWER_DEADLINE.as_secs()));
        let frame = tokio::time::timeout(ANSWER_DEADLINE, body.frame()).await.map_err(late)?;
        let Some(frame) = frame else {
            return Err(Fault::Passing(format!(
                "it ended after {} of {} bytes",
                self.hash.bytes(),
                self.descriptor.size
            )));
        };
        let mut piece = match frame.map_err(|e| Fault::Passing(e.to_string()))?.into_data() {
            Ok(piece) => piece,
            // Trailers.
            Err(_) => return Ok(Bytes::new()),
        };
        let before = usize::try_from(self.skip).unwrap_or(usize::MAX).min(piece.len());
        self.skip -= before as u64;
        Ok(piece.split_off(before))
    }

    async fn connect(&mut self) -> Result<(), Fault> {
        let endpoint = self.rounds.endpoint().map_err(|error| Fault::Final(error.to_string()))?;
        let at = self.hash.bytes();
        let mut headers = HeaderMap::new();
        if at > 0 {
            let range = HeaderValue::from_str(&format!("bytes={at}-"));
            headers.insert(RANGE, range.map_err(|e| Fault::Final(e.to_string()))?);
        }
        let path = format!("blobs/sha256:{}", self.descriptor.digest);
        let answer = self.client.exchange.get(endpoint, &path, headers).await?;
        self.skip = if answer.status() == StatusCode::PARTIAL_CONTENT { 0 } else { at };
        self.body = Some(answer.into_body());
        Ok(())
    }
}

/// A blob for code that blocks. Dropping it ends the transfer.
pub struct Reader {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Reader {
    /// Fetches on `runtime`.
    #[must_use]
    pub fn new(runtime: &Handle, client: Arc<Client>, descriptor: Descriptor) -> Self {
        let (sender, pieces) = mpsc::channel(QUEUE);
        runtime.spawn(async move {
            let mut blob = client.blob(&descriptor);
            loop {
                let piece = match blob.chunk().await {
                    Ok(Some(piece)) => Ok(piece),
                    Ok(None) => return,
                    Err(error) => Err(io::Error::other(error)),
                };
                let last = piece.is_err();
                if sender.send(piece).await.is_err() || last {
                    return;
                }
            }
        });
        Self { pieces, current: Bytes::new() }
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => return Ok(0),
            }
        }
        let count = self.current.len().min(buffer.len());
        let piece = self.current.split_to(count);
        buffer.get_mut(..count).unwrap_or(&mut []).copy_from_slice(&piece);
        Ok(count)
    }
}
