//! One request to several nodes, and their answers as one.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`Gather::run`], one a request | the answers of its nodes | the merged answer | with the last node, or its client |
//! | [`Gather::ask`], one a node | the node's answer | stream messages as they come | with the node or the client |
//!
//! Owns: the order of a unary answer's elements (as the nodes were named). All nodes are asked at once: one that does
//! not answer must not hold up a log that is followed. Source: docs/users/endpoint.md.

use std::sync::Arc;

use http::{HeaderMap, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Frame, Incoming};
use runtime::request;
use tokio::task::JoinSet;
use tonic::Status;

use super::backend::Body;
use super::bodies::Bounded;
use super::frames::{BodySender, Messages, frame, ok_trailers, refusal, status_of, streaming, trailers};
use super::merge;
use super::proxy::{Head, Proxy};
use super::targets::is_stream;

/// Largest request that several are made from, of a call that may bring much.
const MAX_REQUEST_BYTES: usize = 32 << 20;

/// Asks every node and merges what they say.
pub(super) async fn gather(
    proxy: Arc<Proxy>,
    head: Head,
    body: Incoming,
    names: Vec<String>,
) -> Response<Body> {
    let (body, too_long) = Bounded::new(&head.path, body);
    let body = tokio::select! {
        collected = Limited::new(body, MAX_REQUEST_BYTES).collect() => match collected {
            Ok(collected) => collected.to_bytes(),
            Err(error) => return refusal(&Status::invalid_argument(format!("read the request: {error}"))),
        },
        Ok(too_long) = too_long => return refusal(&too_long.status(&head.path)),
    };
    let (sender, response) = streaming();
    let stream = is_stream(&head.path);
    let last = sender.clone();
    request::spawn(Gather { proxy, head, body, stream, sender }.run(names), |panicked| async move {
        // The client may be gone.
        let _ = last.send(Ok(Frame::trailers(trailers(&panicked.into())))).await;
    });
    response
}

#[derive(Clone)]
struct Gather {
    proxy: Arc<Proxy>,
    head: Head,
    body: Bytes,
    stream: bool,
    sender: BodySender,
}

impl Gather {
    async fn run(self, names: Vec<String>) {
        let mut asking = JoinSet::new();
        for (index, name) in names.iter().cloned().enumerate() {
            let gather = self.clone();
            let asked = request::inherit(async move { gather.one(&name).await });
            asking.spawn(async move { (index, asked.await) });
        }
        let mut elements = vec![Vec::new(); names.len()];
        while let Some(ended) = asking.join_next().await {
            let Ok((index, element)) = ended else { continue };
            let element = match element {
                Ok(element) => element,
                // The others' answers are no whole answer.
                Err(panicked) => return self.end(trailers(&panicked.into())).await,
            };
            if let Some(place) = elements.get_mut(index) {
                *place = element;
            }
        }
        if !self.stream && self.emit(&elements.concat()).await.is_err() {
            return;
        }
        self.end(ok_trailers()).await;
    }

    async fn end(&self, trailers: HeaderMap) {
        // The client may be gone.
        let _ = self.sender.send(Ok(Frame::trailers(trailers))).await;
    }

    /// The element of one node; of a stream, which is passed on as it comes, nothing.
    async fn one(&self, name: &str) -> Vec<u8> {
        match self.ask(name).await {
            Ok(element) => element,
            Err(status) if self.stream => {
                // The client may be gone.
                let _ = self.emit(&merge::stream_error(&status, name)).await;
                Vec::new()
            }
            Err(status) => merge::unary_error(&status, name),
        }
    }

    async fn emit(&self, message: &[u8]) -> Result<(), Status> {
        let gone = |_| Status::cancelled("the client is gone");
        self.sender.send(Ok(Frame::data(frame(message)))).await.map_err(gone)
    }

    async fn ask(&self, name: &str) -> Result<Vec<u8>, Status> {
        let body = Full::new(self.body.clone()).map_err(|never| match never {}).boxed();
        let mut response = tokio::select! {
            response = self.proxy.ask(&self.head, Some(name), body) => response?,
            () = self.sender.closed() => return Err(Status::cancelled("the client is gone")),
        };
        let at_once = status_of(response.headers());
        check(at_once.as_ref())?;
        let broken = |e: hyper::Error| Status::unavailable(format!("{name} went away: {e}"));
        let mut messages = Messages::default();
        let (mut element, mut ended) = (None, None);
        loop {
            let next = tokio::select! {
                next = response.body_mut().frame() => next,
                // Without this a quiet log would be followed for a client that hung up long ago.
                () = self.sender.closed() => return Err(Status::cancelled("the client is gone")),
            };
            let Some(part) = next else { break };
            match part.map_err(broken)?.into_data() {
                Ok(data) => messages.push(&data),
                Err(rest) => ended = rest.trailers_ref().cloned(),
            }
            while let Some(message) = messages.next().map_err(Status::internal)? {
                if self.stream {
                    self.emit(&merge::stream(&message, name)).await?;
                } else {
                    element = Some(merge::unary(&message, name).map_err(Status::internal)?);
                }
            }
        }
        let ended = ended.as_ref().and_then(status_of).or(at_once);
        check(ended.as_ref())?;
        if ended.is_none() {
            return Err(Status::unavailable(format!("{name} ended its answer without a status")));
        }
        if self.stream { Ok(Vec::new()) } else { element.ok_or_else(|| Status::internal("unexpected EOF")) }
    }
}

fn check(status: Option<&Status>) -> Result<(), Status> {
    match status {
        Some(status) if status.code() != tonic::Code::Ok => Err(status.clone()),
        _ => Ok(()),
    }
}
