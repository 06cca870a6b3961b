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
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::dhcp::{Port, Reply, Responder};
use crate::event::Known;
use crate::interface::PACKET_BYTES;
use crate::patience::Patience;
use crate::places::{Full, Limits, Place, Places};
use crate::rate::{Rate, Rates};
use crate::{Error, Event, Files, Pool, Range, Secure, Tell, dhcp, http, idle, interface, tftp, tls};

/// Ports of the protocols.
const DHCP: u16 = 67;
const PXE: u16 = 4011;
const TFTP: u16 = 69;
/// A machine that starts takes a second; who says nothing holds no connection.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Until a request is whole, and between two of one connection.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// A request's line and headers: firmware's have a few hundred bytes.
const HEADERS_BYTES: usize = 8 << 10;
const HEADERS: usize = 64;
/// What is kept of one connection's answers beside the pieces of the file.
const BUFFER_BYTES: usize = 64 << 10;
/// iPXE and init have one connection, firmware two.
const CONNECTIONS: Limits = Limits { of_peer: 16, of_all: 256 };
/// A card asks four times in the first 15 seconds, twice for each of firmware, iPXE and the system.
const EACH_CARD: Rate = Rate::new(8, Duration::from_millis(500));
/// A room full of machines that are turned on at once.
const ALL_CARDS: Rate = Rate::new(256, Duration::from_millis(10));
/// Lines that say so.
const COMPLAINTS: Rate = Rate::new(1, Duration::from_secs(10));

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
    desk: Mutex<Desk>,
    dhcp: UdpSocket,
    pxe: UdpSocket,
    tftp: Arc<tftp::serve::Service>,
    connections: Places,
    http: TcpListener,
    https: Option<Https>,
}

/// Who answers DHCP, and how often.
#[derive(Debug)]
struct Desk {
    responder: Responder,
    rates: Rates,
    complaints: Rate,
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
        let network = interface::network(interface)?;
        let address = network.address;
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
        let tftp = udp("TFTP", TFTP, address)?;
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
        let responder = Responder { address, http_port, loaders: files.loaders(), pool };
        let files = Arc::new(files);
        let tftp = Arc::new(tftp::serve::Service::new(network, tftp, files.clone()));
        let (desk, connections) = (Mutex::new(Desk::new(responder)), Places::new(CONNECTIONS));
        Ok(Self { address, files, desk, dhcp, pxe, tftp, connections, http, https })
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
            ended = self.tftp.serve(&tell) => ended.map_err(failed("TFTP")),
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
            let Some(request) = dhcp::read(packet) else { continue };
            let reply = {
                let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
                desk.answer(&request, from, port, Instant::now(), tell)
            };
            let Some(reply) = reply else { continue };
            let to = reply.to;
            let sent = match reply.packet(port, count) {
                Ok(Some(bytes)) => socket.send_to(&bytes, to).await.map_err(|error| error.to_string()),
                Ok(None) => Err("it would have more bytes than the request".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = sent {
                tell(Event::Failed { to: to.ip().into(), by: "DHCP", name: "an answer".into(), reason });
            }
        }
    }

    async fn answer_http(&self, tell: &Tell) -> io::Result<Infallible> {
        let each = |stream, client: http::Client, place| {
            let (files, tell) = (self.files.clone(), tell.clone());
            tokio::spawn(while_it_has_its_place(place, move |place| {
                serve(stream, client, place, files, tell)
            }));
        };
        connections("HTTP", &self.connections, || self.http.accept(), tell, each).await
    }

    /// For ever nothing, where there is no certificate.
    async fn answer_https(&self, tell: &Tell) -> io::Result<Infallible> {
        let Some(https) = &self.https else { return std::future::pending().await };
        let each = |stream, client: http::Client, place| {
            let (acceptor, files, tell) = (https.acceptor.clone(), self.files.clone(), tell.clone());
            tokio::spawn(while_it_has_its_place(place, move |place| async move {
                match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => serve(stream, client, place, files, tell).await,
                    Ok(Err(error)) => {
                        let (to, by, name) = (client.from.ip().into(), client.by, "a connection".into());
                        if let Some(reason) = tls::reason(&error) {
                            tell(Event::Failed { to, by, name, reason });
                        }
                    }
                    // Whoever it was says nothing.
                    Err(_) => {}
                }
            }));
        };
        connections("HTTPS", &self.connections, || https.listener.accept(), tell, each).await
    }
}

impl Desk {
    fn new(responder: Responder) -> Self {
        Self { responder, rates: Rates::new(EACH_CARD, ALL_CARDS), complaints: COMPLAINTS }
    }

    fn answer(
        &mut self,
        request: &Message,
        from: SocketAddr,
        port: Port,
        now: Instant,
        tell: &Tell,
    ) -> Option<Reply> {
        let mac = self.responder.concerned(request)?;
        if !self.rates.take(mac, now) {
            if self.complaints.take(now) {
                let reason = "too many at once: some get no answer".to_owned();
                tell(Event::Failed { to: from.ip().into(), by: "DHCP", name: "requests".into(), reason });
            }
            return None;
        }
        self.responder.answer(request, from, port, now, &mut |event| tell(event))
    }
}

/// A connection's place, and what ends when it was given to another one.
type Admitted = (Place, oneshot::Receiver<()>);

/// Serves a connection until it ends, or a newer one takes its place.
async fn while_it_has_its_place<F: Future<Output = ()>>(
    (place, given_away): Admitted,
    serve: impl FnOnce(Arc<Place>) -> F,
) {
    tokio::select! {
        () = serve(Arc::new(place)) => {}
        _ = given_away => {}
    }
}

/// Hands on each connection that gets a place, until the listener itself fails.
async fn connections<S, F: Future<Output = io::Result<(S, SocketAddr)>>>(
    by: &'static str,
    places: &Places,
    mut accept: impl FnMut() -> F,
    tell: &Tell,
    mut each: impl FnMut(S, http::Client, Admitted),
) -> io::Result<Infallible> {
    let (mut patience, mut complaints) = (Patience::new(by), COMPLAINTS);
    loop {
        let Some((stream, from)) = patience.hear(accept().await, tell).await? else { continue };
        match places.admit(from) {
            Ok(admitted) => each(stream, http::Client { from, by }, admitted),
            Err(Full::Served | Full::Taken) if complaints.take(Instant::now()) => {
                let reason = "too many at once: it is closed".to_owned();
                tell(Event::Failed { to: from.ip().into(), by, name: "a connection".into(), reason });
            }
            Err(_) => {}
        }
    }
}

/// Answers what comes over one connection, until it is closed or nothing moves on it.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    client: http::Client,
    place: Arc<Place>,
    files: Arc<Files>,
    tell: Tell,
) {
    let hears = tell.clone();
    let service = service_fn(move |request| {
        place.prove();
        http::answer(request, client, files.clone(), tell.clone())
    });
    let mut connection = hyper::server::conn::http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(REQUEST_LIMIT);
    connection.max_header_size(HEADERS_BYTES).max_headers(HEADERS).max_buf_size(BUFFER_BYTES);
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
        let places = Places::new(CONNECTIONS);
        let ended = connections("HTTP", &places, accept, &tell, |stream, _, _| served.push(stream)).await;
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
    fn connected(directory: &tempfile::TempDir) -> (DuplexStream, Arc<Mutex<Vec<Event>>>) {
        std::fs::write(directory.path().join("boot.ipxe"), "#!ipxe\nkernel vmlinuz\n").unwrap();
        std::fs::write(directory.path().join("vmlinuz"), vec![7; 300 << 10]).unwrap();
        let files = Arc::new(Files::open(directory.path(), None).unwrap());
        let ((theirs, ours), (told, tell)) = (duplex(1 << 10), hearing());
        let admitted = Places::new(CONNECTIONS).admit(FROM).unwrap();
        let client = http::Client { from: FROM, by: "HTTP" };
        tokio::spawn(while_it_has_its_place(admitted, move |place| serve(ours, client, place, files, tell)));
        (theirs, told)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        // At once, in the middle of a request, after one that was answered.
        for begun in ["", "GET /bundle/vmlinuz HT", "HEAD /bundle/vmlinuz HTTP/1.1\r\nHost: a\r\n\r\n"] {
            let (mut theirs, told) = connected(&directory);
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
        let directory = tempfile::tempdir().unwrap();
        let (mut theirs, told) = connected(&directory);
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

    #[tokio::test(start_paused = true)]
    async fn a_request_that_comes_by_the_byte_or_is_too_long_ends() {
        let directory = tempfile::tempdir().unwrap();
        // A byte every ten seconds keeps no connection.
        let (theirs, _) = connected(&directory);
        let (mut reads, mut writes) = tokio::io::split(theirs);
        let slow = tokio::spawn(async move {
            for byte in b"GET /bundle/vmlinuz HTTP/1.1\r\n" {
                tokio::time::sleep(Duration::from_secs(10)).await;
                if writes.write_all(&[*byte]).await.is_err() {
                    return;
                }
            }
        });
        let began = tokio::time::Instant::now();
        let closed = timeout(REQUEST_LIMIT * 2, reads.read_to_end(&mut Vec::new())).await;
        closed.expect("it is closed").unwrap();
        assert!(began.elapsed() <= REQUEST_LIMIT + Duration::from_secs(1), "{:?}", began.elapsed());
        slow.await.unwrap();

        let long = format!("GET /bundle/vmlinuz HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(HEADERS_BYTES));
        let many = format!("GET /bundle/vmlinuz HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(HEADERS + 1));
        for request in [long, many] {
            let (theirs, _) = connected(&directory);
            let (mut reads, mut writes) = tokio::io::split(theirs);
            // What is left of it is not read.
            let sends = tokio::spawn(async move { drop(writes.write_all(request.as_bytes()).await) });
            let mut answer = String::new();
            timeout(REQUEST_LIMIT * 2, reads.read_to_string(&mut answer)).await.unwrap().unwrap();
            assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
            sends.await.unwrap();
        }
    }

    /// Over loopback, from addresses of its own.
    #[tokio::test]
    async fn an_address_has_few_connections_and_silent_ones_go_first() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("boot.ipxe"), "#!ipxe\nkernel vmlinuz\n").unwrap();
        std::fs::write(directory.path().join("vmlinuz"), vec![7; 64 << 20]).unwrap();
        let files = Arc::new(Files::open(directory.path(), None).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (places, (told, tell)) = (Places::new(CONNECTIONS), hearing());
        let of_server = places.clone();
        tokio::spawn(async move {
            let each = |stream, client: http::Client, admitted| {
                let (files, tell) = (files.clone(), tell.clone());
                let serves = move |place| serve(stream, client, place, files, tell);
                drop(tokio::spawn(while_it_has_its_place(admitted, serves)));
            };
            connections("HTTP", &of_server, || listener.accept(), &tell, each).await
        });
        let connect = async |host: u8| {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from(([127, 2, 0, host], 0))).unwrap();
            socket.connect(at).await.unwrap()
        };
        let until_closed = async |stream: &mut tokio::net::TcpStream| {
            let read = timeout(Duration::from_secs(20), stream.read(&mut [0])).await;
            !matches!(read.expect("it is closed"), Ok(count) if count > 0)
        };
        // One that fetches and takes nothing of it, then silent ones: the first of these goes.
        let mut fetches = connect(1).await;
        fetches.write_all(b"GET /bundle/vmlinuz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        fetches.read_exact(&mut [0; 15]).await.unwrap();
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS.of_peer {
            silent.push(connect(1).await);
        }
        assert!(until_closed(&mut silent[0]).await);
        assert!(places.taken() <= CONNECTIONS.of_peer);
        // All others together.
        for host in 2..=255 {
            for _ in 0..2 {
                silent.push(connect(host).await);
            }
            assert!(places.taken() <= CONNECTIONS.of_all);
        }
        assert!(until_closed(&mut silent[1]).await);
        fetches.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
        assert_eq!(*told.lock().unwrap(), []);
    }

    #[test]
    fn cards_that_are_made_up_are_answered_a_hundred_times_a_second() {
        let pool = Some(Pool::new("10.0.0.10-10.0.3.250/16".parse().unwrap()));
        let loaders = crate::dhcp::Loaders::default();
        let responder = Responder { address: Ipv4Addr::new(10, 0, 0, 1), http_port: 8080, loaders, pool };
        let (mut desk, (told, tell), now) = (Desk::new(responder), hearing(), Instant::now());
        let nobody = Ipv4Addr::UNSPECIFIED;
        let mut answered = |card: u32, at: Duration| {
            let [a, b, c, d] = card.to_be_bytes();
            let mut request = Message::new_with_id(7, nobody, nobody, nobody, nobody, &[2, 0, a, b, c, d]);
            let kind = dhcproto::v4::MessageType::Discover;
            request.opts_mut().insert(dhcproto::v4::DhcpOption::MessageType(kind));
            desk.answer(&request, FROM, Port::Dhcp, now + at, &tell).is_some()
        };
        assert_eq!((0..20).filter(|_| answered(1, Duration::ZERO)).count(), 8);
        assert_eq!((2..10_000).filter(|card| answered(*card, Duration::ZERO)).count(), 248);
        let second = Duration::from_secs(1);
        assert_eq!((2..10_000).filter(|card| answered(*card, second)).count(), 100);
        let told = told.lock().unwrap();
        let said = "127.0.0.1: requests by DHCP: too many at once: some get no answer";
        assert_eq!(told.iter().map(ToString::to_string).collect::<Vec<_>>(), [said]);
    }
}
