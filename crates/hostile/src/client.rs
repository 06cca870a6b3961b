//! A client that keeps the rules of HTTP/2: for attacks that lie above them, and for the witness.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::wire::EMPTY_MESSAGE;
use crate::{Fault, Target};

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A connection; dropped, it ends.
#[derive(Debug)]
pub(crate) struct Client {
    sender: SendRequest<Body>,
    driver: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The end of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Code of gRPC (`google.rpc.Code`).
    pub(crate) code: u32,
    /// Bytes of the body.
    pub(crate) bytes: usize,
}

impl Client {
    pub(crate) async fn open(target: &Target) -> Result<Self, Fault> {
        let stream = target.tls().await?;
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Fault::Connect(format!("handshake: {error}")))?;
        let driver = tokio::spawn(async move {
            // Its end shows at the next request.
            let _ = connection.await;
        });
        Ok(Self { sender, driver })
    }

    /// Calls and reads the answer to its end.
    pub(crate) async fn call(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Body,
        within: Duration,
    ) -> Result<Answer, String> {
        let request = request(path, headers, body)?;
        let mut sender = self.sender.clone();
        let call = async move {
            sender.ready().await.map_err(|error| error.to_string())?;
            let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let at_once = code(answer.headers());
            let body = answer.into_body().collect().await.map_err(|error| error.to_string())?;
            let code = body.trailers().and_then(code).or(at_once).ok_or("the answer has no status")?;
            Ok(Answer { code, bytes: body.to_bytes().len() })
        };
        timeout(within, call).await.unwrap_or_else(|_| Err(format!("no answer within {within:?}")))
    }
}

fn request(path: &str, headers: &HeaderMap, body: Body) -> Result<Request<Body>, String> {
    let request = Request::post(format!("https://node{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body);
    let mut request = request.map_err(|error| error.to_string())?;
    request.headers_mut().extend(headers.clone());
    Ok(request)
}

fn code(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// A request of no fields.
pub(crate) fn empty() -> Body {
    Full::new(Bytes::from_static(&EMPTY_MESSAGE)).boxed_unsync()
}

/// The beginning of a message of `length` zeros, of which `sent` are sent; without `ends` the body stays open.
pub(crate) fn zeros(length: u32, sent: usize, ends: bool) -> Body {
    const CHUNK: usize = 16 << 10;
    let prefix = Bytes::from([&[0][..], &length.to_be_bytes()].concat());
    let chunks = stream::unfold((Some(prefix), sent), move |(prefix, left)| async move {
        if let Some(prefix) = prefix {
            return Some((Ok(Frame::data(prefix)), (None, left)));
        }
        if left == 0 {
            if !ends {
                std::future::pending::<()>().await;
            }
            return None;
        }
        let size = left.min(CHUNK);
        Some((
            Ok(Frame::data(Bytes::from_static(&[0; CHUNK]).slice(..size))),
            (None, left.saturating_sub(size)),
        ))
    });
    BodyExt::boxed_unsync(StreamBody::new(chunks))
}
