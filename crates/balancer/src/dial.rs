//! Connections to upstreams: look-up of names, deadlines, and the options of every socket.
//!
//! Owns: how long a dial takes, how many look-ups there are at a time.
//! Fails by: saying of the last address that was tried why it failed.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::pool::Failure;
use crate::settings::Settings;
use crate::upstream::Target;

/// Look-ups at a time. Each takes a thread of the runtime until the system's resolver answers, which without name servers
/// is later than any deadline here: the other users of those threads must not wait for them.
const LOOK_UPS: usize = 8;

/// A connection that is silent for 15 s is asked for three times: a dead peer is noticed after half a minute, about when
/// HTTP/2 clients in Go ask themselves. There is no TCP_USER_TIMEOUT: it would also end a connection whose reader pauses.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

/// The node has no memory, descriptors, buffers or ports left: ENOMEM, ENFILE, EMFILE, EADDRNOTAVAIL, ENOBUFS.
/// Source: asm-generic/errno-base.h and errno.h.
const SHORTAGES: [i32; 5] = [12, 23, 24, 99, 105];

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("look up {name}")]
    LookUp { name: String, source: io::Error },
    #[error("look up {name}: no answer in time")]
    LookUpTimeout { name: String },
    #[error("{name} has no address")]
    NoAddress { name: String },
    #[error("{address} is the balancer itself")]
    Itself { address: SocketAddr },
    #[error("connect to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("connect to {address}: no answer in time")]
    ConnectTimeout { address: SocketAddr },
}

impl Error {
    /// For the pool: with what the kernel or the resolver said.
    pub(crate) fn failure(&self) -> Failure {
        let is_of_peer = match self {
            Self::Connect { source, .. } => {
                !source.raw_os_error().is_some_and(|code| SHORTAGES.contains(&code))
            }
            Self::ConnectTimeout { .. } => true,
            Self::LookUp { .. }
            | Self::LookUpTimeout { .. }
            | Self::NoAddress { .. }
            | Self::Itself { .. } => false,
        };
        let text = self.source().map_or_else(|| self.to_string(), |source| format!("{self}: {source}"));
        Failure { text, is_of_peer }
    }
}

#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    pub(crate) took: Duration,
}

#[derive(Debug)]
pub(crate) struct Dialer {
    deadline: Duration,
    addresses: usize,
    /// The balancer's listeners: a connection to one would come back as a client's, without end.
    own: Vec<SocketAddr>,
    look_ups: Arc<Semaphore>,
}

impl Dialer {
    pub(crate) fn new(settings: &Settings, own: Vec<SocketAddr>) -> Self {
        let look_ups = Arc::new(Semaphore::new(LOOK_UPS));
        Self { deadline: settings.deadline, addresses: settings.addresses, own, look_ups }
    }

    /// One connection to a target, or the reason why none of its addresses gave one.
    pub(crate) async fn dial(&self, target: &Target) -> Result<Dialled, Error> {
        let end = Instant::now() + self.deadline;
        let addresses = self.addresses(target, end).await?;
        let none = || Err(Error::NoAddress { name: target.to_string() });
        self.first_of(&addresses, end).await.unwrap_or_else(none)
    }

    /// Tries addresses in the resolver's order. Each gets an equal share of the time that is left, so that a silent one
    /// leaves some to the next.
    async fn first_of(&self, addresses: &[SocketAddr], end: Instant) -> Option<Result<Dialled, Error>> {
        let mut result = None;
        let mut left = u32::try_from(addresses.len()).ok()?;
        for address in addresses {
            let share = end.saturating_duration_since(Instant::now()) / left;
            left -= 1;
            result = Some(self.connect(*address, share).await);
            if let Some(Ok(_)) = result {
                break;
            }
        }
        result
    }

    async fn addresses(&self, target: &Target, end: Instant) -> Result<Vec<SocketAddr>, Error> {
        let (name, port) = match target {
            Target::Address(address) => return Ok(vec![*address]),
            Target::Host { name, port } => (name.clone(), *port),
        };
        let most = self.addresses;
        let asked = name.clone();
        let look_up = async move { Ok(lookup_host((asked, port)).await?.take(most).collect()) };
        match timeout_at(end, limited(&self.look_ups, look_up)).await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(source)) => Err(Error::LookUp { name, source }),
            Err(_) => Err(Error::LookUpTimeout { name }),
        }
    }

    async fn connect(&self, address: SocketAddr, deadline: Duration) -> Result<Dialled, Error> {
        if self.own.contains(&address) {
            return Err(Error::Itself { address });
        }
        let start = Instant::now();
        let failed = |source| Error::Connect { address, source };
        let connected = timeout(deadline, TcpStream::connect(address)).await;
        let stream = connected.map_err(|_| Error::ConnectTimeout { address })?.map_err(failed)?;
        let took = start.elapsed();
        prepare(&stream).map_err(failed)?;
        Ok(Dialled { stream, took })
    }
}

/// Does work that cannot be stopped under a permit. When the caller gives up the work keeps its permit until it is done.
async fn limited<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    work: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let permit = permits.clone().acquire_owned().await.map_err(io::Error::other)?;
    let work = async move {
        let done = work.await;
        drop(permit);
        done
    };
    tokio::spawn(work).await?
}

/// Options of a client's or an upstream's socket. It is reset when it is dropped, unless [`finish`] came before.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_linger(Some(Duration::ZERO))
}

/// Both sides have said that they are done: what is on its way still arrives.
pub(crate) fn finish(stream: &TcpStream) {
    // An error is of a connection that is over already.
    let _ = SockRef::from(stream).set_linger(None);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::future::pending;

    use tokio::net::TcpListener;

    use super::*;

    fn dialer(deadline: Duration, own: Vec<SocketAddr>) -> Dialer {
        Dialer::new(&Settings { deadline, ..Settings::default() }, own)
    }

    fn host(name: &str, port: u16) -> Target {
        Target::Host { name: name.into(), port }
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn sockets_notice_dead_peers_and_send_at_once() {
        let (listener, address) = listener().await;
        let dialled = dialer(Duration::from_secs(10), Vec::new()).dial(&address.into()).await.unwrap();
        let socket = SockRef::from(&dialled.stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(15));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(5));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
        finish(&dialled.stream);
        assert_eq!(socket.linger().unwrap(), None);
        drop(listener);
    }

    #[tokio::test]
    async fn a_name_is_looked_up_and_its_addresses_are_tried() {
        let (_listener, address) = listener().await;
        let dialer = dialer(Duration::from_secs(10), Vec::new());
        // ::1 may come first, where nothing listens.
        let dialled = dialer.dial(&host("localhost", address.port())).await.unwrap();
        assert_eq!(dialled.stream.peer_addr().unwrap(), address);
        let error = dialer.dial(&host("no name", 1)).await.unwrap_err().failure().text;
        assert!(error.starts_with("look up no name: "), "{error}");
        let few = Dialer { addresses: 0, ..dialer };
        let error = few.dial(&host("localhost", address.port())).await.unwrap_err().failure().text;
        assert_eq!(error, format!("localhost:{} has no address", address.port()));
    }

    #[tokio::test]
    async fn the_balancer_does_not_connect_to_itself() {
        let (_listener, address) = listener().await;
        let error = dialer(Duration::from_secs(10), vec![address]).dial(&address.into()).await.unwrap_err();
        assert_eq!(error.failure().text, format!("{address} is the balancer itself"));
    }

    #[tokio::test]
    async fn a_silent_address_has_a_deadline() {
        let (_listener, _queued, address) = silent().await;
        let error = dialer(Duration::from_millis(50), Vec::new()).dial(&address.into()).await.unwrap_err();
        assert_eq!(error.failure().text, format!("connect to {address}: no answer in time"));
    }

    #[tokio::test]
    async fn each_address_gets_its_share_of_the_deadline() {
        let (_listener, good) = listener().await;
        let (_silent, _queued, silent) = silent().await;
        let refusing = SocketAddr::from(([127, 78, 0, 1], good.port()));
        let dialer = dialer(Duration::from_secs(2), Vec::new());
        let first_of = async |addresses: &[SocketAddr]| {
            dialer.first_of(addresses, Instant::now() + dialer.deadline).await
        };
        let start = Instant::now();
        let dialled = first_of(&[refusing, silent, good]).await.unwrap().unwrap();
        assert!(start.elapsed() < dialer.deadline, "the silent one had half of it");
        assert_eq!(dialled.stream.peer_addr().unwrap(), good);
        let error = first_of(&[silent, refusing]).await.unwrap().unwrap_err();
        assert!(error.to_string().ends_with(&refusing.to_string()), "{error}");
        assert!(first_of(&[good, refusing]).await.unwrap().is_ok());
        assert!(first_of(&[]).await.is_none());
    }

    /// A listener whose queue is full: the kernel drops further SYNs.
    pub(crate) async fn silent() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
            queued.push(stream.unwrap());
        }
        (listener, queued, address)
    }

    #[test]
    fn a_shortage_of_the_node_is_not_the_peers() {
        let address: SocketAddr = "192.0.2.1:6443".parse().unwrap();
        for (code, is_of_peer) in [(24, false), (105, false), (111, true), (113, true)] {
            let source = io::Error::from_raw_os_error(code);
            assert_eq!(Error::Connect { address, source }.failure().is_of_peer, is_of_peer, "{code}");
        }
        assert!(Error::ConnectTimeout { address }.failure().is_of_peer);
        assert!(!Error::LookUpTimeout { name: "api".into() }.failure().is_of_peer);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_given_up_keeps_its_permit() {
        let permits = Arc::new(Semaphore::new(1));
        assert_eq!(limited(&permits, async { Ok(7) }).await.unwrap(), 7);
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, limited(&permits, pending::<io::Result<()>>())).await.is_err());
        assert!(timeout(wait, limited(&permits, async { Ok(()) })).await.is_err());
    }
}
