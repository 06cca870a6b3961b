//! A TCP balancer: listens on addresses of the node itself and passes each connection to one of several API servers.
//!
//! | module | owns |
//! |---|---|
//! | `settings` | limits and times |
//! | `upstream` | what the caller names, and what is known of it |
//! | `choice` | which upstream is next, as a pure function |
//! | `pool` | the upstreams: health, turns, and the signal that ends connections |
//! | `dial` | look-up of names, connections with a deadline, options of sockets |
//! | `shared` | what all tasks use |
//! | `serve` | clients: a task for each listener, and one for each connection |
//! | `probe` | upstreams: a task for each, for as long as it is in the list |
//!
//! A connection goes to a healthy upstream of the lowest priority, there to the one with the fewest open connections, in
//! turn among equals. When the dial fails the next one is tried, unhealthy ones last, each once. With none left the client
//! is reset.
//!
//! Connections to an upstream that leaves the list, or that fails several probes in a row, are ended. HTTP/2 connections
//! last for ever: without this a kubelet would stay with an API server that is being removed, or wait on one whose host is
//! dead, although others answer. It connects again at once and reaches one of those. What fails on the node itself, look-ups of names
//! among it, ends nothing: open connections may be well.
//!
//! Owns: the listeners, the choice, probes, and the life of every connection.
//! Does not: know Kubernetes or TLS: bytes pass as they are. Find upstreams: the caller names them. Raise the limit of
//! descriptors: each connection takes two.
//! Order: settings and upstreams, choice, pool, dials, what is shared, clients and probes; each module uses those before it.
//! Fails by: resetting the client's connection, so that what was cut off never looks complete.
#![warn(missing_docs)]

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

mod choice;
mod dial;
mod pool;
mod probe;
mod serve;
mod settings;
mod shared;
mod upstream;

pub use settings::Settings;
pub use upstream::{Target, Upstream, UpstreamHealth};

use probe::Probes;
use shared::Shared;

/// Clients that wait to be accepted: all kubelets' connections may come at once when the node starts. The kernel caps it
/// (`net.core.somaxconn`).
const BACKLOG: i32 = 1024;

/// Why a balancer does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing to listen on.
    #[error("no address to listen on")]
    NoAddress,
    /// An address that is in use, or that the node does not have.
    #[error("listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Sockets that listen. Clients are accepted once [`Balancer::run`] is polled, until then they wait.
#[derive(Debug)]
pub struct Balancer {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
}

impl Balancer {
    /// Listens on all of the addresses.
    ///
    /// # Errors
    /// When there is no address, or one that the kernel refuses: then none is listened on.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn bind(addresses: &[SocketAddr], settings: Settings) -> Result<Self, Error> {
        let mut listeners = Vec::new();
        let mut bound = Vec::new();
        for &address in addresses {
            let opened = listen(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
            let (local, listener) = opened.map_err(|source| Error::Listen { address, source })?;
            bound.push(local);
            listeners.push(listener);
        }
        if listeners.is_empty() {
            return Err(Error::NoAddress);
        }
        let shared = Arc::new(Shared::new(settings, bound.clone()));
        Ok(Self { listeners, addresses: bound, shared })
    }

    /// The addresses that are listened on, in the caller's order: with the port that the kernel chose where it was 0.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What is known of each upstream, in the order of the list. The balancer sends after every dial and probe that changed
    /// something, which measured times do; the channel closes after [`Balancer::run`] is dropped.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Vec<UpstreamHealth>> {
        self.shared.pool().health()
    }

    /// Serves for as long as it is polled. Dropping it closes the listeners and resets all connections.
    ///
    /// The caller sends lists. An upstream is known by its address: one that is in the next list too keeps its connections,
    /// also when its priority changes. When the sender is dropped the last list remains.
    pub async fn run(self, mut upstreams: watch::Receiver<Vec<Upstream>>) -> Infallible {
        let mut probes = Probes::new(self.shared.clone());
        // Before clients are accepted: those that wait already would find no upstream.
        probes.follow(&upstreams.borrow_and_update());
        let mut servers = JoinSet::new();
        for listener in self.listeners {
            servers.spawn(serve::serve(listener, self.shared.clone()));
        }
        while upstreams.changed().await.is_ok() {
            probes.follow(&upstreams.borrow_and_update());
        }
        pending().await
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    // Connections of an earlier machined may still be ending.
    socket.set_reuse_address(true)?;
    if domain == Domain::IPV6 {
        // The other family has a listener of its own, or none on purpose.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}
