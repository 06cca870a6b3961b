//! Sockets, and the loop.
//!
//! Order: all ports are bound before anything is answered, so that a missing right or another server is told at once.
//! Fails by: [`Error`] for what concerns everybody; one machine's fault is an [`Event`], and so is what this host lacks for a
//! while ([`Patience`]). A connection on which nothing moves ends ([`idle`]).

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
use crate::patience::Patience;
use crate::{Error, Event, Files, Pool, Range, Secure, files, http, idle, interface, tftp, tls, uki};

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
        let (mut buffer, mut patience) = ([0; PACKET_BYTES], Patience::new("DHCP"));
        loop {
            let heard = socket.recv_from(&mut buffer).await;
            let Some((count, from)) = patience.hear(heard, tell).await? else { continue };
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
        let (mut buffer, mut patience) = ([0; PACKET_BYTES], Patience::new("TFTP"));
        loop {
            let heard = self.tftp.recv_from(&mut buffer).await;
            let Some((count, from)) = patience.hear(heard, tell).await? else { continue };
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
        let each =
            |stream, client| drop(tokio::spawn(serve(stream, client, self.files.clone(), tell.clone())));
        connections("HTTP", || self.http.accept(), tell, each).await
    }

    /// For ever nothing, where there is no certificate.
    async fn answer_https(&self, tell: &Tell) -> io::Result<Infallible> {
        let Some(https) = &self.https else { return std::future::pending().await };
        let each = |stream, client: http::Client| {
            let (acceptor, files, tell) = (https.acceptor.clone(), self.files.clone(), tell.clone());
            tokio::spawn(async move {
                match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => serve(stream, client, files, tell).await,
                    Ok(Err(error)) => {
                        let (to, by, name) = (client.from.ip().into(), client.by, "a connection".into());
                        if let Some(reason) = tls::reason(&error) {
                            tell(Event::Failed { to, by, name, reason });
                        }
                    }
                    // Whoever it was says nothing.
                    Err(_) => {}
                }
            });
        };
        connections("HTTPS", || https.listener.accept(), tell, each).await
    }
}

/// Hands on each connection, until the listener itself fails.
async fn connections<S, F: Future<Output = io::Result<(S, SocketAddr)>>>(
    by: &'static str,
    mut accept: impl FnMut() -> F,
    tell: &Tell,
    mut each: impl FnMut(S, http::Client),
) -> io::Result<Infallible> {
    let mut patience = Patience::new(by);
    loop {
        if let Some((stream, from)) = patience.hear(accept().await, tell).await? {
            each(stream, http::Client { from, by });
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

/// Answers what comes over one connection, until it is closed or nothing moves on it.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    client: http::Client,
    files: Arc<Files>,
    tell: Tell,
) {
    let hears = tell.clone();
    let service = service_fn(move |request| http::answer(request, client, files.clone(), tell.clone()));
    let connection = hyper::server::conn::http1::Builder::new();
    let stream = TokioIo::new(idle::Idle::new(stream));
    // A client that hangs up in the middle is seen by what it did not fetch.
    let Err(error) = connection.serve_connection(stream, service).await else { return };
    if let Some(stalled) = idle::stalled(&error).filter(|stalled| stalled.sends) {
        let (to, by, name) = (client.from.ip().into(), client.by, "a file".into());
        hears(Event::Failed { to, by, name, reason: stalled.to_string() });
    }
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rustix::io::Errno;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;

    const FROM: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7));

    fn hearing() -> (Arc<Mutex<Vec<Event>>>, Tell) {
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let hears = told.clone();
        (told, Arc::new(move |event| hears.lock().unwrap().push(event)))
    }

    #[tokio::test(start_paused = true)]
    async fn machines_are_served_after_one_that_broke_off_and_a_host_that_was_full() {
        let (told, tell) = hearing();
        let error = |errno: Errno| Err(io::Error::from_raw_os_error(errno.raw_os_error()));
        let mut accepted = VecDeque::from([
            Ok((1, FROM)),
            error(Errno::MFILE),
            error(Errno::MFILE),
            Ok((2, FROM)),
            error(Errno::CONNABORTED),
            Ok((3, FROM)),
            error(Errno::BADF),
        ]);
        let mut served = Vec::new();
        let accept = || std::future::ready(accepted.pop_front().unwrap());
        let ended = connections("HTTP", accept, &tell, |stream, _| served.push(stream)).await;
        assert_eq!(ended.unwrap_err().raw_os_error(), Some(Errno::BADF.raw_os_error()));
        assert_eq!(served, [1, 2, 3]);
        let told = told.lock().unwrap().clone();
        let wanted = [Some(true), Some(false)];
        let lasts = |event: &Event| match event {
            Event::Unheard { by: "HTTP", lasts, .. } => Some(*lasts),
            _ => None,
        };
        assert_eq!(told.iter().map(lasts).collect::<Vec<_>>(), wanted, "{told:?}");
    }

    /// A machine at a bundle with one file, which is longer than what the connection takes up.
    fn connected(folder: &tempfile::TempDir) -> (DuplexStream, Arc<Mutex<Vec<Event>>>) {
        std::fs::write(folder.path().join("boot.ipxe"), "#!ipxe\nkernel vmlinuz\n").unwrap();
        std::fs::write(folder.path().join("vmlinuz"), vec![7; 300 << 10]).unwrap();
        let files = Arc::new(Files::open(folder.path(), None).unwrap());
        let ((theirs, ours), (told, tell)) = (duplex(1 << 10), hearing());
        tokio::spawn(serve(ours, http::Client { from: FROM, by: "HTTP" }, files, tell));
        (theirs, told)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        // At once, in the middle of a request, after one that was answered.
        for begun in ["", "GET /bundle/vmlinuz HT", "HEAD /bundle/vmlinuz HTTP/1.1\r\nHost: a\r\n\r\n"] {
            let (mut theirs, told) = connected(&folder);
            theirs.write_all(begun.as_bytes()).await.unwrap();
            let mut answer = String::new();
            let closed = timeout(idle::LIMIT * 2, theirs.read_to_string(&mut answer)).await;
            closed.expect("it is closed").unwrap();
            assert_eq!(answer.starts_with("HTTP/1.1 200 OK"), begun.starts_with("HEAD"), "{answer}");
            assert_eq!(*told.lock().unwrap(), [], "it is nothing to tell of");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_takes_no_more_of_a_file_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let (mut theirs, told) = connected(&folder);
        theirs.write_all(b"GET /bundle/vmlinuz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        theirs.read_exact(&mut [0; 4096]).await.unwrap();
        tokio::time::sleep(idle::LIMIT * 2).await;
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() <= 1 << 10, "only what was under way came: {}", rest.len());
        let said: Vec<_> = told.lock().unwrap().iter().map(ToString::to_string).collect();
        let wanted = "127.0.0.1: a file by HTTP: the machine took nothing more of it for 60 s";
        assert!(said.iter().any(|said| said.starts_with(wanted)), "{said:?}");
    }
}
