//! A network in memory: DHCP, DNS, HTTP and HTTPS servers behind one wire, with the faults that real ones have.
//!
//! Owns: the other end of a [`crate::Link`] in tests: a second smoltcp, so that every frame is one that could be.
//! Does not: know the client. Time is the caller's: [`Peer::turn`] gets the clock.

#![allow(missing_docs, clippy::missing_panics_doc, reason = "for tests")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use rustls::ServerConfig;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{
    DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint,
    Ipv4Cidr,
};

mod tls;

use tls::Records;
pub use tls::{Authority, GOOD, TODAY_S};

/// The server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The same machine's second address.
pub const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// What DHCP gives.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 100);
/// The client's card.
pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
/// Connections that a server holds at once.
const CONNECTIONS: usize = 4;

/// What is on the network.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub vlan: Option<u16>,
    /// Servers of DHCP: [`SERVER`], [`SECOND`].
    pub dhcp: Vec<Ipv4Addr>,
    /// Their answers name no next server: they give addresses, and know of no files.
    pub no_next_server: bool,
    /// What the name server on [`SERVER`] knows.
    pub names: Vec<(&'static str, Ipv4Addr)>,
    pub sites: Vec<Site>,
    /// Segments come as a virtual machine's neighbour sends them.
    pub checksum_missing: bool,
}

impl Plan {
    /// One DHCP server, one site.
    pub fn with(sites: impl IntoIterator<Item = Site>) -> Self {
        Self { dhcp: vec![SERVER], sites: sites.into_iter().collect(), ..Self::default() }
    }
}

/// An HTTP or HTTPS server on a port.
#[derive(Debug, Clone)]
pub struct Site {
    pub port: u16,
    pub files: BTreeMap<String, Answer>,
    pub manner: Manner,
    pub tls: Option<Arc<ServerConfig>>,
}

impl Site {
    pub fn new(port: u16, manner: Manner) -> Self {
        Self { port, files: BTreeMap::new(), manner, tls: None }
    }

    pub fn secure(self, tls: Arc<ServerConfig>) -> Self {
        Self { tls: Some(tls), ..self }
    }

    pub fn file(mut self, path: &str, answer: Answer) -> Self {
        self.files.insert(path.to_string(), answer);
        self
    }
}

#[derive(Debug, Clone)]
pub enum Answer {
    File(Vec<u8>),
    Status(&'static str),
    Redirect(String),
    /// Head and body as they are, right or not.
    Raw(Vec<u8>),
}

/// How a server serves.
#[derive(Debug, Clone)]
pub enum Manner {
    Good,
    /// Every answer is the whole file.
    NoRanges,
    /// The first connections break after so many bytes of the file, or of records; those behind the last are good.
    Breaks(Vec<usize>),
    /// Every answer is the whole file, and every connection breaks after so many bytes of it.
    BreaksAnew(usize),
    /// So many bytes a second.
    Slow(u64),
    /// It takes the request and says nothing; nor does it shake hands.
    Mute,
    /// Each answer comes in segments that end at these bytes of it, head included, and the rest in one more.
    Pieces(Vec<usize>),
}

impl Manner {
    fn begins_anew(&self) -> bool {
        matches!(self, Self::NoRanges | Self::BreaksAnew(_))
    }
}

/// The servers.
pub struct Peer {
    interface: Interface,
    sockets: SocketSet<'static>,
    wire: Cable,
    plan: Plan,
    dhcp: SocketHandle,
    dns: SocketHandle,
    connections: Vec<Connection>,
    served: BTreeMap<u16, usize>,
    now_ns: u64,
    /// `80 /base from 7`
    pub requests: Vec<String>,
    /// What each answer of DHCP named as next server.
    pub next_servers: Vec<Ipv4Addr>,
    /// Bytes of files that were sent; by HTTPS, that were encrypted.
    pub sent_bytes: u64,
    /// What servers saw go wrong with TLS.
    pub errors: Vec<String>,
}

struct Connection {
    handle: SocketHandle,
    site: usize,
    request: Vec<u8>,
    answer: Option<Vec<u8>>,
    head: usize,
    sent: usize,
    cut: Option<usize>,
    began_ns: u64,
    records: Option<Records>,
}

impl Peer {
    pub fn new(plan: &Plan) -> Self {
        let mut wire = Cable {
            incoming: VecDeque::new(),
            outgoing: VecDeque::new(),
            checksum_missing: plan.checksum_missing,
        };
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 1])));
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            for address in [SERVER, SECOND] {
                addresses.push(IpCidr::Ipv4(Ipv4Cidr::new(address, 24))).unwrap();
            }
        });
        let mut sockets = SocketSet::new(Vec::new());
        let mut datagrams = |port| {
            let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 8], vec![0; 16 << 10]);
            let mut socket = udp::Socket::new(buffer(), buffer());
            socket.bind(port).unwrap();
            sockets.add(socket)
        };
        let (dhcp, dns) = (datagrams(67), datagrams(53));
        let mut connections = Vec::new();
        for site in 0..plan.sites.len() {
            for _ in 0..CONNECTIONS {
                let buffer = || tcp::SocketBuffer::new(vec![0; 64 << 10]);
                let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
                connections.push(Connection {
                    handle,
                    site,
                    request: Vec::new(),
                    answer: None,
                    head: 0,
                    sent: 0,
                    cut: None,
                    began_ns: 0,
                    records: None,
                });
            }
        }
        Self {
            interface,
            sockets,
            wire,
            plan: plan.clone(),
            dhcp,
            dns,
            connections,
            served: BTreeMap::new(),
            now_ns: 0,
            requests: Vec::new(),
            next_servers: Vec::new(),
            sent_bytes: 0,
            errors: Vec::new(),
        }
    }

    /// A frame from the client. On a VLAN, one without its tag is for somebody else.
    pub fn take(&mut self, frame: &[u8]) {
        let mut frame = frame.to_vec();
        let tagged = frame[12..14] == [0x81, 0];
        let vlan = tagged.then(|| u16::from_be_bytes([frame[14], frame[15]]) & 0xfff);
        if tagged {
            frame.drain(12..16);
        }
        if vlan == self.plan.vlan {
            self.wire.incoming.push_back(frame);
        }
    }

    /// A frame for the client, and the tag that its card took off.
    pub fn give(&mut self) -> Option<(Vec<u8>, Option<u16>)> {
        self.wire.outgoing.pop_front().map(|frame| (frame, self.plan.vlan.map(|vlan| vlan | 0x6000)))
    }

    /// Whether [`Peer::give`] has something.
    pub fn has_frames(&self) -> bool {
        !self.wire.outgoing.is_empty()
    }

    /// When something may happen by itself.
    pub fn next_ns(&mut self) -> Option<u64> {
        let now = Instant::from_micros(i64::try_from(self.now_ns / 1000).unwrap());
        let delay = self.interface.poll_delay(now, &self.sockets).map(|d| d.total_micros() * 1000);
        let is_slow = |c: &Connection| c.answer.is_some() && matches!(self.site(c).manner, Manner::Slow(_));
        let slow = self.connections.iter().any(is_slow).then_some(250_000_000);
        let next = [delay, slow].into_iter().flatten().min()?;
        Some(self.now_ns + next.max(1_000))
    }

    fn site(&self, connection: &Connection) -> &Site {
        &self.plan.sites[connection.site]
    }

    /// Everything that the servers do at this time.
    pub fn turn(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let now = Instant::from_micros(i64::try_from(now_ns / 1000).unwrap());
        for _ in 0..2 {
            self.interface.poll(now, &mut self.wire, &mut self.sockets);
            self.serve_addresses();
            self.serve_names();
            for number in 0..self.connections.len() {
                self.serve(number);
            }
            self.interface.poll(now, &mut self.wire, &mut self.sockets);
        }
    }

    fn serve_addresses(&mut self) {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.dhcp);
        let mut replies = Vec::new();
        while let Ok((bytes, _)) = socket.recv() {
            // Firmware says more than smoltcp reads; what it does not read it does not answer.
            let Ok(packet) = DhcpPacket::new_checked(bytes) else { continue };
            let Ok(asked) = DhcpRepr::parse(&packet) else { continue };
            for server in &self.plan.dhcp {
                let message_type = match asked.message_type {
                    DhcpMessageType::Discover => DhcpMessageType::Offer,
                    DhcpMessageType::Request if asked.server_identifier == Some(*server) => {
                        DhcpMessageType::Ack
                    }
                    _ => continue,
                };
                let dns = if self.plan.names.is_empty() { &[][..] } else { &[SERVER] };
                let server_ip = if self.plan.no_next_server { Ipv4Addr::UNSPECIFIED } else { *server };
                self.next_servers.push(server_ip);
                let reply = DhcpRepr {
                    message_type,
                    transaction_id: asked.transaction_id,
                    secs: 0,
                    client_hardware_address: asked.client_hardware_address,
                    client_ip: Ipv4Addr::UNSPECIFIED,
                    your_ip: CLIENT,
                    server_ip,
                    router: Some(SERVER),
                    subnet_mask: Some(MASK),
                    relay_agent_ip: Ipv4Addr::UNSPECIFIED,
                    broadcast: true,
                    requested_ip: None,
                    client_identifier: None,
                    server_identifier: Some(*server),
                    parameter_request_list: None,
                    dns_servers: (!dns.is_empty()).then(|| dns.iter().copied().collect()),
                    max_size: None,
                    lease_duration: Some(3600),
                    renew_duration: None,
                    rebind_duration: None,
                    additional_options: &[],
                };
                let mut bytes = vec![0; reply.buffer_len()];
                reply.emit(&mut DhcpPacket::new_unchecked(&mut bytes)).unwrap();
                let to = IpEndpoint::new(IpAddress::Ipv4(Ipv4Addr::BROADCAST), 68);
                let mut to = udp::UdpMetadata::from(to);
                to.local_address = Some(IpAddress::Ipv4(*server));
                replies.push((bytes, to));
            }
        }
        for (reply, to) in replies {
            socket.send_slice(&reply, to).unwrap();
        }
    }

    fn serve_names(&mut self) {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.dns);
        let mut replies = Vec::new();
        while let Ok((asked, from)) = socket.recv() {
            let mut labels = Vec::new();
            let mut at = 12;
            while asked[at] != 0 {
                let end = at + 1 + usize::from(asked[at]);
                labels.push(core::str::from_utf8(&asked[at + 1..end]).unwrap().to_string());
                at = end;
            }
            let name = labels.join(".");
            let found = self.plan.names.iter().find(|(known, _)| *known == name);
            let mut reply = asked[..2].to_vec();
            // A response, recursion available; name error if there is none. One question, at most one answer.
            reply.extend([0x81, if found.is_some() { 0x80 } else { 0x83 }]);
            reply.extend([0, 1, 0, u8::from(found.is_some()), 0, 0, 0, 0]);
            reply.extend(&asked[12..at + 5]);
            if let Some((_, address)) = found {
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                reply.extend(address.octets());
            }
            replies.push((reply, from));
        }
        for (reply, to) in replies {
            socket.send_slice(&reply, to.endpoint).unwrap();
        }
    }

    fn serve(&mut self, number: usize) {
        let Self { connections, sockets, plan, served, requests, sent_bytes, errors, now_ns, .. } = self;
        let connection = &mut connections[number];
        let site = &plan.sites[connection.site];
        let socket = sockets.get_mut::<tcp::Socket<'_>>(connection.handle);
        if !socket.is_open() {
            (connection.request, connection.answer) = (Vec::new(), None);
            connection.records = site.tls.as_ref().map(Records::new);
            socket.listen(site.port).unwrap();
        }
        while socket.can_recv() {
            let received = socket.recv(|bytes| (bytes.len(), bytes.to_vec())).unwrap();
            match &mut connection.records {
                Some(_) if matches!(site.manner, Manner::Mute) => {}
                Some(records) => {
                    connection.request.extend(records.take(&received));
                    errors.extend(records.error.take().map(|error| error.to_string()));
                }
                None => connection.request.extend_from_slice(&received),
            }
        }
        if connection.answer.is_none() && connection.request.ends_with(b"\r\n\r\n") {
            let count = served.entry(site.port).or_default();
            *count += 1;
            connection.cut = match &site.manner {
                Manner::Breaks(after) => after.get(*count - 1).copied(),
                Manner::BreaksAnew(after) => Some(*after),
                _ => None,
            };
            let (head, body) = answer(site, &connection.request, requests);
            (connection.head, connection.sent, connection.began_ns) = (head.len(), 0, *now_ns);
            connection.answer = Some([head, body].concat());
        }
        let mut is_done = connection.feed(site, socket, *now_ns, sent_bytes);
        if let Some(records) = &mut connection.records {
            is_done &= records.send(socket, connection.cut);
        }
        if is_done {
            socket.close();
        } else if connection.is_cut() && socket.send_queue() == 0 {
            socket.abort();
        }
    }
}

impl Connection {
    /// Hands the answer to the wire or to the records, as much as is due. Whether that was all.
    fn feed(&mut self, site: &Site, socket: &mut tcp::Socket<'_>, now_ns: u64, sent_bytes: &mut u64) -> bool {
        let Some(answer) = &self.answer else { return false };
        let most = match &site.manner {
            Manner::Mute => 0,
            // The next one begins when the one before it was taken.
            Manner::Pieces(_) if socket.send_queue() > 0 => 0,
            Manner::Pieces(ends) => ends.iter().copied().find(|end| *end > self.sent).unwrap_or(usize::MAX),
            Manner::Slow(rate) => {
                let bytes = (now_ns - self.began_ns).saturating_mul(*rate) / 1_000_000_000;
                self.head + usize::try_from(bytes).unwrap()
            }
            _ if self.records.is_some() => usize::MAX,
            _ => self.cut.map_or(usize::MAX, |cut| self.head + cut),
        };
        let end = answer.len().min(most);
        while self.sent < end {
            let piece = &answer[self.sent..end];
            let count = match &mut self.records {
                Some(records) => records.give(piece),
                None if socket.can_send() => socket.send_slice(piece).unwrap(),
                None => break,
            };
            let body = |at: usize| at.saturating_sub(self.head);
            *sent_bytes += (body(self.sent + count) - body(self.sent)) as u64;
            self.sent += count;
        }
        self.sent == answer.len()
    }

    fn is_cut(&self) -> bool {
        let sent = self.records.as_ref().map_or(self.sent.saturating_sub(self.head), |records| records.sent);
        self.answer.is_some() && self.cut.is_some_and(|cut| sent >= cut)
    }
}

/// Head and body.
fn answer(site: &Site, request: &[u8], requests: &mut Vec<String>) -> (Vec<u8>, Vec<u8>) {
    let text = core::str::from_utf8(request).unwrap();
    let path = text.split(' ').nth(1).unwrap();
    let offset = text.split("Range: bytes=").nth(1).and_then(|rest| rest.split('-').next());
    let offset: usize = offset.map_or(0, |offset| offset.parse().unwrap());
    requests.push(format!("{} {path} from {offset}", site.port));
    let status =
        |line: &str| (format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n").into_bytes(), Vec::new());
    match site.files.get(path) {
        None => status("404 Not Found"),
        Some(Answer::Status(line)) => status(line),
        Some(Answer::Raw(bytes)) => (Vec::new(), bytes.clone()),
        Some(Answer::Redirect(to)) => status(&format!("302 Found\r\nLocation: {to}")),
        Some(Answer::File(bytes)) if offset == 0 || site.manner.begins_anew() => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
            (head.into_bytes(), bytes.clone())
        }
        Some(Answer::File(bytes)) => {
            let all = bytes.len();
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {offset}-{}/{all}\r\n\r\n",
                all - offset,
                all - 1
            );
            (head.into_bytes(), bytes[offset..].to_vec())
        }
    }
}

struct Cable {
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
    checksum_missing: bool,
}

impl Device for Cable {
    type RxToken<'t> = Whole;
    type TxToken<'t> = Queue<'t>;

    fn receive(&mut self, _: Instant) -> Option<(Whole, Queue<'_>)> {
        let frame = self.incoming.pop_front()?;
        Some((Whole(frame), Queue(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Queue<'_>> {
        Some(Queue(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        if self.checksum_missing {
            capabilities.checksum.tcp = Checksum::Rx;
            capabilities.checksum.udp = Checksum::Rx;
        }
        capabilities
    }
}

struct Whole(Vec<u8>);

impl RxToken for Whole {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(&self.0)
    }
}

struct Queue<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Queue<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut frame = vec![0; length];
        let result = write(&mut frame);
        self.0.push_back(frame);
        result
    }
}
