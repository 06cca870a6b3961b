//! The resolver before dnsmasq, in a network namespace of its own.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use runtime::store::{HostnameStatus, Resolvers};

use super::*;
use crate::network::testing::{Dnsmasq, Neighbour, ip, is_inside};

const TEST: &str = "host_dns::tests::the_node_and_its_pods_ask_it_and_a_neighbour_does_not";
/// Set in the process that only asks.
const ASKS: &str = "BILLET_TEST_ASKS";
const SERVER: &str = "127.0.0.2";
/// Of a question that is not answered: long enough for one that is.
const SILENCE: Duration = Duration::from_millis(500);

/// A question of class IN.
fn question(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    message[..2].copy_from_slice(&id.to_be_bytes());
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&[kind.to_be_bytes(), 1_u16.to_be_bytes()].concat());
    message
}

/// The code, the number of answers, and the message's end.
type Answer = (u8, u16, Vec<u8>);

fn read(message: &[u8]) -> Answer {
    let end = message.len().saturating_sub(4);
    (message[3] & 15, u16::from_be_bytes([message[6], message[7]]), message[end..].to_vec())
}

/// `None`: it says nothing for this long.
fn by_datagram(from: &str, to: Ipv4Addr, name: &str, kind: u16, patience: Duration) -> Option<Answer> {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.send_to(&question(7, name, kind), (to, PORT)).unwrap();
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).ok()?;
    assert_eq!(buffer[..2], [0, 7]);
    Some(read(&buffer[..length]))
}

fn by_stream(to: Ipv4Addr, name: &str, kind: u16) -> Answer {
    let mut stream = TcpStream::connect((to, PORT)).unwrap();
    let question = question(8, name, kind);
    let length = u16::try_from(question.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], &question].concat()).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer).unwrap();
    read(&answer)
}

/// Waits in a thread: the resolver runs in this one.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// One that knows a name, and a text that no datagram holds.
fn server(directory: &Path) -> Dnsmasq {
    let texts: String = (0..40).map(|number| format!(" --txt-record=large.example,{number:0100}")).collect();
    let rest = "--no-resolv --no-hosts --address=/n1.example/192.0.2.9 --local-ttl=3600 --address=/example/ \
        --edns-packet-max=1232";
    let arguments = format!("--listen-address={SERVER} {rest}{texts}");
    Dnsmasq::start(Command::new("dnsmasq"), directory, &arguments)
}

fn configure(runtime: &Arc<Runtime>, host_dns: &str) {
    let text = format!(
        "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  features: {{hostDNS: {host_dns}}}\n"
    );
    let config = config::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    runtime.config.send_replace(Some(Arc::new(config)));
}

fn state(runtime: &Runtime) -> String {
    let config = runtime.store.get(&HOST_DNS_CONFIG, "config");
    config.map(|it| it.spec.yaml().unwrap()).unwrap_or_default()
}

async fn until_state(runtime: &Arc<Runtime>, wanted: &str) {
    let mut changes = runtime.store.changes();
    let reached = async {
        while !state(runtime).contains(wanted) {
            let _ = changes.recv().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), reached).await;
    assert!(waited.is_ok(), "{wanted} is not in: {}", state(runtime));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_and_its_pods_ask_it_and_a_neighbour_does_not() {
    if std::env::var_os(ASKS).is_some() {
        return ask_once();
    }
    if !is_inside(TEST) {
        return;
    }
    ip("link set lo up");
    let neighbour = Neighbour::start();
    ip("address add 10.9.0.5/24 dev eth0");
    neighbour.ip("address add 10.9.0.1/24 dev srv0");
    neighbour.ip("route add 169.254.116.108 via 10.9.0.5");
    ip("address add 169.254.116.108/32 dev lo");
    ip("address add 10.244.0.5/32 dev lo");
    let directory = tempfile::tempdir().unwrap();
    let dnsmasq = server(directory.path());
    let runtime = Runtime::detached(directory.path().to_owned());
    let servers = Resolvers { dns_servers: vec![SERVER.into(), "127.0.0.53".into()], search_domains: vec![] };
    let spec = Spec::Addressing(Addressing::Resolvers(servers));
    runtime.store.put(RESOLVER_STATUS.writer, &RESOLVER_STATUS, "resolvers", spec).unwrap();
    configure(&runtime, "{enabled: true}");
    let service = tokio::spawn(run(runtime.clone(), PORT));
    until_state(&runtime, "enabled: true").await;
    assert!(!state(&runtime).contains("serviceHostDNSAddress"), "{}", state(&runtime));
    let node = |name: &'static str, kind| {
        blocking(move || by_datagram("127.0.0.1", NODE_ADDRESS, name, kind, Duration::from_secs(20)))
    };
    let address = Some((0, 1, vec![192, 0, 2, 9]));
    // dnsmasq may still be starting: its port is refused once, and asked again.
    assert_eq!(node("n1.example", 1).await, address);
    assert_eq!(node("no.example", 1).await.map(|it| it.0), Some(3), "there is no such name");
    let cut = node("large.example", 16).await.unwrap();
    assert_eq!(cut.1, 0, "4 kB are no datagram");
    assert_eq!(blocking(|| by_stream(NODE_ADDRESS, "large.example", 16)).await.1, 40);

    configure(&runtime, "{enabled: true, forwardKubeDNSToHost: true}");
    until_state(&runtime, "169.254.116.108:53").await;
    let pods = || by_datagram("10.244.0.5", HOST_DNS_ADDRESS, "n1.example", 1, Duration::from_secs(20));
    assert_eq!(blocking(pods).await, address);
    let upstreams = runtime.store.list(&DNS_UPSTREAM);
    let upstreams: Vec<_> = upstreams.iter().map(|it| it.spec.yaml().unwrap()).collect();
    assert_eq!(upstreams, ["healthy: true\naddr: 127.0.0.2:53\n"], "and not itself");
    let caches = runtime.store.list(&DNS_RESOLVE_CACHE);
    let caches: Vec<_> = caches.iter().map(|it| it.metadata.id.as_str()).collect();
    let listeners =
        ["tcp-127.0.0.53:53", "tcp-169.254.116.108:53", "udp-127.0.0.53:53", "udp-169.254.116.108:53"];
    assert_eq!(caches, listeners);
    // A neighbour's question gets no answer. Its own program asks: this one cannot enter its namespace.
    let (neighbour, refused) = blocking(move || asks(neighbour)).await;
    assert_eq!(refused, "no answer");
    // With a way back that a network plugin made it is a pod, and is answered.
    crate::network::testing::lead(&runtime.store, &[("10.9.0.0/24", "cali0")]);
    assert_eq!(blocking(move || asks(neighbour)).await.1, "192.0.2.9");

    // A node of the cluster has an address while the config says so, whatever the server says.
    members::put(&runtime.store, &[("w1", "worker", ["10.9.0.7", "x"])]);
    configure(&runtime, "{enabled: true, forwardKubeDNSToHost: true, resolveMemberNames: true}");
    until_state(&runtime, "resolveMemberNames: true").await;
    assert_eq!(node("w1", 1).await, Some((0, 1, vec![10, 9, 0, 7])));
    configure(&runtime, "{enabled: true, forwardKubeDNSToHost: true}");
    until_state(&runtime, "resolveMemberNames: false").await;
    assert_ne!(node("w1", 1).await.map(|it| it.1), Some(1));

    // What was asked before is known when the server is gone; the rest fails in time.
    drop(dnsmasq);
    assert_eq!(node("n1.example", 1).await, address);
    assert_eq!(node("n2.other", 1).await.map(|it| it.0), Some(2));
    configure(&runtime, "{enabled: true}");
    until_state(&runtime, "listenAddresses:\n- 127.0.0.53:53\nresolve").await;
    configure(&runtime, "{enabled: false}");
    until_state(&runtime, "enabled: false").await;
    assert!(blocking(|| TcpStream::connect((NODE_ADDRESS, PORT)).is_err()).await, "nothing listens any more");
    service.abort();
}

#[test]
fn members_are_known_by_their_names_and_by_no_other_domain() {
    let runtime = Runtime::detached(tempfile::tempdir().unwrap().path().to_owned());
    let own = HostnameStatus { hostname: "cp1".into(), domainname: "example.org".into() };
    runtime
        .store
        .put(HOSTNAME_STATUS.writer, &HOSTNAME_STATUS, "hostname", Spec::HostnameStatus(own))
        .unwrap();
    let nodes = [
        ("CP1.example.org", "controlplane", ["10.0.0.1", "fd00::1"]),
        ("registry.example.net", "worker", ["10.0.0.2", "nonsense"]),
        ("w1", "worker", ["10.0.0.3", "10.0.0.4"]),
    ];
    members::put(&runtime.store, &nodes);
    let found = member_names(&runtime);
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["cp1", "cp1.example.org", "registry", "w1"]);
    assert_eq!(found["cp1.example.org"], ["10.0.0.1".parse::<IpAddr>().unwrap(), "fd00::1".parse().unwrap()]);
    assert_eq!(found["registry"], ["10.0.0.2".parse::<IpAddr>().unwrap()]);
}

/// What the neighbour's question is answered. This program asks it, inside of the neighbour: see the test's beginning.
fn asks(neighbour: Neighbour) -> (Neighbour, String) {
    let asked = neighbour
        .inside(std::env::current_exe().unwrap().to_str().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(ASKS, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8(asked.stdout).unwrap();
    let line = printed.lines().find_map(|line| line.split_once("answer: "));
    (neighbour, line.unwrap_or_else(|| panic!("{printed}")).1.to_owned())
}

fn ask_once() {
    let answer = by_datagram("10.9.0.1", HOST_DNS_ADDRESS, "n1.example", 1, SILENCE);
    let text = |(_, _, end): Answer| <[u8; 4]>::try_from(end).map(|end| Ipv4Addr::from(end).to_string());
    println!("answer: {}", answer.map_or_else(|| "no answer".into(), |it| text(it).unwrap()));
}
