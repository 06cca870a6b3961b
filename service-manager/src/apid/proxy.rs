//! The proxy: judges a request, passes it to machined, and merges answers where several nodes were asked.
//!
//! Frames are passed on as they are; only answers to `nodes` are looked into.

use std::net::SocketAddr;
use std::sync::Arc;

use api::pki::CertificateFacts;
use api::roles::{Role, RoleSet};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame, Incoming};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tonic::Status;

use super::backend::{Backend, Body};
use super::frames::{BodySender, Messages, frame, ok_trailers, refusal, status_of, streaming};
use super::targets::{Target, is_stream, target};
use super::{Names, merge};

/// Largest request that several answers are made from.
const MAX_REQUEST_BYTES: usize = 32 << 20;

/// The one behind a connection.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    peer: Option<SocketAddr>,
    roles: Arc<RoleSet>,
}

impl Caller {
    /// Reads the certificate that the client showed.
    pub(crate) fn of(stream: &TlsStream<TcpStream>) -> Self {
        let (tcp, tls) = stream.get_ref();
        let certificate = tls.peer_certificates().and_then(|chain| chain.first());
        let facts =
            certificate.and_then(|der| CertificateFacts::from_der("the client certificate", der).ok());
        // One that cannot be read has no role at all.
        let roles = facts.map(|facts| RoleSet::of_certificate(&facts)).unwrap_or_default();
        Self { peer: tcp.peer_addr().ok(), roles: Arc::new(roles) }
    }

    /// Somebody, while the node is in maintenance (spec/api-wire-facts.md §3.6).
    pub(crate) fn unknown(stream: &TlsStream<TcpStream>) -> Self {
        let peer = stream.get_ref().0.peer_addr().ok();
        Self { peer, roles: Arc::new(RoleSet::one(Role::Reader)) }
    }

    /// The roles of one request: those that a forwarding node vouches for, else the caller's own.
    fn roles(&self, headers: &HeaderMap) -> RoleSet {
        if !self.roles.contains(Role::Impersonator) {
            return (*self.roles).clone();
        }
        RoleSet::from_names(headers.get_all("talos-role").iter().filter_map(|value| value.to_str().ok()))
    }
}

/// The proxy of one node.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(super) names: Arc<Names>,
    backend: Backend,
    /// The node has no config: callers have no certificates, and no other node is reached through this one.
    pub(super) maintenance: bool,
}

impl Proxy {
    pub(super) fn new(names: Arc<Names>, backend: Backend) -> Self {
        Self { names, backend, maintenance: false }
    }

    /// Answers one request.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        caller: &Caller,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let roles = caller.roles(request.headers());
        if let Err(denied) = roles.authorize(&path, self.maintenance) {
            let peer = caller.peer.map_or_else(|| "an unknown peer".to_owned(), |peer| peer.to_string());
            eprintln!("apid: refused {peer}: {denied}");
            return refusal(&Status::permission_denied(denied.to_string()));
        }
        if self.maintenance {
            return self.pass(request, &roles).await;
        }
        let target = match target(&path, request.headers()) {
            Ok(target) => target,
            Err(status) => return refusal(&status),
        };
        match target {
            Target::Here => self.pass(request, &roles).await,
            Target::Node(name) if self.names.contains(&name) => self.pass(request, &roles).await,
            Target::Node(name) => refusal(&not_here(&name)),
            Target::Nodes(names) => self.gather(request, &roles, names).await,
        }
    }

    /// One to one, unmodified.
    async fn pass(&self, request: Request<Incoming>, roles: &RoleSet) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let request = for_machined(parts.uri.path(), &parts.headers, roles, body.boxed());
        match self.backend.call(request).await {
            Ok(response) => response.map(BodyExt::boxed),
            Err(error) => refusal(&Status::unavailable(error.to_string())),
        }
    }

    /// One to many, merged.
    async fn gather(
        self: &Arc<Self>,
        request: Request<Incoming>,
        roles: &RoleSet,
        names: Vec<String>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = match http_body_util::Limited::new(body, MAX_REQUEST_BYTES).collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) => return refusal(&Status::invalid_argument(format!("read the request: {error}"))),
        };
        let (sender, response) = streaming();
        let work = Gather {
            proxy: self.clone(),
            path: parts.uri.path().to_owned(),
            headers: parts.headers,
            roles: roles.clone(),
            body,
            sender,
        };
        tokio::spawn(work.run(names));
        response
    }
}

/// The answer for a node that is not this one.
fn not_here(name: &str) -> Status {
    Status::unimplemented(format!("{name} is not this node, and forwarding to other nodes is not built yet"))
}

/// The request as machined gets it: only what it needs, with the roles apid vouches for.
fn for_machined(path: &str, headers: &HeaderMap, roles: &RoleSet, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    let uri = Uri::builder().scheme("http").authority("machined").path_and_query(path).build();
    *request.uri_mut() = uri.unwrap_or_else(|_| Uri::from_static("http://machined/"));
    for name in ["content-type", "te", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding", "user-agent"]
    {
        if let Some(value) = headers.get(name) {
            request.headers_mut().insert(name, value.clone());
        }
    }
    for role in roles.names() {
        request.headers_mut().append("talos-role", HeaderValue::from_static(role));
    }
    request
}

/// One request to several nodes.
struct Gather {
    proxy: Arc<Proxy>,
    path: String,
    headers: HeaderMap,
    roles: RoleSet,
    body: Bytes,
    sender: BodySender,
}

impl Gather {
    async fn run(self, names: Vec<String>) {
        let stream = is_stream(&self.path);
        let mut merged = Vec::new();
        for name in &names {
            let result = if self.proxy.names.contains(name) {
                self.ask(name, stream).await
            } else {
                Err(not_here(name))
            };
            match result {
                Ok(element) => merged.extend(element),
                Err(status) if stream => drop(self.emit(&merge::stream_error(&status, name)).await),
                Err(status) => merged.extend(merge::unary_error(&status, name)),
            }
        }
        if !stream && self.emit(&merged).await.is_err() {
            return;
        }
        // The client may be gone.
        let _ = self.sender.send(Ok(Frame::trailers(ok_trailers()))).await;
    }

    async fn emit(&self, message: &[u8]) -> Result<(), Status> {
        let gone = |_| Status::cancelled("the client is gone");
        self.sender.send(Ok(Frame::data(frame(message)))).await.map_err(gone)
    }

    /// Asks this node. A stream is passed on message by message; of a unary answer the element is returned.
    async fn ask(&self, name: &str, stream: bool) -> Result<Vec<u8>, Status> {
        let body = http_body_util::Full::new(self.body.clone()).map_err(|never| match never {}).boxed();
        let request = for_machined(&self.path, &self.headers, &self.roles, body);
        let broken = |e: hyper::Error| Status::unavailable(format!("machined went away: {e}"));
        let mut response =
            self.proxy.backend.call(request).await.map_err(|e| Status::unavailable(e.to_string()))?;
        check(status_of(response.headers()))?;
        let mut messages = Messages::default();
        let mut element = None;
        loop {
            let next = tokio::select! {
                next = response.body_mut().frame() => next,
                // Without this a quiet log would be followed for a client that hung up long ago.
                () = self.sender.closed() => return Err(Status::cancelled("the client is gone")),
            };
            let Some(part) = next else { break };
            match part.map_err(broken)?.into_data() {
                Ok(data) => messages.push(&data),
                Err(rest) => check(rest.trailers_ref().and_then(status_of))?,
            }
            while let Some(message) = messages.next().map_err(Status::internal)? {
                if stream {
                    self.emit(&merge::stream(&message, name)).await?;
                } else {
                    element = Some(merge::unary(&message, name).map_err(Status::internal)?);
                }
            }
        }
        if stream { Ok(Vec::new()) } else { element.ok_or_else(|| Status::internal("unexpected EOF")) }
    }
}

fn check(status: Option<Status>) -> Result<(), Status> {
    match status {
        Some(status) if status.code() != tonic::Code::Ok => Err(status),
        _ => Ok(()),
    }
}
