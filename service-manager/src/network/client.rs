//! The DHCPv4 client of one link: sockets, time and kernel around the states of `dhcp`.
//!
//! Order: a lease is in use at once; whether another machine has its address is asked beside. The kernel has each address for
//! the time that was granted, so that it goes when no server prolongs it, also without machined.
//! Fails by: asking again, ever more slowly, and saying once what is missing.
//! Source: packet(7).

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use dhcp::conflict::Step;
use dhcp::frame::{self, CLIENT_PORT, Instruction, SERVER_PORT};
use dhcp::{Client as States, Guard, Lease, Loss, Output};
use rtnetlink::Handle;
use runtime::Runtime;
use runtime::clock::until;
use runtime::store::{DHCP_LEASE, DhcpLease, Spec};
use socket2::{Domain, Protocol, Socket, Type};
use sys::packet;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::apply::{self, Asked};
use super::dhcp_status::DhcpStatus;
use super::kept::Kept;
use super::link::Link;
use super::opening::{opened, random};

/// What a frame of Ethernet holds, with room for jumbo frames of servers that send them.
const FRAME_BYTES: usize = 9 << 10;
/// Frames that wait for the client: a flood loses some, and costs no memory.
const QUEUE_BYTES: usize = 64 << 10;
/// Between two attempts at what the kernel refused.
const RETRY: Duration = Duration::from_secs(5);

/// What the client is told while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientInput {
    pub(super) asked: Asked,
    pub(super) carrier: bool,
    /// How often the carrier came.
    pub(super) ups: u32,
    /// Hardware addresses of all links of the machine.
    pub(super) own: Vec<Vec<u8>>,
}

struct Client {
    runtime: Arc<Runtime>,
    handle: Handle,
    kept: Arc<Kept>,
    link: Link,
    told: ClientInput,
    states: States,
    guard: Option<Guard>,
    frames: AsyncFd<OwnedFd>,
    arp: AsyncFd<OwnedFd>,
    /// Sends to the server from the lease's address.
    replies: Option<std::net::UdpSocket>,
    /// What the kernel has.
    applied: Option<(Asked, Lease)>,
    /// When what the kernel refused of it is tried again.
    retry: Option<Duration>,
    origin: Instant,
    said: String,
    status: DhcpStatus,
}

/// Holds a lease on a link for as long as it is polled; then the lease is given back.
pub(super) async fn run(
    runtime: Arc<Runtime>,
    handle: Handle,
    kept: Arc<Kept>,
    link: Link,
    mut told: watch::Receiver<ClientInput>,
) {
    let (frames, arp) = opened(&runtime, &link, "DHCP", open).await;
    let now = told.borrow_and_update().clone();
    let states = States::new(now.asked.settings.clone(), random());
    let status = DhcpStatus::new(&runtime, &link.name, "dhcp4");
    let mut client = Client {
        runtime,
        handle,
        kept,
        link,
        told: now,
        states,
        guard: None,
        frames,
        arp,
        replies: None,
        applied: None,
        retry: None,
        origin: Instant::now(),
        said: String::new(),
        status,
    };
    client.serve(told).await;
}

fn open(link: &Link) -> io::Result<(AsyncFd<OwnedFd>, AsyncFd<OwnedFd>)> {
    let one = |filter: &[Instruction]| {
        let filter: Vec<packet::Instruction> = filter
            .iter()
            .map(|&(code, jump_true, jump_false, operand)| packet::Instruction {
                code,
                jump_true,
                jump_false,
                operand,
            })
            .collect();
        let socket = packet::open(link.index, false, &filter)?;
        packet::tell_cards(&socket)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, QUEUE_BYTES)?;
        runtime::watched::readable(socket)
    };
    Ok((one(&frame::DHCP_FILTER)?, one(&frame::ARP_FILTER)?))
}

/// The next frame: its length, and whether its checksum is still to be made.
async fn receive(socket: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> (usize, bool) {
    loop {
        let Ok(mut ready) = socket.readable().await else {
            sleep(RETRY).await;
            continue;
        };
        let read =
            ready.try_io(|socket| packet::receive_whole(socket.get_ref(), buffer).map_err(io::Error::from));
        // Otherwise the link went down, or the frame is larger than any message: nothing about the next one.
        if let Ok(Ok(arrived)) = read {
            return (arrived.length, arrived.checksum_missing);
        }
    }
}

impl Client {
    async fn serve(&mut self, mut told: watch::Receiver<ClientInput>) {
        let mut arrivals = self.kept.arrivals.subscribe();
        let (mut buffer, mut arp) = (vec![0; FRAME_BYTES], vec![0; FRAME_BYTES]);
        let outputs = self.states.start(self.now(), self.kept.address(&self.hardware()));
        self.perform(outputs).await;
        loop {
            let (origin, due) = (self.origin, self.deadline());
            tokio::select! {
                () = until(due.map(|due| origin + due)) => self.tick().await,
                (length, sum_is_missing) = receive(&self.frames, &mut buffer) => {
                    let Some(message) = frame::message(&buffer[..length], sum_is_missing) else { continue };
                    let outputs = self.states.hear(self.now(), message);
                    self.perform(outputs).await;
                }
                (length, _) = receive(&self.arp, &mut arp) => self.hear_arp(&arp[..length]).await,
                changed = told.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let new = told.borrow_and_update().clone();
                    self.hear_news(new).await;
                }
                _ = arrivals.changed() => {
                    if let Some(before) = self.kept.address(&self.hardware()) {
                        let outputs = self.states.remember(self.now(), before);
                        self.perform(outputs).await;
                    }
                }
            }
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn hardware(&self) -> [u8; 6] {
        self.told.asked.settings.hardware
    }

    fn deadline(&self) -> Option<Duration> {
        let guard = self.guard.as_ref().and_then(Guard::deadline);
        [self.states.deadline(), guard, self.retry].into_iter().flatten().min()
    }

    async fn tick(&mut self) {
        let now = self.now();
        if let Some(frame) = self.guard.as_mut().and_then(|guard| guard.tick(now)) {
            self.send_arp(&frame);
        }
        if self.retry.is_some_and(|retry| retry <= now)
            && let Some(lease) = self.states.lease().cloned()
        {
            self.apply(lease).await;
        }
        let outputs = self.states.tick(now);
        self.perform(outputs).await;
    }

    async fn hear_arp(&mut self, frame: &[u8]) {
        let (now, own) = (self.now(), &self.told.own);
        let is_own = |hardware: &[u8; 6]| own.iter().any(|known| known == hardware);
        match self.guard.as_mut().and_then(|guard| guard.hear(now, frame, is_own)) {
            Some(Step::Send(frame)) => self.send_arp(&frame),
            Some(Step::Conflict(other)) => {
                let [a, b, c, d, e, f] = other;
                if let Some(lease) = self.states.lease() {
                    let holder = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
                    self.warn(&format!("{} is in use by the machine with {holder}: declined", lease.address));
                }
                let outputs = self.states.conflict(now);
                self.perform(outputs).await;
            }
            None => {}
        }
    }

    async fn hear_news(&mut self, new: ClientInput) {
        let old = std::mem::replace(&mut self.told, new);
        let now = self.now();
        if old.asked.settings != self.told.asked.settings {
            let outputs = self.states.change(now, self.told.asked.settings.clone());
            self.perform(outputs).await;
        } else if self.told.carrier && (!old.carrier || self.told.ups != old.ups) {
            self.status.begin();
            let outputs = self.states.start(now, self.kept.address(&self.hardware()));
            self.perform(outputs).await;
        }
        if old.asked != self.told.asked
            && let Some(lease) = self.states.lease().cloned()
        {
            self.apply(lease).await;
        }
    }

    async fn perform(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Broadcast(message) => {
                    self.status.requested();
                    let frame = frame::broadcast(self.hardware(), &message);
                    // A link that is down sends nothing, and a full queue is a lost frame like any other.
                    let _ = packet::send(self.frames.get_ref(), &frame);
                }
                Output::Unicast(server, message) => {
                    if let Err(error) = self.send(server, &message) {
                        self.warn(&format!("send to {server}: {error}"));
                    }
                }
                Output::Bound(lease) => self.bound(*lease).await,
                Output::Lost(lease, loss) => self.lost(&lease, loss).await,
                Output::Refused(address) => {
                    self.kept.put(&self.hardware(), None, false);
                    // An earlier machined may have left it.
                    apply::remove(&self.handle, self.link.index, address.into()).await;
                    forget_lease(&self.runtime, &self.link.name);
                    self.status.lost(format!("a server refused {address}, which the link had before"));
                }
            }
        }
    }

    async fn bound(&mut self, lease: Lease) {
        self.status.granted(format!("{}/{} from {}", lease.address, lease.prefix, lease.server));
        let before = self.applied.as_ref().map(|(_, lease)| lease.clone());
        self.apply(lease.clone()).await;
        if before.as_ref().is_none_or(|before| before.address != lease.address) {
            self.guard = Some(Guard::new(self.hardware(), lease.address, random(), self.now()));
        }
        self.kept.put(&self.hardware(), Some(lease.address.to_string()), false);
        if before.as_ref() != Some(&lease) {
            self.announce(&lease);
        }
    }

    async fn lost(&mut self, lease: &Lease, loss: Loss) {
        let reason = match loss {
            Loss::Expired => format!("lease of {} is over", lease.address),
            Loss::Refused => format!("{} does not grant {} any more", lease.server, lease.address),
            Loss::Conflict => format!("{} was given back: another machine has it", lease.address),
        };
        self.warn(&reason);
        self.status.lost(reason);
        (self.guard, self.applied, self.replies, self.retry) = (None, None, None, None);
        apply::remove(&self.handle, self.link.index, lease.address.into()).await;
        forget_lease(&self.runtime, &self.link.name);
        if loss != Loss::Expired {
            self.kept.put(&self.hardware(), None, false);
        }
    }

    /// Brings a lease into the kernel. What is refused is said once, and tried again.
    async fn apply(&mut self, lease: Lease) {
        let old = self.applied.as_ref().map(|(asked, lease)| (asked, lease));
        let remaining = self.states.remaining(self.now());
        let refusals =
            apply::bring(&self.handle, &self.link, old, (&self.told.asked, &lease), remaining).await;
        self.retry = (!refusals.is_empty()).then(|| self.now() + RETRY);
        let text = refusals.join("; ");
        if !text.is_empty() && text != self.said {
            self.warn(&text);
        }
        self.said = text;
        self.applied = Some((self.told.asked.clone(), lease));
    }

    fn announce(&self, lease: &Lease) {
        let resource = resource(lease);
        self.runtime.journal.say(&format!(
            "networkd: {}: {} from {} for {} s",
            self.link.name, resource.address, resource.server, resource.lease_seconds
        ));
        if let Err(error) =
            self.runtime.store.put(DHCP_LEASE.writer, &DHCP_LEASE, &self.link.name, Spec::DhcpLease(resource))
        {
            self.warn(&error.to_string());
        }
    }

    fn warn(&self, text: &str) {
        self.runtime.journal.warn(&format!("networkd: {}: {text}", self.link.name));
    }

    fn send_arp(&self, frame: &[u8]) {
        // As with messages: a lost frame.
        let _ = packet::send(self.arp.get_ref(), frame);
    }

    fn send(&mut self, server: Ipv4Addr, message: &[u8]) -> io::Result<()> {
        let Some(address) = self.states.lease().map(|lease| lease.address) else { return Ok(()) };
        // It stays open: without it the kernel would tell the server that the port is closed.
        let socket = unicast(&self.link.name, address)?;
        socket.send_to(message, SocketAddrV4::new(server, SERVER_PORT))?;
        self.replies = Some(socket);
        Ok(())
    }
}

impl Drop for Client {
    /// The link is no longer to have an address: its server is told.
    fn drop(&mut self) {
        let Some(lease) = self.states.lease() else { return };
        let xid = u32::try_from(random() >> 32).unwrap_or_default();
        let message = dhcp::message::release(&self.told.asked.settings, lease.address, lease.server, xid);
        let sent = unicast(&self.link.name, lease.address)
            .and_then(|socket| socket.send_to(&message, SocketAddrV4::new(lease.server, SERVER_PORT)));
        if let Err(error) = sent {
            self.warn(&format!("give {} back to {}: {error}", lease.address, lease.server));
        }
    }
}

/// A socket that sends from this address by this link.
fn unicast(link: &str, address: Ipv4Addr) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind_device(Some(link.as_bytes()))?;
    socket.bind(&SocketAddrV4::new(address, CLIENT_PORT).into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The resource that shows a lease.
fn resource(lease: &Lease) -> DhcpLease {
    let texts = |list: &[Ipv4Addr]| list.iter().map(Ipv4Addr::to_string).collect();
    DhcpLease {
        address: format!("{}/{}", lease.address, lease.prefix),
        server: lease.server.to_string(),
        gateway: lease.gateway().map(|gateway| gateway.to_string()),
        resolvers: texts(&lease.resolvers),
        time_servers: texts(&lease.time_servers),
        hostname: lease.hostname.clone(),
        domain: lease.domain.clone(),
        search_domains: lease.search_domains.clone(),
        lease_seconds: u32::try_from(lease.time.as_secs()).unwrap_or(u32::MAX),
    }
}

/// The lease of a link is no longer shown.
pub(super) fn forget_lease(runtime: &Runtime, name: &str) {
    if let Err(error) = runtime.store.remove(DHCP_LEASE.writer, &DHCP_LEASE, name) {
        runtime.journal.warn(&format!("networkd: {error}"));
    }
}

#[cfg(test)]
#[path = "client_dnsmasq_tests.rs"]
mod dnsmasq_tests;
#[cfg(test)]
#[path = "client_hostile_server_tests.rs"]
mod hostile_server_tests;
#[cfg(test)]
#[path = "client_kea_tests.rs"]
mod kea_tests;
#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
