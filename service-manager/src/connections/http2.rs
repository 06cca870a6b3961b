//! HTTP/2 on one connection of a client, with limits for what the protocol leaves open.
//!
//! Order: the client's preface within [`PREFACE_DEADLINE`], then requests until it leaves, takes nothing, or does not answer
//! pings. The library asks for pings only behind the preface, so the preface is read here. What a client sends is read in
//! turns with what others send: a flood of small frames costs its own connection alone.
//! Does not: know what is asked. Fails by: closing; how a client hangs up is its own business.
//! Source: RFC 9113 §3.4 (preface), §6.5.2 (settings), §10.5 (denial of service).

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::timeout;

/// How long a client may take to say that it speaks HTTP/2.
pub(crate) const PREFACE_DEADLINE: Duration = Duration::from_secs(10);
/// Between two questions whether a client is still there, and for its answer.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Bytes that a stream keeps for a client which is behind.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// Bytes of a request's header fields, as RFC 9113 counts them.
const HEADER_LIST_BYTES: u32 = 16 << 10;
/// Streams that a client resets before they were looked at.
const PENDING_RESETS: usize = 20;
/// Streams of one connection that end by a fault of the client's, over its whole life: each body that was refused for its
/// length and is sent all the same is one, so an administrator's long connection has many.
const FAULTY_STREAMS: usize = 1024;
/// What is read of one connection before others have their turn. Frames without content have 9 bytes.
const TURN_BYTES: usize = 8 << 10;
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client may have at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Streams.
    pub(crate) streams: u32,
    /// Bytes of one request that were not passed on yet.
    pub(crate) stream_window: u32,
    /// The same of all requests.
    pub(crate) connection_window: u32,
}

/// Serves a connection to its end.
pub(crate) async fn serve<S, F, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    limits: Limits,
    answer: S,
) where
    S: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let Ok(Ok(stream)) = timeout(PREFACE_DEADLINE, read_preface(stream)).await else { return };
    let service = hyper::service::service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(HEADER_LIST_BYTES)
        .max_local_error_reset_streams(FAULTY_STREAMS)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // How a client hangs up is its own business.
    let _ = connection.await;
}

/// Reads the preface, and gives the connection back as if it had not been read.
async fn read_preface<T: AsyncRead + Unpin>(mut stream: T) -> io::Result<Prefaced<T>> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await?;
    if &preface != PREFACE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no preface of HTTP/2"));
    }
    Ok(Prefaced { stream, unread: PREFACE, turn_bytes: 0 })
}

/// A connection whose preface is read once more, and which gives way after [`TURN_BYTES`].
#[derive(Debug)]
struct Prefaced<T> {
    stream: T,
    unread: &'static [u8],
    /// Read since it last gave way or had nothing.
    turn_bytes: usize,
}

impl<T: AsyncRead + Unpin> AsyncRead for Prefaced<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            if self.turn_bytes >= TURN_BYTES {
                // The runtime's own budget counts reads, not bytes: two megabytes of frames without a break.
                self.turn_bytes = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let before = to.filled().len();
            let read = Pin::new(&mut self.stream).poll_read(cx, to);
            let read_bytes = to.filled().len().saturating_sub(before);
            self.turn_bytes = if read.is_pending() { 0 } else { self.turn_bytes.saturating_add(read_bytes) };
            return read;
        }
        let (now, later) = self.unread.split_at(self.unread.len().min(to.remaining()));
        to.put_slice(now);
        self.unread = later;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Prefaced<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const LIMITS: Limits = Limits { streams: 1, stream_window: 1 << 16, connection_window: 1 << 16 };

    async fn never(_: Request<Incoming>) -> Response<http_body_util::Empty<Bytes>> {
        std::future::pending().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_a_preface_is_left_after_ten_seconds() {
        let (mut client, server) = tokio::io::duplex(1024);
        let begin = tokio::time::Instant::now();
        client.write_all(&PREFACE[..23]).await.unwrap();
        serve(server, LIMITS, never).await;
        assert_eq!(begin.elapsed().as_secs(), PREFACE_DEADLINE.as_secs());
    }

    /// However much a client has sent, others have a turn after a bounded part of it; and nothing of it is lost.
    #[tokio::test]
    async fn a_client_that_sends_much_gives_way_to_others() {
        const SENT: usize = 1 << 20;
        let (mut client, server) = tokio::io::duplex(SENT + PREFACE.len());
        client.write_all(&[PREFACE, vec![7; SENT].as_slice()].concat()).await.unwrap();
        let mut stream = read_preface(server).await.unwrap();
        let mut bytes = vec![0; 8 << 10];
        let (mut all, mut turn) = (0, 0);
        while all < SENT + PREFACE.len() {
            let polled = std::future::poll_fn(|cx| {
                let mut buffer = ReadBuf::new(&mut bytes);
                let polled = Pin::new(&mut stream).poll_read(cx, &mut buffer);
                Poll::Ready(polled.map(|read| read.map(|()| buffer.filled().len())))
            });
            match polled.await {
                Poll::Ready(read) => {
                    let read = read.unwrap();
                    (all, turn) = (all + read, turn + read);
                }
                Poll::Pending => {
                    turn = 0;
                    tokio::task::yield_now().await;
                }
            }
            assert!(turn <= TURN_BYTES + (16 << 10), "{turn} bytes without a break");
        }
    }

    #[tokio::test]
    async fn what_was_read_of_the_preface_is_read_again() {
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(&[PREFACE, b"more".as_slice()].concat()).await.unwrap();
        let mut stream = read_preface(server).await.unwrap();
        let mut all = [0; 28];
        stream.read_exact(&mut all).await.unwrap();
        assert_eq!(&all[..], [PREFACE, b"more".as_slice()].concat());
        client.write_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
        let (mut other, server) = tokio::io::duplex(1024);
        other.write_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
        assert!(read_preface(server).await.is_err());
    }
}
