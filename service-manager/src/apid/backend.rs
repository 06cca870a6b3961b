//! The connection to machined: one HTTP/2 connection on its unix socket for each connection of a client.
//!
//! Order: what a client does not read waits in its own connection. The windows of all its streams fit the connection's, so
//! that streams which nobody reads hold up no other one.
//! Fails by: [`Unreachable`] after [`CONNECT_DEADLINE`]. A machined that restarts is waited for: its socket stays
//! open in init, so a connection made meanwhile is served when the next machined runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

/// A request's or an answer's body.
pub(crate) type Body = BoxBody<Bytes, hyper::Error>;

/// How long a restarting machined is waited for.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of a stream that its reader has not taken.
pub(super) const STREAM_WINDOW: u32 = 64 << 10;
/// Streams of one connection of a client.
pub(super) const STREAMS: u32 = 100;
/// Bytes of a connection that readers have not taken.
pub(super) const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS;
/// Between attempts.
const RETRY: Duration = Duration::from_millis(50);

/// machined does not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    /// No connection within the deadline.
    #[error("machined did not answer within 10 s (deadline connect): {0}")]
    Connect(String),
    /// The connection broke while the request was under way.
    #[error("machined went away: {0}")]
    Broken(#[from] hyper::Error),
}

/// The way to machined.
#[derive(Debug)]
pub(crate) struct Backend {
    socket: PathBuf,
    connection: Mutex<Option<SendRequest<Body>>>,
}

impl Backend {
    /// A backend at this socket; nothing is opened yet.
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), connection: Mutex::new(None) }
    }

    /// Sends a request and returns its answer.
    pub(crate) async fn call(&self, request: Request<Body>) -> Result<Response<Incoming>, Unreachable> {
        let mut sender = self.ready().await?;
        Ok(sender.send_request(request).await?)
    }

    /// A connection that takes requests now.
    async fn ready(&self) -> Result<SendRequest<Body>, Unreachable> {
        let begin = Instant::now();
        let mut kept = self.connection.lock().await;
        loop {
            if let Some(mut sender) = kept.take()
                && sender.ready().await.is_ok()
            {
                *kept = Some(sender.clone());
                return Ok(sender);
            }
            let left = CONNECT_DEADLINE.saturating_sub(begin.elapsed());
            match timeout(left, connect(&self.socket)).await {
                Ok(Ok(sender)) => *kept = Some(sender),
                Ok(Err(error)) if begin.elapsed().saturating_add(RETRY) >= CONNECT_DEADLINE => {
                    return Err(Unreachable::Connect(error));
                }
                Ok(Err(_)) => sleep(RETRY).await,
                Err(_) => return Err(Unreachable::Connect("no HTTP/2 preface".to_owned())),
            }
        }
    }
}

async fn connect(socket: &Path) -> Result<SendRequest<Body>, String> {
    let stream =
        UnixStream::connect(socket).await.map_err(|e| format!("connect to {}: {e}", socket.display()))?;
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    tokio::spawn(async move {
        // Its end shows at the next request.
        let _ = connection.await;
    });
    Ok(sender)
}
