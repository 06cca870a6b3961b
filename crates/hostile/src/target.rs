//! Whom an attack is on, and how much of it there is.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::pki::Identity;
use api::tls::{self, Trust};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Fault;
use crate::strangers::Stranger;

/// For a connection that a busy server takes.
const CONNECT_DEADLINE: Duration = Duration::from_secs(30);
/// Handshakes at once that are to end well: an address may have 32 (docs/users/ports.md), and a further one ends the oldest.
const HANDSHAKES: usize = 16;

/// How much of each attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Seconds: in each run of the tests.
    Short,
    /// As many as are named: 10,000 connections.
    Long,
}

impl Form {
    /// The count of this form.
    #[must_use]
    pub fn count(self, short: u64, long: u64) -> u64 {
        match self {
            Self::Short => short,
            Self::Long => long,
        }
    }
}

/// Which server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// apid, 50000.
    Api,
    /// trustd, 50001.
    Trust,
}

impl Port {
    /// A call that every client of the port may make, with an empty request.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Api => "/machine.MachineService/Version",
            Self::Trust => "/securityapi.SecurityService/Certificate",
        }
    }
}

/// A server, and the certificate with which it is attacked.
#[derive(Debug, Clone)]
pub struct Target {
    /// Which server.
    pub port: Port,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where connections come from, in turn; none: as the kernel chooses.
    pub sources: Arc<[IpAddr]>,
    /// Certificates that must not be let in.
    pub strangers: Arc<[Stranger]>,
    /// Names by which the node passes a request on to itself and to another one.
    pub nodes: Arc<[String]>,
    pub(crate) config: Arc<ClientConfig>,
    authority: Arc<str>,
    next: Arc<AtomicUsize>,
    handshakes: Arc<Semaphore>,
    connecting: Arc<Mutex<()>>,
}

impl Target {
    /// A server whose certificate this authority (PEM) signed, attacked with this certificate, or with none.
    ///
    /// # Errors
    /// [`Fault::Connect`] for a certificate that TLS cannot use.
    pub fn new(
        port: Port,
        address: SocketAddr,
        authority: &str,
        identity: Option<&Identity>,
    ) -> Result<Self, Fault> {
        Ok(Self {
            port,
            address,
            sources: Arc::default(),
            strangers: Arc::default(),
            nodes: Arc::default(),
            config: client(authority, identity)?,
            authority: authority.into(),
            next: Arc::default(),
            handshakes: Arc::new(Semaphore::new(HANDSHAKES)),
            connecting: Arc::default(),
        })
    }

    /// The same target with another certificate.
    pub(crate) fn with(&self, identity: Option<&Identity>) -> Result<Self, Fault> {
        Ok(Self { config: client(&self.authority, identity)?, ..self.clone() })
    }

    /// The server's name as certificates have it.
    pub(crate) fn name(&self) -> ServerName<'static> {
        ServerName::from(self.address.ip())
    }

    /// Opens a TCP connection. One at a time: where more are opened than a server's backlog holds, the kernel tries the rest
    /// again a second later, and an attack would measure that.
    ///
    /// # Errors
    /// [`Fault::Connect`].
    pub async fn tcp(&self) -> Result<TcpStream, Fault> {
        let connect = async {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let source = number.checked_rem(self.sources.len()).and_then(|at| self.sources.get(at));
            let socket = if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            if let Some(source) = source {
                socket.bind(SocketAddr::new(*source, 0))?;
            }
            let stream = socket.connect(self.address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(stream)
        };
        let _connecting = self.connecting.lock().await;
        match timeout(CONNECT_DEADLINE, connect).await {
            Ok(connected) => connected.map_err(|error| Fault::Connect(error.to_string())),
            Err(_) => Err(Fault::Connect(format!("no answer within {CONNECT_DEADLINE:?}"))),
        }
    }

    /// The right to begin a handshake that is to end well.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.handshakes.acquire().await.ok()
    }

    /// Opens a connection and finishes its handshake, as far as the client sees.
    ///
    /// # Errors
    /// [`Fault::Connect`].
    pub async fn tls(&self) -> Result<TlsStream<TcpStream>, Fault> {
        let _turn = self.turn().await;
        let stream = self.tcp().await?;
        let handshake = TlsConnector::from(self.config.clone()).connect(self.name(), stream);
        match timeout(CONNECT_DEADLINE, handshake).await {
            Ok(shaken) => shaken.map_err(|error| Fault::Connect(error.to_string())),
            Err(_) => Err(Fault::Connect(format!("no handshake within {CONNECT_DEADLINE:?}"))),
        }
    }
}

fn client(authority: &str, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, Fault> {
    tls::client(Trust::Authority(authority), identity).map_err(|error| Fault::Connect(error.to_string()))
}
