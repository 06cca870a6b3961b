//! A body that is sent when the server has said that it takes one.
//!
//! A server that refuses a request from its headers answers and closes the connection. A client that is in the middle of a long body
//! then sees a broken connection, and not why.
//! Source: RFC 9110 §10.1.1.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;
use tokio::sync::Notify;

/// For a server that does not know of this; the body goes then.
const PATIENCE: Duration = Duration::from_secs(1);
/// What is shorter is sent at once.
const LONG_BYTES: u64 = 64 << 10;

type AnyBody = UnsyncBoxBody<Bytes, io::Error>;

/// Has a long body wait until the server says that it goes on.
pub(super) fn expect(request: &mut Request<AnyBody>) {
    if request.body().size_hint().lower() < LONG_BYTES {
        return;
    }
    let told = Arc::new(Notify::new());
    let waits = told.clone();
    let wait = async move {
        // Either way the body goes.
        let _ = tokio::time::timeout(PATIENCE, waits.notified()).await;
    };
    request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
    hyper::ext::on_informational(request, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            told.notify_one();
        }
    });
    let empty = http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync();
    let body = std::mem::replace(request.body_mut(), empty);
    *request.body_mut() = Waiting { wait: Some(Box::pin(wait)), body }.boxed_unsync();
}

struct Waiting {
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    body: AnyBody,
}

impl Body for Waiting {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if let Some(wait) = &mut this.wait {
            ready!(wait.as_mut().poll(context));
            this.wait = None;
        }
        Pin::new(&mut this.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
