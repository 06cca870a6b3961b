//! Sockets, and the loop.
//!
//! Order: all ports are bound before anything is answered, so that a missing right or another server is told at once.
//! Fails by: [`Error`] for what concerns everybody; one machine's fault is an [`Event`].

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dhcproto::v4::Message;
use dhcproto::{Decodable, Decoder, Encodable};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UdpSocket};
use tokio_rustls::TlsAcceptor;

use crate::dhcp::{Port, Reply, Responder};
use crate::event::{Known, Machine};
use crate::{Error, Event, Files, Pool, Range, Secure, files, http, interface, tftp, tls, uki};

/// Hears what happens.
pub type Tell = Arc<dyn Fn(Event) + Send + Sync>;

/// Ports of the protocols.
const DHCP: u16 = 67;
const PXE: u16 = 4011;
const TFTP: u16 = 69;
/// A machine that starts takes a second; who says nothing holds no connection.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(20);
/// Largest packet of an Ethernet without jumbo frames.
const PACKET_BYTES: usize = 1500;

/// What is served, and where.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The interface's name.
    pub interface: String,
    /// TCP port of scripts, bundle and configs.
    pub http_port: u16,
    /// The layers by HTTPS besides.
    pub secure: Option<Secure>,
    /// Addresses to hand out; without them another DHCP server does.
    pub range: Option<Range>,
}

/// A server whose ports are bound.
#[derive(Debug)]
pub struct Server {
    address: Ipv4Addr,
    files: Arc<Files>,
    responder: Mutex<Responder>,
    dhcp: UdpSocket,
    pxe: UdpSocket,
    tftp: Arc<UdpSocket>,
    http: TcpListener,
    https: Option<Https>,
}

/// A port whose clients shake hands.
struct Https {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl std::fmt::Debug for Https {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.listener.fmt(f)
    }
}

impl Server {
    /// Binds all ports of the interface.
    ///
    /// # Errors
    /// [`Error`] names the port and what to do.
    pub fn bind(settings: &Settings, files: Files) -> Result<Self, Error> {
        let interface = &settings.interface;
        let address = interface::address(interface)?;
        if let Some(range) = &settings.range {
            range.check(address)?;
        }
        let udp = |what, port, at: Ipv4Addr| {
            let bound = udp(interface, SocketAddrV4::new(at, port));
            bound.map_err(|source| Error::Listen { what, port, interface: interface.clone(), source })
        };
        // Broadcasts only reach a socket without an address.
        let dhcp = udp("DHCP", DHCP, Ipv4Addr::UNSPECIFIED)?;
        let pxe = udp("PXE", PXE, Ipv4Addr::UNSPECIFIED)?;
        let tftp = Arc::new(udp("TFTP", TFTP, address)?);
        let tcp = |what, port| {
            let bound = tcp(SocketAddrV4::new(address, port));
            bound.map_err(|source| Error::Listen { what, port, interface: interface.clone(), source })
        };
        let http = tcp("HTTP", settings.http_port)?;
        let socket = |source| Error::Socket { what: "HTTP", source };
        let http_port = http.local_addr().map_err(socket)?.port();
        let mut files = files.at(format!("{address}:{http_port}"));
        let https = match &settings.secure {
            Some(secure) => {
                let acceptor = TlsAcceptor::from(secure.config(address)?);
                let listener = tcp("HTTPS", secure.port)?;
                let port = listener.local_addr().map_err(socket)?.port();
                files = files.secured(secure.authority(address, port));
                Some(Https { listener, acceptor })
            }
            None => None,
        };
        let pool = settings.range.map(Pool::new);
        let responder = Mutex::new(Responder { address, http_port, loaders: files.loaders(), pool });
        Ok(Self { address, files: Arc::new(files), responder, dhcp, pxe, tftp, http, https })
    }

    /// The interface's address, at which files are.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Serves until a socket fails.
    ///
    /// # Errors
    /// [`Error::Socket`] of the one that failed.
    pub async fn serve(self, tell: Tell) -> Result<Infallible, Error> {
        let tell = naming(tell);
        let failed = |what| move |source| Error::Socket { what, source };
        tokio::select! {
            ended = self.answer_dhcp(&self.dhcp, Port::Dhcp, &tell) => ended.map_err(failed("DHCP")),
            ended = self.answer_dhcp(&self.pxe, Port::Pxe, &tell) => ended.map_err(failed("PXE")),
            ended = self.answer_tftp(&tell) => ended.map_err(failed("TFTP")),
            ended = self.answer_http(&tell) => ended.map_err(failed("HTTP")),
            ended = self.answer_https(&tell) => ended.map_err(failed("HTTPS")),
        }
    }

    async fn answer_dhcp(&self, socket: &UdpSocket, port: Port, tell: &Tell) -> io::Result<Infallible> {
        let mut buffer = [0; PACKET_BYTES];
        loop {
            let (count, from) = socket.recv_from(&mut buffer).await?;
            let packet = buffer.get(..count).unwrap_or_default();
            // Whatever else is broadcast to this port is nobody's fault here.
            let Ok(request) = Message::decode(&mut Decoder::new(packet)) else { continue };
            let reply = {
                let mut responder = self.responder.lock().unwrap_or_else(PoisonError::into_inner);
                responder.answer(&request, from, port, Instant::now(), &mut |event| tell(event))
            };
            let Some(Reply { message, to }) = reply else { continue };
            let sent = match message.to_vec() {
                Ok(bytes) => socket.send_to(&bytes, to).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = sent {
                tell(Event::Failed { to: to.ip().into(), by: "DHCP", name: "an answer".into(), reason });
            }
        }
    }

    async fn answer_tftp(&self, tell: &Tell) -> io::Result<Infallible> {
        let mut buffer = [0; PACKET_BYTES];
        loop {
            let (count, from) = self.tftp.recv_from(&mut buffer).await?;
            let request = match tftp::Request::read(buffer.get(..count).unwrap_or_default()) {
                Ok(request) => request,
                Err(error) => {
                    // It is told if that is possible; it asks again otherwise.
                    let _ = self.tftp.send_to(&error.answer(), from).await;
                    let (name, reason) = ("a request".into(), error.reason.into());
                    tell(Event::Failed { to: from.ip().into(), by: "TFTP", name, reason });
                    continue;
                }
            };
            let transfer = Transfer { us: self.address, from, request, socket: self.tftp.clone() };
            tokio::spawn(transfer.run(self.files.clone(), tell.clone()));
        }
    }

    async fn answer_http(&self, tell: &Tell) -> io::Result<Infallible> {
        loop {
            let (stream, from) = self.http.accept().await?;
            let client = http::Client { from, by: "HTTP" };
            tokio::spawn(serve(stream, client, self.files.clone(), tell.clone()));
        }
    }

    /// For ever nothing, where there is no certificate.
    async fn answer_https(&self, tell: &Tell) -> io::Result<Infallible> {
        let Some(https) = &self.https else { return std::future::pending().await };
        loop {
            let (stream, from) = https.listener.accept().await?;
            let client = http::Client { from, by: "HTTPS" };
            let (acceptor, files, tell) = (https.acceptor.clone(), self.files.clone(), tell.clone());
            tokio::spawn(async move {
                match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => serve(stream, client, files, tell).await,
                    Ok(Err(error)) => {
                        let (to, by, name) = (from.ip().into(), "HTTPS", "a connection".into());
                        if let Some(reason) = tls::reason(&error) {
                            tell(Event::Failed { to, by, name, reason });
                        }
                    }
                    // Whoever it was says nothing.
                    Err(_) => {}
                }
            });
        }
    }
}

/// A file that was asked for by TFTP.
struct Transfer {
    us: Ipv4Addr,
    from: SocketAddr,
    request: tftp::Request,
    /// Where it was asked for: what cannot be sent is told from there.
    socket: Arc<UdpSocket>,
}

impl Transfer {
    async fn run(self, files: Arc<Files>, tell: Tell) {
        let began = Instant::now();
        let Self { us, from, request, socket } = self;
        let sent = match files.clone().open_named(request.name.clone()).await {
            Some(Ok(file)) => tftp::send(us, from, &request, file).await,
            other => {
                let _ = socket.send_to(&tftp::not_found(), from).await;
                let none = || io::Error::new(io::ErrorKind::NotFound, "there is no such file");
                Err(other.and_then(Result::err).unwrap_or_else(none))
            }
        };
        let to = Machine { address: from.ip(), mac: files::owner(&request.name) };
        let (by, name) = ("TFTP", request.name);
        match sent {
            Ok(0) => {}
            Ok(bytes) => {
                tell(Event::Sent { to, by, name, bytes, took: began.elapsed() });
                files.start_of(to, uki::NAME).into_iter().for_each(|event| tell(event));
            }
            Err(error) => tell(Event::Failed { to, by, name, reason: error.to_string() }),
        }
    }
}

/// Answers what comes over one connection.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    client: http::Client,
    files: Arc<Files>,
    tell: Tell,
) {
    let service = service_fn(move |request| http::answer(request, client, files.clone(), tell.clone()));
    let connection = hyper::server::conn::http1::Builder::new();
    // A client that hangs up in the middle is seen by what it did not fetch.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

/// Tells of machines by their hardware address, once that is known.
fn naming(tell: Tell) -> Tell {
    let known = Mutex::new(Known::default());
    Arc::new(move |mut event| {
        known.lock().unwrap_or_else(PoisonError::into_inner).complete(&mut event);
        tell(event);
    })
}

fn udp(interface: &str, at: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_broadcast(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::V4(at).into())?;
    UdpSocket::from_std(socket.into())
}

fn tcp(at: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    // A server that is started again need not wait for the connections of the one before.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::V4(at).into())?;
    socket.listen(128)?;
    TcpListener::from_std(socket.into())
}
