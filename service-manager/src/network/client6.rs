//! The DHCPv6 client of one link: socket, time and kernel around the states of `dhcp6`.
//!
//! Order: an address is in use at once; the kernel asks beside whether another machine has it, and one that is gone again a while
//! later was another machine's: it is declined. The kernel has each address for its times, so that it goes when no server
//! prolongs it, also without machined.
//! Does not: set routes: routers tell them, and which networks are on the link.
//! Fails by: asking again, ever more slowly, and saying once what is missing.
//! Source: RFC 8415; RFC 4862 §5.4 (duplicate addresses).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dhcp6::message::{CLIENT_PORT, SERVER_PORT, SERVERS};
use dhcp6::{Client as States, FOREVER, Kept as KeptLease, Lease, Loss, Output, Settings};
use futures_util::TryStreamExt;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, CacheInfo};
use rtnetlink::Handle;
use runtime::Runtime;
use runtime::clock::until;
use runtime::store::{DHCP_LEASE, DhcpLease, Spec};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::Instant;

use super::apply;
use super::dhcp_status::DhcpStatus;
use super::kept::Kept;
use super::link::Link;
use super::opening::{opened, random};

/// A message and more.
const MESSAGE_BYTES: usize = 4 << 10;
/// The kernel has asked for other holders of an address by then (RFC 4862: a second, after up to one more).
const CHECK: Duration = Duration::from_secs(4);
/// Between two attempts at what the kernel refused.
const RETRY: Duration = Duration::from_secs(5);
/// Length of an address's prefix: what else is on the link the routers tell.
const ALONE: u8 = 128;

/// What the client is told while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientInput {
    pub(super) settings: Settings,
    pub(super) carrier: bool,
    /// How often the carrier came.
    pub(super) ups: u32,
}

struct Client {
    runtime: Arc<Runtime>,
    handle: Handle,
    kept: Arc<Kept>,
    link: Link,
    told: ClientInput,
    states: States,
    socket: UdpSocket,
    /// What the kernel has.
    applied: Option<Lease>,
    /// When it is asked whether it kept the addresses.
    check: Option<Duration>,
    /// When what it refused is tried again.
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
    let socket = opened(&runtime, &link, "DHCPv6", open).await;
    let now = told.borrow_and_update().clone();
    let states = States::new(now.settings.clone(), random());
    let status = DhcpStatus::new(&runtime, &link.name, "dhcp6");
    let mut client = Client {
        runtime,
        handle,
        kept,
        link,
        told: now,
        states,
        socket,
        applied: None,
        check: None,
        retry: None,
        origin: Instant::now(),
        said: String::new(),
        status,
    };
    client.serve(told).await;
}

fn open(link: &Link) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    socket.bind_device(Some(link.name.as_bytes()))?;
    socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, CLIENT_PORT, 0, 0).into())?;
    UdpSocket::from_std(socket.into())
}

/// The addresses of a lease.
fn list(lease: &Lease) -> String {
    let list: Vec<String> = lease.addresses.iter().map(|it| it.address.to_string()).collect();
    list.join(", ")
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Client {
    async fn serve(&mut self, mut told: watch::Receiver<ClientInput>) {
        let mut arrivals = self.kept.arrivals.subscribe();
        let mut buffer = vec![0; MESSAGE_BYTES];
        let outputs = self.states.start(self.now(), self.before());
        self.perform(outputs).await;
        loop {
            let due = [self.states.deadline(), self.check, self.retry].into_iter().flatten().min();
            let origin = self.origin;
            tokio::select! {
                () = until(due.map(|due| origin + due)) => self.tick().await,
                received = self.socket.recv_from(&mut buffer) => {
                    // An error is of a message that was sent: its receiver is gone.
                    let Ok((length, _)) = received else { continue };
                    let outputs = self.states.hear(self.now(), &buffer[..length]);
                    self.perform(outputs).await;
                }
                changed = told.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let new = told.borrow_and_update().clone();
                    self.hear_news(new).await;
                }
                _ = arrivals.changed() => {
                    if let Some(before) = self.before() {
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

    /// The lease that the link had once, as far as it is not over.
    fn before(&self) -> Option<Lease> {
        let text = self.kept.get(&self.told.settings.hardware)?;
        text.parse::<KeptLease>().ok()?.lease(self.now(), wall())
    }

    async fn tick(&mut self) {
        let now = self.now();
        if self.check.is_some_and(|check| check <= now) {
            self.check = None;
            self.look_for_conflicts().await;
        }
        if self.retry.is_some_and(|retry| retry <= now)
            && let Some(lease) = self.states.lease().cloned()
        {
            self.apply(lease).await;
        }
        let outputs = self.states.tick(now);
        self.perform(outputs).await;
    }

    /// An address that the kernel gave up, while the link carries packets, is another machine's.
    async fn look_for_conflicts(&mut self) {
        let Some(lease) = self.applied.clone().filter(|_| self.told.carrier) else { return };
        let held = self.held().await;
        for address in lease.addresses.iter().map(|address| address.address) {
            if !held.contains(&address) {
                self.warn(&format!("{address} is in use by another machine: declined"));
                let outputs = self.states.conflict(self.now(), address);
                Box::pin(self.perform(outputs)).await;
            }
        }
    }

    /// Addresses of the link that no other machine has.
    async fn held(&self) -> Vec<Ipv6Addr> {
        let mut found = self.handle.address().get().set_link_index_filter(self.link.index).execute();
        let mut held = Vec::new();
        while let Ok(Some(message)) = found.try_next().await {
            let is_doubled = message.attributes.iter().any(|attribute| {
                matches!(attribute, AddressAttribute::Flags(flags) if flags.contains(AddressFlags::Dadfailed))
            });
            held.extend(message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(IpAddr::V6(address)) if !is_doubled => Some(*address),
                _ => None,
            }));
        }
        held
    }

    async fn hear_news(&mut self, new: ClientInput) {
        let old = std::mem::replace(&mut self.told, new);
        let now = self.now();
        if old.settings != self.told.settings {
            let outputs = self.states.change(now, self.told.settings.clone());
            self.perform(outputs).await;
        } else if self.told.carrier && (!old.carrier || self.told.ups != old.ups) {
            self.status.begin();
            let outputs = self.states.start(now, self.before());
            self.perform(outputs).await;
        }
    }

    async fn perform(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(message) => {
                    self.status.requested();
                    let to = SocketAddrV6::new(SERVERS, SERVER_PORT, 0, self.link.index);
                    // Without an address of the link, yet, it is a lost message like any other.
                    let _ = self.socket.send_to(&message, SocketAddr::from(to)).await;
                }
                Output::Bound(lease) => self.bound(*lease).await,
                Output::Lost(lease, loss) => self.lost(&lease, loss).await,
                Output::Refused(lease) => {
                    self.kept.put(&self.told.settings.hardware, None, false);
                    // An earlier machined may have left them.
                    for address in &lease.addresses {
                        apply::remove(&self.handle, self.link.index, address.address.into()).await;
                    }
                    forget_lease(&self.runtime, &self.link.name);
                    self.status.lost(format!("{}, of before, does not fit the link", list(&lease)));
                }
                // The node always asks for addresses.
                Output::Informed(_) => {}
            }
        }
    }

    async fn bound(&mut self, lease: Lease) {
        let before = self.applied.take();
        let is_prolonged = before.as_ref().is_some_and(|before| {
            let same = |address: &dhcp6::Address| before.has(address.address);
            before.addresses.len() == lease.addresses.len() && lease.addresses.iter().all(same)
        });
        for gone in before.iter().flat_map(|before| &before.addresses).filter(|old| !lease.has(old.address)) {
            apply::remove(&self.handle, self.link.index, gone.address.into()).await;
        }
        self.apply(lease.clone()).await;
        if !is_prolonged {
            self.check = Some(self.now() + CHECK);
            let granted = format!("{} from {}", list(&lease), lease.server_duid);
            self.runtime.journal.say(&format!("networkd: {}: {granted}", self.link.name));
            self.status.granted(granted);
        }
        let kept = KeptLease::of(&lease, self.now(), wall()).to_string();
        self.kept.put(&self.told.settings.hardware, Some(kept), is_prolonged);
        self.announce(&lease);
    }

    async fn lost(&mut self, lease: &Lease, loss: Loss) {
        let reason = match loss {
            Loss::Expired => "is over: no server prolonged it",
            Loss::Refused => "is no longer granted",
            Loss::Conflict => "was given up",
            Loss::Released => "was given back",
        };
        let reason = format!("{} {reason}", list(lease));
        self.warn(&reason);
        self.status.lost(reason);
        (self.applied, self.check, self.retry) = (None, None, None);
        for address in &lease.addresses {
            apply::remove(&self.handle, self.link.index, address.address.into()).await;
        }
        forget_lease(&self.runtime, &self.link.name);
        if loss != Loss::Expired {
            self.kept.put(&self.told.settings.hardware, None, false);
        }
    }

    /// Brings a lease into the kernel. What is refused is said once, and tried again.
    async fn apply(&mut self, lease: Lease) {
        let mut refusals = Vec::new();
        for address in &lease.at(self.now()).addresses {
            let mut request =
                self.handle.address().add(self.link.index, address.address.into(), ALONE).replace();
            let seconds = |time: Duration| match time {
                FOREVER => u32::MAX,
                time => u32::try_from(time.as_secs()).unwrap_or(u32::MAX),
            };
            let mut life = CacheInfo::default();
            (life.ifa_preferred, life.ifa_valid) = (seconds(address.preferred), seconds(address.valid));
            request.message_mut().attributes.push(AddressAttribute::CacheInfo(life));
            let added = request.execute().await;
            refusals.extend(added.err().map(|error| format!("add address {}: {error}", address.address)));
        }
        self.retry = (!refusals.is_empty()).then(|| self.now() + RETRY);
        let text = refusals.join("; ");
        if !text.is_empty() && text != self.said {
            self.warn(&text);
        }
        self.said = text;
        self.applied = Some(lease);
    }

    fn announce(&self, lease: &Lease) {
        let texts = |list: &[Ipv6Addr]| list.iter().map(Ipv6Addr::to_string).collect();
        let Some(first) = lease.addresses.first() else { return };
        let resource = DhcpLease {
            address: format!("{}/{ALONE}", first.address),
            server: lease.server_duid.to_string(),
            gateway: None,
            resolvers: texts(&lease.dns_servers),
            time_servers: texts(&lease.time_servers),
            hostname: None,
            domain: None,
            search_domains: lease.domains.clone(),
            lease_seconds: u32::try_from(first.valid.as_secs()).unwrap_or(u32::MAX),
        };
        let (id, spec) = (id(&self.link.name), Spec::DhcpLease(resource));
        if let Err(error) = self.runtime.store.put(DHCP_LEASE.writer, &DHCP_LEASE, &id, spec) {
            self.warn(&error.to_string());
        }
    }

    fn warn(&self, text: &str) {
        self.runtime.journal.warn(&format!("networkd: {}: {text}", self.link.name));
    }
}

impl Drop for Client {
    /// The link is no longer to have addresses: their server is told, once.
    fn drop(&mut self) {
        let Some(lease) = self.states.lease() else { return };
        let addresses: Vec<Ipv6Addr> = lease.addresses.iter().map(|address| address.address).collect();
        let xid = u32::try_from(random() >> 40).unwrap_or_default();
        let message = dhcp6::message::release(&self.told.settings, &addresses, &lease.server_duid, xid);
        let to = SocketAddrV6::new(SERVERS, SERVER_PORT, 0, self.link.index);
        if let Err(error) = self.socket.try_send_to(&message, to.into()) {
            self.warn(&format!("give addresses back to {}: {error}", lease.server_duid));
        }
    }
}

/// Behind the link's name: a lease of DHCPv6.
const MARK: &str = "/6";

/// The id of a lease's resource.
fn id(link: &str) -> String {
    format!("{link}{MARK}")
}

/// The link of a lease's resource, and whether it is one of DHCPv6.
pub(super) fn link_of(id: &str) -> (&str, bool) {
    id.strip_suffix(MARK).map_or((id, false), |link| (link, true))
}

/// Takes from a link what a client that was ended left, and forgets it: it was given back.
pub(super) async fn remove_all(runtime: &Runtime, handle: &Handle, kept: &Kept, link: &Link) {
    let lease = kept.get(&link.hardware).and_then(|text| text.parse::<KeptLease>().ok());
    for address in lease.iter().flat_map(|lease| &lease.addresses) {
        apply::remove(handle, link.index, address.address.into()).await;
    }
    kept.put(&link.hardware, None, false);
    forget_lease(runtime, &link.name);
}

/// The lease of a link is no longer shown.
pub(super) fn forget_lease(runtime: &Runtime, link: &str) {
    if let Err(error) = runtime.store.remove(DHCP_LEASE.writer, &DHCP_LEASE, &id(link)) {
        runtime.journal.warn(&format!("networkd: {error}"));
    }
}

#[cfg(test)]
#[path = "client6_dnsmasq_tests.rs"]
mod dnsmasq_tests;
#[cfg(test)]
#[path = "client6_kea_tests.rs"]
mod kea_tests;
#[cfg(test)]
#[path = "client6_tests.rs"]
mod tests;
