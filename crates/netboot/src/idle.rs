//! A connection that ends by itself when nothing moves on it: a machine that was turned off says no farewell.
//!
//! Owns: the limit, for both directions together.
//! Fails by: an error of the kind `TimedOut` with [`Stalled`] in it.

use std::fmt;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// As long as firmware and a lossy wire may pause: TCP sends what is lost again after at most half a minute of that time.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Nothing moved for the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stalled {
    /// Whether there was something to send.
    pub(crate) sends: bool,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = LIMIT.as_secs();
        match self.sends {
            true => {
                write!(f, "the machine took nothing more of it for {seconds} s: the connection is closed")
            }
            false => write!(f, "the machine said nothing for {seconds} s: the connection is closed"),
        }
    }
}

impl std::error::Error for Stalled {}

/// A stream with the limit.
pub(crate) struct Idle<S> {
    stream: S,
    limit: Pin<Box<Sleep>>,
    /// Whether what was to be sent waits.
    sends: bool,
}

impl<S> Idle<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, limit: Box::pin(tokio::time::sleep(LIMIT)), sends: false }
    }

    /// Something moved.
    fn moved(&mut self) {
        self.limit.as_mut().reset(Instant::now() + LIMIT);
    }

    /// Nothing moves: until when that is borne.
    fn waits<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.limit.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, Stalled { sends: self.sends })))
    }

    fn sent<T>(
        &mut self,
        context: &mut Context<'_>,
        sent: Poll<io::Result<T>>,
        moved: impl FnOnce(&T) -> bool,
    ) -> Poll<io::Result<T>> {
        self.sends = sent.is_pending();
        match sent {
            Poll::Pending => self.waits(context),
            Poll::Ready(sent) => {
                if sent.as_ref().is_ok_and(moved) {
                    self.moved();
                }
                Poll::Ready(sent)
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Idle<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Pending => this.waits(context),
            Poll::Ready(read) => {
                if buffer.filled().len() > before {
                    this.moved();
                }
                Poll::Ready(read)
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Idle<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.sent(context, sent, |count| *count > 0)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.stream).poll_write_vectored(context, pieces);
        this.sent(context, sent, |count| *count > 0)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.stream).poll_flush(context);
        // One that had nothing to do moved nothing.
        this.sent(context, sent, |()| false)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.stream).poll_shutdown(context);
        this.sent(context, sent, |()| false)
    }
}

/// Whether an error is that the other side stopped taking what is sent.
pub(crate) fn stalled(error: &(dyn std::error::Error + 'static)) -> Option<Stalled> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.filter_map(|error| error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref().copied()).next()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{sleep, timeout};

    use super::*;

    /// Shorter than the limit, however often.
    const PAUSE: Duration = Duration::from_secs(50);

    fn told(error: &io::Error) -> Stalled {
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        stalled(error).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_waited_for_as_long_as_the_limit() {
        let (mut theirs, ours) = duplex(64);
        let (mut ours, mut byte) = (Idle::new(ours), [0]);
        // A slow one is none that is gone.
        for _ in 0..4 {
            let talks = async {
                sleep(PAUSE).await;
                theirs.write_all(b"x").await.unwrap();
            };
            let (read, ()) = tokio::join!(ours.read_exact(&mut byte), talks);
            read.unwrap();
        }
        let began = Instant::now();
        let error = timeout(LIMIT * 3, ours.read_exact(&mut byte)).await.expect("it ends by itself");
        let error = error.unwrap_err();
        assert!(began.elapsed() >= LIMIT && began.elapsed() < LIMIT + PAUSE, "{:?}", began.elapsed());
        assert!(!told(&error).sends);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_waited_for_as_long_as_the_limit() {
        let (mut theirs, ours) = duplex(64);
        let mut ours = Idle::new(ours);
        let takes = async {
            let mut buffer = [0; 64];
            for _ in 0..4 {
                sleep(PAUSE).await;
                theirs.read_exact(&mut buffer).await.unwrap();
            }
        };
        let (sent, ()) = tokio::join!(ours.write_all(&[7; 320]), takes);
        sent.unwrap();
        let began = Instant::now();
        let error =
            timeout(LIMIT * 3, ours.write_all(&[7; 64])).await.expect("it ends by itself").unwrap_err();
        assert!(began.elapsed() <= LIMIT, "{:?}", began.elapsed());
        assert!(told(&error).sends);
    }
}
