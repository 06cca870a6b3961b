//! Clients, balancer and servers over real sockets: every way in which an upstream can come, fail and go.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use balancer::{Balancer, Error, Settings, Target, Upstream, UpstreamHealth};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// What is not there after it does not come.
const DEADLINE: Duration = Duration::from_secs(20);
const QUICK: Duration = Duration::from_millis(20);
const NEVER: Duration = Duration::from_secs(3600);

async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    timeout(DEADLINE, event).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// Says its name to each client, then what the client says. Connections outlive the listener.
struct Server {
    name: u8,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// At an address that no other server has: its port stays free when it stops.
    async fn start(name: u8) -> Self {
        static LAST: AtomicU8 = AtomicU8::new(0);
        let host = Ipv4Addr::new(127, 77, LAST.fetch_add(1, Ordering::Relaxed), 1);
        let mut server = Self { name, address: (host, 0).into(), accepting: None };
        server.listen().await;
        server
    }

    async fn stopped(name: u8) -> Self {
        let mut server = Self::start(name).await;
        server.stop().await;
        server
    }

    async fn listen(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let name = self.name;
        self.accepting = Some(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(talk(client, name));
            }
        }));
    }

    async fn stop(&mut self) {
        let accepting = self.accepting.take().unwrap();
        accepting.abort();
        let _ = accepting.await;
    }

    fn upstream(&self, priority: u8) -> Upstream {
        Upstream { address: self.address.into(), priority }
    }
}

/// Echoes, and says how many bytes there were after the client's end.
async fn talk(mut client: TcpStream, name: u8) -> std::io::Result<()> {
    client.write_u8(name).await?;
    let mut buffer = vec![0; 65536];
    let mut total = 0;
    loop {
        let length = client.read(&mut buffer).await?;
        if length == 0 {
            break;
        }
        total += length as u64;
        client.write_all(&buffer[..length]).await?;
    }
    client.write_u64(total).await
}

/// A balancer that runs.
struct Node {
    address: SocketAddr,
    list: watch::Sender<Vec<Upstream>>,
    health: watch::Receiver<Vec<UpstreamHealth>>,
    run: JoinHandle<Infallible>,
}

impl Node {
    fn start(probe_period: Duration, upstreams: Vec<Upstream>) -> Self {
        Self::with(Settings { probe_period, ..Settings::default() }, upstreams)
    }

    fn with(settings: Settings, upstreams: Vec<Upstream>) -> Self {
        let balancer = Balancer::bind(&["127.0.0.1:0".parse().unwrap()], settings).unwrap();
        let (address, health) = (balancer.addresses()[0], balancer.health());
        let (list, receiver) = watch::channel(upstreams);
        Self { address, list, health, run: tokio::spawn(balancer.run(receiver)) }
    }

    /// Waits until health is as given, in the order of the list.
    async fn until(&mut self, healthy: &[bool]) -> Vec<UpstreamHealth> {
        let is = |list: &Vec<UpstreamHealth>| {
            let known = list.iter().all(|one| one.is_healthy || one.error.is_some());
            known && list.iter().map(|one| one.is_healthy).eq(healthy.iter().copied())
        };
        let what = format!("health {healthy:?}");
        soon(&what, self.health.wait_for(is)).await.unwrap().clone()
    }

    /// A client, and the name of the server that it reached.
    async fn client(&self) -> Option<(TcpStream, u8)> {
        let mut client = connect(self.address);
        let name = soon("a name, or the end", client.read_u8()).await;
        name.ok().map(|name| (client, name))
    }

    async fn reached(&self) -> Option<u8> {
        self.client().await.map(|(_, name)| name)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.run.abort();
    }
}

/// The balancer does not run meanwhile: a client that it resets at once is connected first.
fn connect(address: SocketAddr) -> TcpStream {
    let client = std::net::TcpStream::connect(address).unwrap();
    client.set_nonblocking(true).unwrap();
    TcpStream::from_std(client).unwrap()
}

async fn assert_reset(client: &mut TcpStream) {
    let error = soon("a reset", client.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

async fn assert_alive(client: &mut TcpStream) {
    client.write_u8(b'!').await.unwrap();
    assert_eq!(soon("an echo", client.read_u8()).await.unwrap(), b'!');
}

/// A listener whose queue is full: the kernel drops further SYNs.
async fn silent() -> (TcpListener, Vec<TcpStream>, Upstream) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
        queued.push(stream.unwrap());
    }
    (listener, queued, Upstream { address: address.into(), priority: 0 })
}

#[tokio::test]
async fn a_dial_that_is_refused_goes_on_to_the_next() {
    let (mut a, b) = (Server::start(b'a').await, Server::start(b'b').await);
    let mut node = Node::start(NEVER, vec![b.upstream(1), a.upstream(0)]);
    node.until(&[true, true]).await;
    assert_eq!(node.reached().await, Some(b'a'), "lower priority first");
    a.stop().await;
    assert_eq!(node.reached().await, Some(b'b'));
    let health = node.until(&[true, false]).await;
    assert!(health[0].connect_time.unwrap() < DEADLINE);
    let error = health[1].error.clone().unwrap();
    assert!(error.starts_with(&format!("connect to {}: Connection refused", a.address)), "{error}");
    a.listen().await;
    assert_eq!(node.reached().await, Some(b'b'), "no probe saw yet that it is back");
}

#[tokio::test]
async fn a_silent_upstream_costs_its_deadline_only() {
    let mut b = Server::stopped(b'b').await;
    let (_listener, _queued, silent) = silent().await;
    let address = silent.address.clone();
    let settings =
        Settings { deadline: Duration::from_millis(200), probe_period: NEVER, ..Settings::default() };
    let mut node = Node::with(settings, vec![silent, b.upstream(1)]);
    let health = node.until(&[false, false]).await;
    assert_eq!(health[0].error, Some(format!("connect to {address}: no answer in time")));
    b.listen().await;
    // No probe sees it: the silent one is tried first.
    assert_eq!(node.reached().await, Some(b'b'));
}

#[tokio::test]
async fn connections_spread_over_upstreams_of_one_priority() {
    let (a, b, c) = (Server::start(b'a').await, Server::start(b'b').await, Server::start(b'c').await);
    let mut node = Node::start(NEVER, vec![a.upstream(1), b.upstream(1), c.upstream(2)]);
    node.until(&[true, true, true]).await;
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(node.client().await.unwrap());
    }
    let count = |name| clients.iter().filter(|(_, reached)| *reached == name).count();
    assert_eq!([b'a', b'b', b'c'].map(count), [3, 3, 0]);
}

#[tokio::test]
async fn connections_of_an_upstream_that_leaves_are_ended() {
    let (a, b) = (Server::start(b'a').await, Server::start(b'b').await);
    let mut node = Node::start(QUICK, vec![a.upstream(0), b.upstream(0)]);
    node.until(&[true, true]).await;
    let mut clients = [node.client().await.unwrap(), node.client().await.unwrap()];
    clients.sort_by_key(|(_, name)| *name);
    let [(mut to_a, b'a'), (mut to_b, b'b')] = clients else { panic!("one client each") };
    node.list.send_replace(vec![b.upstream(3)]);
    assert_reset(&mut to_a).await;
    assert_alive(&mut to_b).await;
    assert_eq!(node.reached().await, Some(b'b'));
    node.list.send_replace(vec![a.upstream(0), b.upstream(0)]);
    node.until(&[true, true]).await;
    assert_alive(&mut to_b).await;
    drop(std::mem::replace(&mut node.list, watch::Sender::new(Vec::new())));
    assert!(node.reached().await.is_some(), "the last list remains");
    assert_alive(&mut to_b).await;
}

#[tokio::test]
async fn connections_of_an_upstream_that_probes_find_dead_are_ended() {
    let (mut a, b) = (Server::start(b'a').await, Server::start(b'b').await);
    let mut node = Node::start(QUICK, vec![a.upstream(0), b.upstream(1)]);
    node.until(&[true, true]).await;
    let (mut to_a, b'a') = node.client().await.unwrap() else { panic!("a is first") };
    assert_alive(&mut to_a).await;
    // Its connections stay, as those to a host that is gone would.
    a.stop().await;
    node.until(&[false, true]).await;
    assert_reset(&mut to_a).await;
    let (mut to_b, b'b') = node.client().await.unwrap() else { panic!("a is gone") };
    a.listen().await;
    let health = node.until(&[true, true]).await;
    assert_eq!(health[0].error, None);
    assert_eq!(node.reached().await, Some(b'a'), "it is back");
    assert_alive(&mut to_b).await;
}

#[tokio::test]
async fn one_probe_that_fails_ends_no_connection() {
    let mut a = Server::start(b'a').await;
    let settings = Settings { probe_failures: u32::MAX, probe_period: QUICK, ..Settings::default() };
    let mut node = Node::with(settings, vec![a.upstream(0)]);
    node.until(&[true]).await;
    let (mut client, _) = node.client().await.unwrap();
    a.stop().await;
    node.until(&[false]).await;
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn with_all_unhealthy_each_client_tries_all() {
    let (mut a, b) = (Server::stopped(b'a').await, Server::stopped(b'b').await);
    let mut node = Node::start(NEVER, vec![b.upstream(0), a.upstream(1)]);
    node.until(&[false, false]).await;
    assert_eq!(node.reached().await, None);
    a.listen().await;
    assert_eq!(node.reached().await, Some(b'a'), "before any probe sees it");
    node.until(&[false, true]).await;
}

#[tokio::test]
async fn without_upstreams_clients_are_reset() {
    let a = Server::start(b'a').await;
    let node = Node::start(NEVER, Vec::new());
    let mut client = connect(node.address);
    assert_reset(&mut client).await;
    node.list.send_replace(vec![a.upstream(0)]);
    soon("the list", async { while node.reached().await.is_none() {} }).await;
}

#[tokio::test]
async fn one_client_too_many_is_reset() {
    let a = Server::start(b'a').await;
    let settings = Settings { connections: 2, probe_period: NEVER, ..Settings::default() };
    let node = Node::with(settings, vec![a.upstream(0)]);
    let mut kept = node.client().await.unwrap().0;
    let closed = node.client().await.unwrap().0;
    let mut third = connect(node.address);
    assert_reset(&mut third).await;
    assert_alive(&mut kept).await;
    drop(closed);
    soon("room for another", async { while node.reached().await.is_none() {} }).await;
}

#[tokio::test]
async fn each_side_may_end_before_the_other() {
    let a = Server::start(b'a').await;
    let node = Node::start(NEVER, vec![a.upstream(0)]);
    let (client, _) = node.client().await.unwrap();
    let (mut from, mut to) = client.into_split();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[usize::from(at % 2 == 0)]).collect();
    let copy = sent.clone();
    let writer = tokio::spawn(async move {
        to.write_all(&copy).await.unwrap();
        to.shutdown().await.unwrap();
        to
    });
    let mut received = Vec::new();
    // Not a reset: both sides were done.
    soon("the end", from.read_to_end(&mut received)).await.unwrap();
    let (echo, total) = received.split_at(received.len() - 8);
    assert!(echo == sent, "{} bytes of {}", echo.len(), sent.len());
    assert_eq!(total, (sent.len() as u64).to_be_bytes());
    drop(soon("the writer", writer).await.unwrap());
}

#[tokio::test]
async fn what_is_on_its_way_arrives_after_both_are_done() {
    const BYTES: usize = 100_000;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap().into();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = server.accept().await {
            tokio::spawn(async move { client.write_all(&[7; BYTES]).await });
        }
    });
    let settings = Settings { connections: 1, probe_period: NEVER, ..Settings::default() };
    let node = Node::with(settings, vec![Upstream { address, priority: 0 }]);
    let socket = TcpSocket::new_v4().unwrap();
    // The rest waits on the balancer's side.
    socket.set_recv_buffer_size(4096).unwrap();
    let mut client = socket.connect(node.address).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(soon("the first byte", client.read_u8()).await.unwrap(), 7);
    soon("the end of it", async { while node.reached().await.is_none() {} }).await;
    let mut rest = Vec::new();
    soon("the rest", client.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest.len(), BYTES - 1);
}

#[tokio::test]
async fn the_end_of_run_ends_everything() {
    let a = Server::start(b'a').await;
    let mut node = Node::start(NEVER, vec![a.upstream(0)]);
    let (mut client, _) = node.client().await.unwrap();
    // One whose server ended it leaves the balancer's port in TIME_WAIT.
    let brief = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = brief.local_addr().unwrap().into();
    tokio::spawn(async move { while brief.accept().await.is_ok() {} });
    node.list.send_replace(vec![a.upstream(1), Upstream { address, priority: 0 }]);
    node.until(&[true, true]).await;
    let mut ended = connect(node.address);
    assert_eq!(soon("the end", ended.read_u8()).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    drop(ended);
    node.run.abort();
    assert_reset(&mut client).await;
    let mut health = node.health.clone();
    soon("the end of health", async { while health.changed().await.is_ok() {} }).await;
    let again = Balancer::bind(&[node.address], Settings::default()).unwrap();
    assert_eq!(again.addresses(), [node.address]);
}

#[tokio::test]
async fn an_upstream_may_have_a_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(talk(client, b'n'));
        }
    });
    let address = Target::Host { name: "localhost".into(), port };
    let mut node = Node::start(NEVER, vec![Upstream { address: address.clone(), priority: 0 }]);
    assert_eq!(node.reached().await, Some(b'n'));
    assert_eq!(node.until(&[true]).await[0].address, address);
}

#[tokio::test]
async fn the_balancer_is_no_upstream_of_its_own() {
    let mut node = Node::start(NEVER, Vec::new());
    node.list.send_replace(vec![Upstream { address: node.address.into(), priority: 0 }]);
    let health = node.until(&[false]).await;
    assert_eq!(health[0].error, Some(format!("{} is the balancer itself", node.address)));
    assert_eq!(node.reached().await, None);
}

#[tokio::test]
async fn probes_end_in_order() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    let _node = Node::start(QUICK, vec![Upstream { address, priority: 0 }]);
    for _ in 0..3 {
        let (mut probe, _) = soon("a probe", listener.accept()).await.unwrap();
        assert_eq!(soon("its end", probe.read(&mut [0])).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn addresses_that_cannot_be_had_are_named() {
    assert!(matches!(Balancer::bind(&[], Settings::default()), Err(Error::NoAddress)));
    let node = Node::start(NEVER, Vec::new());
    let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let error = Balancer::bind(&[free, node.address], Settings::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("listen on {}", node.address));
    let both = Balancer::bind(&["[::1]:0".parse().unwrap(), free], Settings::default()).unwrap();
    // One of every address of IPv6 takes none of IPv4; a connection of another program may have that port, but not each time.
    let leaves_the_other_family = |_| {
        let all = Balancer::bind(&["[::]:0".parse().unwrap()], Settings::default()).unwrap();
        let other: SocketAddr = (Ipv4Addr::UNSPECIFIED, all.addresses()[0].port()).into();
        Balancer::bind(&[other], Settings::default()).is_ok()
    };
    assert!((0..16).any(leaves_the_other_family), "the port is taken for both families");
    let [v6, v4] = both.addresses() else { panic!("two addresses") };
    assert!(v6.is_ipv6() && v4.is_ipv4());
    let a = Server::start(b'a').await;
    let (addresses, (_list, receiver)) = (both.addresses().to_vec(), watch::channel(vec![a.upstream(0)]));
    let run = tokio::spawn(both.run(receiver));
    for address in addresses {
        let mut client = connect(address);
        assert_eq!(soon("a name", client.read_u8()).await.unwrap(), b'a');
    }
    run.abort();
}
