//! Accepting connections.
//!
//! Owns: handshakes side by side with deadlines and limits, so that a peer that says nothing holds up nobody, and
//! the last words to a refused peer. Does not: log; a [`Refusal`] goes to the caller's function.
//! Limits: [`SILENT`] connections that have sent nothing, [`HANDSHAKES`] in a handshake, [`HANDSHAKES_OF_PEER`] of both of one
//! address. A further one ends the oldest of its kind of the address that has most of them: a client far away, whose first
//! byte takes a while, keeps its place beside one that opens hundreds.

use super::refusal::{Refusal, reason};
use rustls::ServerConfig;
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;

/// How long a peer may take to show who it is.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a peer may take to its first byte.
pub const FIRST_BYTE_DEADLINE: Duration = Duration::from_secs(3);
/// How long a refused peer's remaining bytes are read, so that the alert is not lost to a reset.
const LINGER: Duration = Duration::from_secs(1);
/// Connections that have sent nothing. Each is a descriptor and a small task.
const SILENT: usize = 512;
/// Connections between their first byte and the end of their handshake.
const HANDSHAKES: usize = 128;
/// Both of one address.
const HANDSHAKES_OF_PEER: usize = 32;
/// Wait after an accept that failed for want of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Authenticated connections, for tonic's `serve_with_incoming`.
pub type Incoming = ReceiverStream<io::Result<TlsStream<TcpStream>>>;

/// Accepts on `listener` until the answer is dropped. `on_refusal` is told of each peer that is not let in.
pub fn accept(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    on_refusal: impl Fn(Refusal) + Clone + Send + 'static,
) -> Incoming {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(accept_loop(listener, TlsAcceptor::from(config), sender, on_refusal));
    ReceiverStream::new(receiver)
}

/// The network by which an address is counted: a machine has every address of its /64 in IPv6 (RFC 4291 §2.5.4).
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

type Sender = mpsc::Sender<io::Result<TlsStream<TcpStream>>>;

async fn accept_loop(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    sender: Sender,
    on_refusal: impl Fn(Refusal) + Clone + Send + 'static,
) {
    let waiting = Waiting::default();
    loop {
        let accepted = tokio::select! {
            () = sender.closed() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let (place, ended) = waiting.admit(network(peer.ip()));
        let (acceptor, sender, on_refusal) = (acceptor.clone(), sender.clone(), on_refusal.clone());
        tokio::spawn(async move {
            let admitted = async {
                if only_looks(&stream).await {
                    return None;
                }
                place.spoke();
                Some(handshake(acceptor, stream, peer).await)
            };
            let shaken = tokio::select! {
                shaken = admitted => shaken,
                // Its place was given to a newer connection.
                _ = ended => return,
            };
            drop(place);
            match shaken {
                Some(Ok(stream)) => drop(sender.send(Ok(stream)).await),
                Some(Err(refusal)) => on_refusal(refusal),
                None => {}
            }
        });
    }
}

/// Connections that have not shown who they are.
#[derive(Debug, Clone, Default)]
struct Waiting(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    next: u64,
    /// Oldest first.
    places: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    peer: IpAddr,
    spoke: bool,
    /// Dropped, it ends the connection.
    _end: oneshot::Sender<()>,
}

/// One connection's place, until the value is dropped.
#[derive(Debug)]
struct Place {
    waiting: Waiting,
    number: u64,
}

impl Waiting {
    /// A place for a connection of this peer, and what tells when it was given away.
    fn admit(&self, peer: IpAddr) -> (Place, oneshot::Receiver<()>) {
        let mut line = self.line();
        if line.places.values().filter(|place| place.peer == peer).count() >= HANDSHAKES_OF_PEER {
            line.end_oldest(|place| place.peer == peer);
        }
        line.make_room(false, SILENT);
        let (end, ended) = oneshot::channel();
        let number = line.next;
        line.next = number.wrapping_add(1);
        line.places.insert(number, Connection { peer, spoke: false, _end: end });
        (Place { waiting: self.clone(), number }, ended)
    }

    /// Each change of the line is one call, so a panic elsewhere leaves it whole.
    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// If `most` connections spoke, or did not: ends the oldest of them whose peer has more than others.
    fn make_room(&mut self, spoke: bool, most: usize) {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        for place in self.places.values().filter(|place| place.spoke == spoke) {
            let count = counts.entry(place.peer).or_default();
            *count = count.saturating_add(1);
        }
        if counts.values().sum::<usize>() >= most {
            let highest = counts.values().max().copied();
            self.end_oldest(|place| place.spoke == spoke && counts.get(&place.peer).copied() == highest);
        }
    }

    /// Ends the oldest of these connections that sent nothing, else the oldest of these.
    fn end_oldest(&mut self, of: impl Fn(&Connection) -> bool) {
        let places = self.places.iter().filter(|(_, place)| of(place));
        let oldest = places.min_by_key(|(number, place)| (place.spoke, **number)).map(|(number, _)| *number);
        if let Some(number) = oldest {
            self.places.remove(&number);
        }
    }
}

impl Place {
    /// Its connection sent its first byte.
    fn spoke(&self) {
        let mut line = self.waiting.line();
        // Given away since: its end is on the way.
        if !line.places.contains_key(&self.number) {
            return;
        }
        line.make_room(true, HANDSHAKES);
        if let Some(place) = line.places.get_mut(&self.number) {
            place.spoke = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.line().places.remove(&self.number);
    }
}

/// Whether the peer left without a byte, or sent none in time: it looked whether the port is open, as health checks do, and
/// that is no refusal.
async fn only_looks(stream: &TcpStream) -> bool {
    matches!(timeout(FIRST_BYTE_DEADLINE, stream.peek(&mut [0])).await, Ok(Ok(0)) | Err(_))
}

async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
) -> Result<TlsStream<TcpStream>, Refusal> {
    // Answers are small and the client waits for each.
    let _ = stream.set_nodelay(true);
    let refusal = |reason| Refusal { peer, reason };
    match timeout(HANDSHAKE_DEADLINE, acceptor.accept(stream).into_fallible()).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err((error, stream))) => {
            let _ = timeout(LINGER, say_goodbye(stream)).await;
            Err(refusal(reason(&error)))
        }
        Err(_) => Err(refusal(format!("no TLS handshake within {} s", HANDSHAKE_DEADLINE.as_secs()))),
    }
}

/// Closing a socket with unread bytes resets it and the peer never reads the alert; so close our half and drain.
async fn say_goodbye(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut sink = [0_u8; 4096];
    while stream.read(&mut sink).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::pki::{Authority, CA_LIFETIME, LEAF_LIFETIME, Leaf, Lifetime, Usage};
    use crate::tls::{Identities, server_without_clients};

    /// For what takes milliseconds, on a machine that has much else to do.
    const SOON: Duration = Duration::from_secs(20);

    async fn listening() -> (SocketAddr, Incoming) {
        let authority = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
        let leaf = Leaf {
            organizations: vec![],
            names: vec!["127.0.0.1".into()],
            usage: Usage::Server,
            lifetime: Lifetime::from_now(LEAF_LIFETIME),
        };
        let identities = Identities::new(&authority.issue(&leaf).unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (address, accept(listener, server_without_clients(identities).unwrap(), |_| ()))
    }

    async fn from(last: u8, to: SocketAddr) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).unwrap();
        socket.connect(to).await.unwrap()
    }

    /// Whether the other end closed the connection.
    async fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
        matches!(timeout(within, stream.read(&mut [0])).await, Ok(Ok(0) | Err(_)))
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(of("10.0.0.7"), "10.0.0.7");
        assert_eq!(of("::ffff:10.0.0.7"), "10.0.0.7");
    }

    #[tokio::test]
    async fn silent_connections_of_one_peer_and_of_many_keep_no_place() {
        let (address, _incoming) = listening().await;
        let mut silent = Vec::new();
        for _ in 0..=HANDSHAKES_OF_PEER {
            silent.push(from(1, address).await);
        }
        assert!(is_closed(&mut silent[0], SOON).await, "the oldest of the peer");
        let mut others = Vec::new();
        for last in 2..20 {
            for _ in 0..HANDSHAKES_OF_PEER {
                others.push(from(last, address).await);
            }
        }
        let mut closed = 0;
        for other in &mut others {
            closed += u32::from(is_closed(other, Duration::from_millis(1)).await);
        }
        assert!(closed >= 60, "{closed} of {} connections ended for newer ones", others.len());
        let newest = others.last_mut().unwrap();
        assert!(!is_closed(newest, Duration::from_millis(1)).await, "there is room for the newest");
    }

    #[tokio::test]
    async fn a_peer_that_says_nothing_is_left_after_three_seconds() {
        let (address, _incoming) = listening().await;
        let mut silent = from(1, address).await;
        let begin = std::time::Instant::now();
        assert!(is_closed(&mut silent, FIRST_BYTE_DEADLINE + SOON).await);
        assert!(begin.elapsed() >= FIRST_BYTE_DEADLINE - Duration::from_millis(100));
    }

    fn peer(last: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(last).unwrap()))
    }

    fn has_ended(ended: &mut oneshot::Receiver<()>) -> bool {
        ended.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn of_one_peer_who_spoke_goes_after_the_silent() {
        let waiting = Waiting::default();
        let mut places: Vec<_> = (0..HANDSHAKES_OF_PEER).map(|_| waiting.admit(peer(1))).collect();
        places[0].0.spoke();
        let (_newest, _ended) = waiting.admit(peer(1));
        assert!(!has_ended(&mut places[0].1) && has_ended(&mut places[1].1));
        places.remove(2);
        assert_eq!(waiting.line().places.len(), HANDSHAKES_OF_PEER - 1);
    }

    #[test]
    fn a_peer_with_one_connection_keeps_it_beside_those_with_many() {
        let waiting = Waiting::default();
        let mut lone = waiting.admit(peer(1));
        let silent: Vec<_> = (0..4 * SILENT).map(|number| waiting.admit(peer(2 + number % 100))).collect();
        assert_eq!(waiting.line().places.len(), SILENT);
        assert!(!has_ended(&mut lone.1), "its first byte may still come");
        lone.0.spoke();
        for (place, _) in &silent {
            place.spoke();
        }
        assert!(!has_ended(&mut lone.1), "its handshake goes on");
        let line = waiting.line();
        assert_eq!(line.places.values().filter(|place| place.spoke).count(), HANDSHAKES);
    }
}
