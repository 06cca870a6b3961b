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
//! Fails by: refusing. Each call is a line of the log, each refused connection one with peer and reason ([`calls`] bounds them). A machined that is away delays answers by at most
//! [`backend::CONNECT_DEADLINE`].

// Numbers come from requests: a sum that overflows would end the program for everyone.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod backend;
mod bodies;
mod calls;
mod clients;
mod forward;
mod frames;
mod gather;
mod merge;
mod names;
mod proxy;
mod targets;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::pki::Identity;
use api::tls::{self, Identities};
use futures_util::StreamExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

use clients::{Client, Clients};
use names::Names;
use runtime::request::Report;

use crate::connections::http2;
use crate::locked::Maintenance;
use crate::material::{Material, Source, first_certificate};
use crate::programs::{LISTENER_FD, MACHINED_SOCKET, Program};

/// Between attempts after a broken connection to machined.
const RECONNECT: Duration = Duration::from_millis(100);

/// Runs apid.
pub async fn run() -> Result<(), String> {
    let socket =
        sys::process::inherited(LISTENER_FD).map_err(|e| format!("take the listening socket: {e}"))?;
    let mut source = Source::connect(Program::Apid.socket()).await;
    let material = source.next().await.map_err(|e| format!("receive the certificate: {e}"))?;
    let server = Server::new(&material, MACHINED_SOCKET, Arc::new(|line| eprintln!("apid: {line}")))?;
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

/// HTTP/2 of a client's connection. A request may have a mebibyte under way, for uploads over long distances.
const LIMITS: http2::Limits =
    http2::Limits { streams: backend::STREAMS, stream_window: 1 << 20, connection_window: 1 << 20 };

/// Everything that serves.
#[derive(Clone)]
pub(crate) struct Server {
    identities: Arc<Identities>,
    config: Arc<rustls::ServerConfig>,
    /// Clients of `machine.ca`, without those of further authorities.
    own: tls::Clients,
    clients: Clients,
    /// machined's socket.
    machined: Arc<Path>,
    proxy: Arc<proxy::Proxy>,
}

impl Server {
    /// A server with this certificate, in front of the machined at this socket.
    pub(crate) fn new(material: &Material, machined: &str, report: Report) -> Result<Self, String> {
        Self::with_port(material, machined, Program::Apid.port(), report)
    }

    /// The same, with other nodes on this port.
    fn with_port(material: &Material, machined: &str, port: u16, report: Report) -> Result<Self, String> {
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
        let proxy = proxy::Proxy::new(names, forwarder, material.maintenance.clone(), report);
        let proxy = Arc::new(proxy);
        let own = first_certificate(&material.authority);
        let own = tls::Clients::of(own).map_err(|e| e.to_string())?;
        let clients = Clients::new(&material.maintenance);
        Ok(Self { identities, config, own, clients, machined: Path::new(machined).into(), proxy })
    }

    /// Serves connections until the listener fails for good.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let log = self.proxy.log.clone();
        let mut incoming = tls::accept(listener, self.config.clone(), move |refusal| {
            log.refused(&Client::Address(tls::network(refusal.peer.ip())), || refusal.to_string());
        });
        while let Some(accepted) = incoming.next().await {
            let Ok(stream) = accepted else { continue };
            let Ok(peer) = stream.get_ref().0.peer_addr() else { continue };
            let client = client(&stream, peer.ip(), self.proxy.maintenance());
            let Some(connection) = self.clients.connect(peer.ip(), &client) else {
                let peer = peer.ip();
                self.proxy.log.refused(&client, || {
                    format!(
                        "refused {peer}: its address or its certificate has as many connections as it may"
                    )
                });
                continue;
            };
            let caller = self.caller(&stream, client);
            let proxy = self.proxy.clone();
            let serving = http2::serve(stream, LIMITS, move |request| {
                let (proxy, caller) = (proxy.clone(), caller.clone());
                async move { proxy.answer(&caller, request).await }
            });
            tokio::spawn(connection.until_ended(serving));
        }
    }

    fn caller(&self, stream: &TlsStream<TcpStream>, client: Client) -> proxy::Caller {
        let places = (self.clients.clone(), client);
        match self.proxy.maintenance() {
            Maintenance::No => proxy::Caller::of(stream, &self.own, &self.machined, places),
            Maintenance::Open | Maintenance::Locked(_) => {
                proxy::Caller::unknown(stream, &self.machined, places)
            }
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
            source = Source::connect(Program::Apid.socket()).await;
            match source.next().await {
                Ok(material) if material.authority == authority => self.take(&material)?,
                Ok(_) => return Err("the API's authority changed: starting anew".to_owned()),
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
impl Server {
    /// Places that clients hold.
    fn held(&self) -> usize {
        self.clients.held()
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

/// Whose places a connection takes.
fn client(stream: &TlsStream<TcpStream>, address: std::net::IpAddr, maintenance: Maintenance) -> Client {
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    match certificate.filter(|_| maintenance == Maintenance::No) {
        Some(certificate) => Client::Certificate(certificate.as_ref().into()),
        None => Client::Address(tls::network(address)),
    }
}

fn identity(material: &Material) -> Result<Identity, String> {
    Identity::from_pem("the API's certificate", &material.certificate, &material.key)
        .map_err(|e| e.to_string())
}

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod forward_tests;
#[cfg(test)]
mod hostile_tests;
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
