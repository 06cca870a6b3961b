//! The scope of requests around a gRPC server's services.
//!
//! Owns: handlers, and the bodies of their answers, which encode messages while the client reads; the limit of a status' text
//! on the way out.
//! Does not: cover connections; those are the process'.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use super::{Call, Panicked, Report, contain, of_call};
use crate::status_text;

/// Puts [`InRequest`] around the services.
#[derive(Clone)]
pub struct Requests(pub Report);

impl<S> Layer<S> for Requests {
    type Service = InRequest<S>;

    fn layer(&self, inner: S) -> InRequest<S> {
        InRequest { inner, report: self.0.clone() }
    }
}

/// Services whose panics are answers.
#[derive(Clone)]
pub struct InRequest<S> {
    inner: S,
    report: Report,
}

impl<S, B> Service<Request<B>> for InRequest<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let call = Call::new(request.uri().path(), &self.report);
        let answer = contain(Some(&call), || self.inner.call(request));
        Box::pin(async move {
            let answer = match answer {
                Ok(answer) => of_call(call.clone(), answer).await,
                Err(panicked) => Err(panicked),
            };
            match answer {
                Ok(answer) => answer.map(|mut answer| {
                    status_text::bound(answer.headers_mut());
                    answer.map(|body| in_request(call, body))
                }),
                Err(panicked) => Ok(Status::from(panicked).into_http()),
            }
        })
    }
}

fn in_request(call: Arc<Call>, body: Body) -> Body {
    Body::new(Answer { call, body: Some(body) })
}

/// A body that is made in the scope of its call; a panic ends it with a status.
struct Answer<B> {
    call: Arc<Call>,
    body: Option<B>,
}

impl<B> Answer<B> {
    fn end(&mut self) {
        let body = self.body.take();
        let _ = contain(Some(&self.call), move || drop(body));
    }
}

impl<B: http_body::Body<Data = Bytes, Error = Status> + Unpin> http_body::Body for Answer<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Some(body) = this.body.as_mut() else { return Poll::Ready(None) };
        match contain(Some(&this.call), || Pin::new(body).poll_frame(context)) {
            Ok(Poll::Ready(Some(Ok(mut frame)))) => {
                if let Some(trailers) = frame.trailers_mut() {
                    status_text::bound(trailers);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Ok(polled) => polled,
            Err(panicked) => {
                this.end();
                Poll::Ready(Some(trailers(panicked)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(http_body::Body::size_hint).unwrap_or_default()
    }
}

impl<B> Drop for Answer<B> {
    fn drop(&mut self) {
        self.end();
    }
}

fn trailers(panicked: Panicked) -> Result<Frame<Bytes>, Status> {
    let mut trailers = HeaderMap::new();
    Status::from(panicked).add_header(&mut trailers)?;
    Ok(Frame::trailers(trailers))
}
