//! gRPC messages in a body, and the answers that apid makes itself.
//!
//! Source: gRPC over HTTP/2 (length-prefixed messages, trailers).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use runtime::status_text;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::backend::Body;
use crate::connections::Held;

/// Compressed flag and length.
pub(super) const PREFIX_BYTES: usize = 5;
/// Largest message that is looked into (as much as clients take).
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// Cuts a body into messages.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    buffer: BytesMut,
}

impl Messages {
    /// Adds bytes of the body.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message without its prefix.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, String> {
        let Some(prefix) = self.buffer.get(..PREFIX_BYTES) else { return Ok(None) };
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
        let length = usize::try_from(length).map_err(|_| "message too long")?;
        if prefix[0] != 0 {
            return Err("compressed message".to_owned());
        }
        if length > MAX_MESSAGE_BYTES {
            return Err(format!("message of {length} bytes"));
        }
        if self.buffer.len() < PREFIX_BYTES.saturating_add(length) {
            return Ok(None);
        }
        self.buffer.advance(PREFIX_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

/// A message with its prefix.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES.saturating_add(message.len()));
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(message);
    framed.freeze()
}

/// The trailers of a call that ended well.
pub(crate) fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

/// The trailers of a call that failed.
pub(crate) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // A text that no header holds.
        trailers.insert("grpc-status", HeaderValue::from_static("13"));
    }
    status_text::bound(&mut trailers);
    trailers
}

/// An answer that is only a status.
pub(crate) fn refusal(status: &Status) -> Response<Body> {
    let mut answer = status.clone().into_http::<Full<Bytes>>();
    status_text::bound(answer.headers_mut());
    answer.map(|body| body.map_err(|never| match never {}).boxed())
}

/// An answer that keeps a place for as long as its body lasts.
pub(crate) fn held_until_end<K: Ord + Send + Sync + 'static>(
    response: Response<Body>,
    held: Held<K>,
) -> Response<Body> {
    response.map(|body| {
        let kept = body.map_frame(move |frame| {
            let _ = &held;
            frame
        });
        kept.boxed()
    })
}

/// The end that feeds an answer's body.
pub(crate) type BodySender = mpsc::Sender<Result<Frame<Bytes>, hyper::Error>>;

/// An answer whose body is fed by a task.
pub(crate) fn streaming() -> (BodySender, Response<Body>) {
    let (sender, receiver) = mpsc::channel(8);
    let body = BoxBody::new(StreamBody::new(ReceiverStream::new(receiver)));
    let mut response = Response::new(body);
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    (sender, response)
}

/// Code and text of a status in headers or trailers, `None` when it is not there.
pub(crate) fn status_of(headers: &HeaderMap) -> Option<Status> {
    Status::from_header_map(headers)
}

/// The text of a status as a Go client prints it.
pub(crate) fn go_text(status: &Status) -> String {
    format!("rpc error: code = {} desc = {}", go_code(status.code()), status.message())
}

/// A code's name in Go.
pub(crate) fn go_code(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut() {
        let body = [frame(b"one"), frame(b""), frame(b"three")].concat();
        for step in 1..body.len() {
            let mut messages = Messages::default();
            let mut found = Vec::new();
            for part in body.chunks(step) {
                messages.push(part);
                while let Some(message) = messages.next().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [&b"one"[..], b"", b"three"]);
        }
    }

    #[test]
    fn compressed_and_endless_messages_are_refused() {
        let mut messages = Messages::default();
        messages.push(&[1, 0, 0, 0, 0]);
        assert!(messages.next().is_err());
        let mut messages = Messages::default();
        messages.push(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert!(messages.next().is_err());
    }

    #[test]
    fn statuses_read_as_in_go() {
        let status = Status::not_found("gone");
        assert_eq!(go_text(&status), "rpc error: code = NotFound desc = gone");
    }
}
