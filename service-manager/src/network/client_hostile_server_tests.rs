//! The client and udhcpc, each at a wire of its own, before servers that send many broken answers and then a good one.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use dhcp::Settings;
use dhcproto::Encodable;
use dhcproto::v4::{DhcpOption, Message, MessageType, Opcode, OptionCode};
use fastrand::Rng;

use super::tests::{MAC, Running, begin_as, lease};
use super::*;
use crate::network::testing::{Neighbour, ip, is_inside, until};

/// Broken answers that each client hears.
const ANSWERS: usize = 1_000;
/// Before each good one.
const AT_ONCE: usize = 20;
/// The bytes that mean something: padding, options of a lease, the end.
const TELLING: [u8; 9] = [0, 1, 3, 6, 51, 53, 54, 121, 255];

/// A server at one card, which has 10.NETWORK.0.1 and one address to give: 10.NETWORK.0.20.
struct Server {
    socket: UdpSocket,
    network: u8,
    random: Rng,
    count: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    broken: AtomicUsize,
    /// Good answers that grant the address.
    granted: AtomicUsize,
}

impl Counts {
    fn broken(&self) -> usize {
        self.broken.load(Ordering::SeqCst)
    }

    async fn grants_again(&self, before: usize) {
        until("a good answer", || self.granted.load(Ordering::SeqCst) > before).await;
    }

    fn granted(&self) -> usize {
        self.granted.load(Ordering::SeqCst)
    }
}

impl Server {
    fn start(
        neighbour: &Neighbour,
        card: &'static str,
        network: u8,
        seed: u64,
    ) -> (Arc<Counts>, JoinHandle<()>) {
        let count = Arc::new(Counts::default());
        let counts = count.clone();
        let thread = neighbour.thread(move || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
            socket.bind_device(Some(card.as_bytes())).unwrap();
            socket.set_broadcast(true).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER_PORT).into()).unwrap();
            Self { socket: socket.into(), network, random: Rng::with_seed(seed), count }.serve();
        });
        (counts, thread)
    }

    fn serve(&mut self) {
        let mut buffer = [0; 2048];
        while !self.count.stop.load(Ordering::SeqCst) {
            let Ok((length, _)) = self.socket.recv_from(&mut buffer) else { continue };
            let Some(asked) = dhcp::message::read(&buffer[..length]) else { continue };
            let Some(answer) = self.answer(&asked) else { continue };
            let good = answer.to_vec().unwrap();
            for _ in 0..AT_ONCE {
                let mut broken = good.clone();
                rounds::mutate(&mut broken, &TELLING, &mut self.random);
                // A whole refusal is none that is broken.
                let is_refusal = dhcp::message::read(&broken)
                    .is_some_and(|message| message.opts().msg_type() == Some(MessageType::Nak));
                if !is_refusal && self.say(&broken) {
                    self.count.broken.fetch_add(1, Ordering::SeqCst);
                }
            }
            let is_grant = answer.opts().msg_type() == Some(MessageType::Ack);
            if self.say(&good) && is_grant {
                self.count.granted.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    fn say(&self, packet: &[u8]) -> bool {
        self.socket.send_to(packet, SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT)).is_ok()
    }

    fn host(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.network, 0, last)
    }

    fn answer(&self, asked: &Message) -> Option<Message> {
        let given = self.host(20);
        let wanted = match asked.opts().get(OptionCode::RequestedIpAddress) {
            Some(DhcpOption::RequestedIpAddress(wanted)) => *wanted,
            _ => asked.ciaddr(),
        };
        let kind = match asked.opts().msg_type()? {
            MessageType::Discover => MessageType::Offer,
            MessageType::Request if wanted == given => MessageType::Ack,
            MessageType::Request => MessageType::Nak,
            _ => return None,
        };
        let none = Ipv4Addr::UNSPECIFIED;
        let address = if kind == MessageType::Nak { none } else { given };
        let mut answer = Message::new_with_id(asked.xid(), none, address, none, none, asked.chaddr());
        answer.set_opcode(Opcode::BootReply);
        let options = answer.opts_mut();
        options.insert(DhcpOption::MessageType(kind));
        options.insert(DhcpOption::ServerIdentifier(self.host(1)));
        if kind != MessageType::Nak {
            options.insert(DhcpOption::SubnetMask([255, 255, 255, 0].into()));
            options.insert(DhcpOption::AddressLeaseTime(3_600));
            // The soonest that the client takes.
            options.insert(DhcpOption::Renewal(15));
            options.insert(DhcpOption::DomainNameServer(vec![self.host(1), self.host(2)]));
            options.insert(DhcpOption::DomainName("example.org".into()));
        }
        Some(answer)
    }
}

/// busybox's client, which writes down what it is told to do.
struct Udhcpc {
    child: Child,
    log: PathBuf,
}

impl Udhcpc {
    fn start(directory: &Path) -> Self {
        let (script, log) = (directory.join("udhcpc.sh"), directory.join("udhcpc.log"));
        let text = format!(
            "#!/bin/sh\necho \"$1 $ip\" >> {}\n\
             case $1 in\n\
             deconfig) ip address flush dev eth1;;\n\
             bound|renew) ip address replace $ip/24 dev eth1;;\n\
             esac\n",
            log.display()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = Command::new("busybox");
        command.args(["udhcpc", "-f", "-i", "eth1", "-T", "1", "-A", "1", "-s"]).arg(script);
        let child = command.stderr(Stdio::null()).spawn().expect("run busybox: apt-get install busybox");
        Self { child, log }
    }

    fn renew(&self) {
        let _ = Command::new("kill").args(["-USR1", &self.child.id().to_string()]).status();
    }

    fn said(&self) -> Vec<String> {
        fs::read_to_string(&self.log).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

impl Drop for Udhcpc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What networkd said about leases that were over.
fn losses(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("log/networkd.log")).unwrap();
    assert!(text.contains("10.9.0.20/"), "it tells what the link has: {text}");
    let is_loss =
        |line: &&str| [" is over", "does not grant", "was given back"].iter().any(|it| line.contains(it));
    text.lines().filter(is_loss).map(str::to_owned).collect()
}

fn begin(directory: &Path, handle: &Handle) -> Running {
    fs::create_dir_all(directory.join("system/run/machined")).unwrap();
    begin_as(directory, handle, Settings { hardware: MAC, ..Settings::default() })
}

fn has_address(running: &Running) -> bool {
    lease(&running.runtime).is_some_and(|lease| lease.address.starts_with("10.9.0.20/"))
}

const BROKEN: &str = "network::client::hostile_server_tests::broken_answers_cost_no_lease_and_forge_none";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long run"]
async fn broken_answers_cost_no_lease_and_forge_none() {
    if !is_inside(BROKEN) {
        return;
    }
    let seed = rounds::first_seed();
    println!("BILLET_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let neighbour = Neighbour::start();
    neighbour.wire("eth1", "52:54:00:07:08:09", "srv1");
    neighbour.ip("address add 10.9.0.1/24 dev srv0");
    neighbour.ip("address add 10.8.0.1/24 dev srv1");
    let (own, own_server) = Server::start(&neighbour, "srv0", 9, seed);
    let (other, other_server) = Server::start(&neighbour, "srv1", 8, seed);

    let udhcpc = Udhcpc::start(directory.path());
    let mut root = directory.path().join("0");
    let mut running = begin(&root, &handle);
    until("a lease", || has_address(&running)).await;
    until("a lease of udhcpc", || udhcpc.said().iter().any(|line| line == "bound 10.8.0.20")).await;
    for round in 1.. {
        if own.broken() >= ANSWERS && other.broken() >= ANSWERS {
            break;
        }
        assert!(round < 500, "{} and {} broken answers", own.broken(), other.broken());
        let before = (own.granted(), other.broken());
        if round % 4 == 0 {
            // A client that knows nothing yet: all four messages.
            running.task.abort();
            let _ = running.task.await;
            ip("address flush dev eth0");
            root = directory.path().join(round.to_string());
            running = begin(&root, &handle);
        } else {
            // The cable was out for a moment: the client asks whether it may go on.
            running.told.send_modify(|told| told.ups += 1);
        }
        udhcpc.renew();
        own.grants_again(before.0).await;
        until("the lease", || has_address(&running)).await;
        until("the address", || ip("address show dev eth0").contains("inet 10.9.0.20/")).await;
        assert!(!running.task.is_finished(), "round {round}");
        assert_eq!(losses(&root), [""; 0], "round {round}");
        let _ = tokio::time::timeout(RETRY, until("udhcpc", || other.broken() > before.1)).await;
    }

    // At T1 its server prolongs the lease, among broken answers too.
    let before = own.granted();
    own.grants_again(before).await;
    until("the lease", || has_address(&running)).await;
    assert_eq!(losses(&root), [""; 0]);
    assert_eq!(ip("-4 -o address show dev eth0").lines().count(), 1, "one address");
    running.task.abort();
    let _ = running.task.await;

    // For comparison.
    let said = udhcpc.said();
    let count = |start: &str| said.iter().filter(|line| line.starts_with(start)).count();
    let foreign = said.iter().filter(|line| {
        let address = line.split_once(' ').map_or("", |(_, address)| address);
        !address.is_empty() && address != "10.8.0.20"
    });
    eprintln!(
        "udhcpc: {} broken answers, lease lost {} times, {} foreign addresses; here: {} broken answers",
        other.broken(),
        count("deconfig").saturating_sub(1),
        foreign.count(),
        own.broken()
    );
    [own, other].iter().for_each(|counts| counts.stop.store(true, Ordering::SeqCst));
    own_server.join().unwrap();
    other_server.join().unwrap();
}
