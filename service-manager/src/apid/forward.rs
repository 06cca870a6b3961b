//! Other nodes: one HTTP/2 connection each over mutual TLS for each connection of a client, kept for its next request. As to
//! machined, streams that a client does not read hold up its own.
//!
//! Owns: this node's certificate as a client, and the connections made with it.
//! Does not: choose targets or merge answers. Fails by: a status that names the node; `PermissionDenied` on a node that
//! has no such certificate, since only a CA's holder can make one.
//! Source: docs/users/endpoint.md, docs/decisions/0020-a-client-has-connections-of-its-own.md.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use api::pki::Identity;
use api::tls::{self, Trust};
use http::Request;
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::Status;

use super::backend::{Body, CONNECTION_WINDOW, STREAM_WINDOW};
use crate::material::Material;

/// How long a node may take to answer the call of a connection, TLS included.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How often a quiet connection is asked whether it lives, and how long the answer may take.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

type Connection = Arc<Mutex<Option<SendRequest<Body>>>>;

/// The way to other nodes.
#[derive(Debug)]
pub(crate) struct Forwarder {
    port: u16,
    config: RwLock<Option<Arc<rustls::ClientConfig>>>,
}

/// The connections to other nodes that one connection of a client uses.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<HashMap<String, Connection>>);

impl Forwarder {
    /// A way over this port; closed until there is a certificate.
    pub(crate) fn new(port: u16) -> Self {
        Self { port, config: RwLock::new(None) }
    }

    /// Uses the certificate of this material for new connections.
    pub(crate) fn renew(&self, material: &Material) -> Result<(), String> {
        let config = match &material.forwarding {
            None => None,
            Some(forwarding) => {
                let what = "the forwarding certificate";
                let identity = Identity::from_pem(what, &forwarding.certificate, &forwarding.key)
                    .map_err(|e| e.to_string())?;
                let trust = Trust::Authority(&material.authority);
                Some(tls::client(trust, Some(&identity)).map_err(|e| e.to_string())?)
            }
        };
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Sends a request to a node and returns its answer.
    pub(crate) async fn call(
        &self,
        nodes: &Nodes,
        target: &str,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Status> {
        let mut sender = self.ready(nodes, target).await?;
        let broken = |e| Status::unavailable(format!("node {target} went away: {e}"));
        sender.send_request(request).await.map_err(broken)
    }

    async fn ready(&self, nodes: &Nodes, target: &str) -> Result<SendRequest<Body>, Status> {
        let name = ServerName::try_from(target.to_owned()).map_err(|_| {
            let text = format!("{target:?} is neither an address nor a host name without port");
            Status::invalid_argument(text)
        })?;
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(config) = config else {
            let text = format!("no request forwarding: {target} is not this node, which is no control plane");
            return Err(Status::permission_denied(text));
        };
        let slot = nodes.0.lock().await.entry(target.to_owned()).or_default().clone();
        let mut kept = slot.lock().await;
        if let Some(mut sender) = kept.take()
            && sender.ready().await.is_ok()
        {
            *kept = Some(sender.clone());
            return Ok(sender);
        }
        match timeout(CONNECT_DEADLINE, connect(target, name, self.port, config)).await {
            Ok(Ok(sender)) => {
                *kept = Some(sender.clone());
                Ok(sender)
            }
            failed => {
                // No slot stays behind for a name that nobody has.
                nodes.0.lock().await.remove(target);
                let seconds = CONNECT_DEADLINE.as_secs();
                let why = match failed {
                    Ok(Err(error)) => error,
                    _ => format!("no answer within {seconds} s (deadline connect)"),
                };
                Err(Status::unavailable(format!("connect to {target} port {}: {why}", self.port)))
            }
        }
    }
}

async fn connect(
    target: &str,
    name: ServerName<'static>,
    port: u16,
    config: Arc<rustls::ClientConfig>,
) -> Result<SendRequest<Body>, String> {
    let stream = TcpStream::connect((target, port)).await.map_err(|e| e.to_string())?;
    // Requests are small and somebody waits for each.
    let _ = stream.set_nodelay(true);
    let stream = tokio_rustls::TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|e| format!("TLS: {}", tls::reason(&e)))?;
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
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
