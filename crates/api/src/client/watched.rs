//! A stream that remembers why it broke.
//!
//! In TLS 1.3 a server refuses a client certificate after the client thinks that it is connected; the alert then
//! arrives under some call, and hyper reports it as a broken pipe or nothing at all. So the last error of the
//! stream is kept where the caller can find it.

use crate::tls;
use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The reason for which a connection broke, if it did.
#[derive(Debug, Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<Option<String>>>);

impl LastWords {
    /// The reason in words.
    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result {
            let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // A TLS alert says more than the reset that may follow it.
            let is_tls = error.get_ref().is_some_and(|e| e.is::<rustls::Error>());
            if is_tls || words.is_none() {
                *words = Some(tls::reason(error));
            }
        }
        result
    }
}

/// A stream that tells [`LastWords`] of its errors.
pub(super) struct Watched<S> {
    stream: S,
    words: LastWords,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, words: LastWords) -> Self {
        Self { stream, words }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.words.keep(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.words.keep(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.words.keep(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
