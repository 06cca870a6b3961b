//! apid: the API's front end. TCP 50000, mutual TLS, roles, node selection; everything else is machined's.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | identity | machined's socket `apid.sock` | the certificate in use | with the process |
//! | accept loop | the inherited TCP socket (fd 3) | one task a connection | with the process |
//! | connection | requests | answers of machined or of other nodes, frame by frame | with its client |
//! | [`forward`], one a node | requests for it | its answers | when the connection breaks |
//!
//! Owns: who gets in and what each may call. Does not: know any message beyond the merge rules ([`merge`]).
//! Fails by: refusing, with one line that names peer and reason. A machined that is away delays answers by at most
//! [`backend::CONNECT_DEADLINE`].

// Numbers come from requests: a sum that overflows would end the program for everyone.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod backend;
mod forward;
mod frames;
mod gather;
mod merge;
mod peers;
mod proxy;
mod targets;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use api::pki::Identity;
use api::tls::{self, Identities};
use futures_util::StreamExt;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;

use peers::Peers;

use crate::configuration::locked::Maintenance;
use crate::identity::{Material, Role, Source, first_certificate};
use crate::server::SOCKET;

/// The API's port.
pub const PORT: u16 = 50000;
/// apid's user and group.
pub const USER: u32 = 50;
/// Where the listening socket is inherited.
pub const LISTENER_FD: i32 = 3;
/// Between attempts after a broken connection to machined.
const RECONNECT: Duration = Duration::from_millis(100);

/// What a connection needs to know of the node.
#[derive(Debug, Default)]
pub(crate) struct Names(RwLock<Vec<String>>);

impl Names {
    /// Whether a target means this node.
    pub(crate) fn contains(&self, target: &str) -> bool {
        let names = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        target == "localhost" || names.iter().any(|name| name == target)
    }

    fn replace(&self, names: &[String]) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = names.to_vec();
    }
}

/// Runs apid.
pub async fn run() -> Result<(), String> {
    let socket =
        sys::process::inherited(LISTENER_FD).map_err(|e| format!("take the listening socket: {e}"))?;
    let mut source = Source::connect(Role::Apid.socket()).await;
    let material = source.next().await.map_err(|e| format!("receive the certificate: {e}"))?;
    let server = Server::new(&material, SOCKET)?;
    let listener = listener(socket)?;
    let serving = tokio::spawn(server.clone().serve(listener));
    let renewing = server.renew(source, material.authority.clone());
    tokio::select! {
        result = renewing => result,
        ended = serving => Err(ended.map_or_else(|e| e.to_string(), |()| "the accept loop ended".to_owned())),
    }
}

fn listener(socket: OwnedFd) -> Result<TcpListener, String> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true).map_err(|e| format!("listen: {e}"))?;
    TcpListener::from_std(listener).map_err(|e| format!("listen: {e}"))
}

/// Between two questions whether a client is still there, and for its answer.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Bytes that a stream keeps for a client which is behind.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Everything that serves.
#[derive(Clone)]
pub(crate) struct Server {
    identities: Arc<Identities>,
    config: Arc<rustls::ServerConfig>,
    /// Clients of `machine.ca`, without those of further authorities.
    own: tls::Clients,
    peers: Peers,
    /// machined's socket.
    machined: Arc<Path>,
    proxy: Arc<proxy::Proxy>,
}

impl Server {
    /// A server with this certificate, in front of the machined at this socket.
    pub(crate) fn new(material: &Material, machined: &str) -> Result<Self, String> {
        Self::with_port(material, machined, PORT)
    }

    /// The same, with other nodes on this port.
    fn with_port(material: &Material, machined: &str, port: u16) -> Result<Self, String> {
        let identities = Identities::new(&identity(material)?).map_err(|e| e.to_string())?;
        let config = match material.maintenance {
            Maintenance::No => tls::server(&material.authority, identities.clone()),
            Maintenance::Open | Maintenance::Locked(_) => tls::server_without_clients(identities.clone()),
        };
        let config = config.map_err(|e| e.to_string())?;
        let names = Arc::new(Names::default());
        names.replace(&material.names);
        let forwarder = forward::Forwarder::new(port);
        forwarder.renew(material)?;
        let proxy = proxy::Proxy::new(names, forwarder, material.maintenance.clone());
        let proxy = Arc::new(proxy);
        let own = first_certificate(&material.authority);
        let own = tls::Clients::of(own).map_err(|e| e.to_string())?;
        let peers = match material.maintenance {
            Maintenance::No => peers::KNOWN,
            Maintenance::Open | Maintenance::Locked(_) => peers::UNKNOWN,
        };
        let peers = Peers::new(peers);
        Ok(Self { identities, config, own, peers, machined: Path::new(machined).into(), proxy })
    }

    /// Serves connections until the listener fails for good.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let mut incoming = tls::accept(listener, self.config.clone(), |refusal| eprintln!("apid: {refusal}"));
        while let Some(accepted) = incoming.next().await {
            let Ok(stream) = accepted else { continue };
            let (proxy, own, machined) = (self.proxy.clone(), self.own.clone(), self.machined.clone());
            let peer = stream.get_ref().0.peer_addr().map(|peer| peer.ip().to_canonical());
            let Some(held) = peer.ok().and_then(|peer| self.peers.hold(peer)) else {
                eprintln!(
                    "apid: refused a connection: its address has as many as it may, or all of them are taken"
                );
                continue;
            };
            tokio::spawn(async move {
                let _held = held;
                let caller = match proxy.maintenance() {
                    Maintenance::No => proxy::Caller::of(&stream, &own, &machined),
                    Maintenance::Open | Maintenance::Locked(_) => proxy::Caller::unknown(&stream, &machined),
                };
                let service = hyper::service::service_fn(move |request| {
                    let (proxy, caller) = (proxy.clone(), caller.clone());
                    async move { Ok::<_, std::convert::Infallible>(proxy.answer(&caller, request).await) }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .keep_alive_interval(KEEPALIVE)
                    .keep_alive_timeout(KEEPALIVE)
                    .max_concurrent_streams(backend::STREAMS)
                    .max_send_buf_size(SEND_BUFFER_BYTES)
                    .serve_connection(TokioIo::new(stream), service);
                // How a client hangs up is its own business.
                let _ = connection.await;
            });
        }
    }

    /// Takes new certificates as machined makes them.
    async fn renew(&self, mut source: Source, authority: String) -> Result<(), String> {
        loop {
            // An error here means that machined is gone for a moment: it is asked again below.
            let _ = source.acknowledge().await;
            while let Ok(material) = source.next().await {
                if material.authority != authority {
                    return Err("the API's authority changed: starting anew".to_owned());
                }
                self.take(&material)?;
                let _ = source.acknowledge().await;
            }
            tokio::time::sleep(RECONNECT).await;
            source = Source::connect(Role::Apid.socket()).await;
            match source.next().await {
                Ok(material) if material.authority == authority => self.take(&material)?,
                Ok(_) => return Err("the API's authority changed: starting anew".to_owned()),
                Err(_) => {}
            }
        }
    }
}

impl Server {
    fn take(&self, material: &Material) -> Result<(), String> {
        self.identities.replace(&identity(material)?).map_err(|e| e.to_string())?;
        self.proxy.names.replace(&material.names);
        self.proxy.set_maintenance(&material.maintenance);
        self.proxy.forwarder.renew(material)
    }
}

fn identity(material: &Material) -> Result<Identity, String> {
    Identity::from_pem("the API's certificate", &material.certificate, &material.key)
        .map_err(|e| e.to_string())
}

#[cfg(test)]
mod forward_tests;
#[cfg(test)]
mod panic_tests;
#[cfg(test)]
mod role_tests;
#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire_tests;
#[cfg(test)]
pub(crate) use sweep_tests::Schema;
#[cfg(test)]
pub(crate) use wire_tests::Raw;
