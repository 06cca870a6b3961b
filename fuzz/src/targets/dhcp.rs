//! DHCP: what `netboot serve` with its pool says to a sequence of datagrams, and what a node takes from an answer.
//!
//! An input of the server's target is what the server has, and datagrams, each with a port and the seconds since the one before.
//! What must hold: nothing panics; memory is bounded; an answer is the asking machine's own, fits a frame and is read back the
//! same; no address is outside of the range or given to two machines; who has an address keeps it until it is given back or its
//! time is over, whatever others say. A lease is one that a node can live with.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use dhcproto::v4::{DhcpOption, Message, MessageType, Opcode, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable};
use netboot::dhcp::{Loaders, Port, Reply, Responder, Uefi};
use netboot::pool::LEASE;
use netboot::{Architecture, Event, Pool, Range};

use crate::check;
use crate::input::{Fields, sized};
use crate::shape;
use crate::target::{Outcome, Target};

pub(super) const TARGET: Target = Target {
    name: "netboot-dhcp",
    about: "sequences of DHCP datagrams to the boot server",
    seeds,
    words: &["PXEClient:Arch:00007:UNDI:003016", "HTTPClient:Arch:00016", "iPXE", "c\u{2}Sc", "5\u{1}\u{3}"],
    run,
};

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Three addresses: machines get into each other's way.
const RANGE: &str = "10.0.0.10-10.0.0.12/24";
/// What an Ethernet without jumbo frames takes; the server reads no more.
const FRAME_BYTES: usize = 1500;
/// Datagrams of an input.
const MOST_DATAGRAMS: usize = 64;
/// A message's options as values, and an answer's.
const MOST_BYTES: usize = 256 << 10;

const HAS_RANGE: u8 = 1;
const HAS_UKI: u8 = 2;
const ON_PXE: u8 = 1;

fn message(kind: MessageType, mac: u8, options: &[DhcpOption]) -> Message {
    let nobody = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(7, nobody, nobody, nobody, nobody, &[0x52, 0x54, 0, 0, 0, mac]);
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    options.iter().for_each(|option| drop(message.opts_mut().insert(option.clone())));
    message
}

fn datagram(port: u8, seconds: u16, message: &Message) -> Vec<u8> {
    let bytes = message.to_vec().expect("a message of a seed");
    [&[port][..], &seconds.to_be_bytes(), &sized(&bytes)].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let firmware = |number: u16| {
        vec![
            DhcpOption::ClassIdentifier(b"PXEClient:Arch:00007:UNDI:002001".to_vec()),
            DhcpOption::ClientSystemArchitecture(number.into()),
            DhcpOption::ClientMachineIdentifier(vec![0; 17]),
        ]
    };
    let ipxe = [firmware(7), vec![DhcpOption::UserClass(b"iPXE".to_vec())]].concat();
    let wanted = |last: u8| DhcpOption::RequestedIpAddress(Ipv4Addr::new(10, 0, 0, last));
    let ours = DhcpOption::ServerIdentifier(US);
    let discover =
        |mac, options: &[DhcpOption]| datagram(0, 1, &message(MessageType::Discover, mac, options));
    let request =
        |mac, last| datagram(0, 1, &message(MessageType::Request, mac, &[wanted(last), ours.clone()]));
    let decline = |mac, last| datagram(0, 1, &message(MessageType::Decline, mac, &[wanted(last)]));
    let mut renewal = message(MessageType::Request, 1, &[]);
    renewal.set_ciaddr(Ipv4Addr::new(10, 0, 0, 10));
    let mut release = message(MessageType::Release, 1, &[]);
    release.set_ciaddr(Ipv4Addr::new(10, 0, 0, 10));
    let later = |seconds, message: &Message| datagram(0, seconds, message);
    let with = |flags: u8, datagrams: &[Vec<u8>]| [vec![flags], datagrams.concat()].concat();
    vec![
        with(0, &[discover(1, &firmware(7)), discover(2, &firmware(0)), discover(3, &ipxe)]),
        with(HAS_UKI, &[datagram(ON_PXE, 0, &message(MessageType::Request, 1, &firmware(7)))]),
        with(HAS_RANGE, &[discover(1, &[]), request(1, 10), discover(2, &[wanted(10)]), request(2, 11)]),
        with(HAS_RANGE, &[request(1, 10), decline(1, 10), discover(1, &[]), request(1, 11)]),
        with(HAS_RANGE, &[request(1, 10), later(1000, &release), request(2, 10), later(5000, &renewal)]),
        with(
            HAS_RANGE,
            &[request(1, 10), request(2, 11), request(3, 12), discover(4, &ipxe), request(4, 10)],
        ),
        with(HAS_RANGE | HAS_UKI, &[request(1, 10), request(1, 12), later(3599, &renewal)]),
    ]
}

/// What each machine was told that it has.
#[derive(Default)]
struct Model(BTreeMap<Ipv4Addr, (Vec<u8>, Instant)>);

impl Model {
    fn holder(&self, address: Ipv4Addr, now: Instant) -> Option<&[u8]> {
        self.0.get(&address).filter(|(_, until)| *until > now).map(|(mac, _)| mac.as_slice())
    }

    /// Compares an answer with what was told before; `None`: there was none.
    fn hear(&mut self, asked: &Message, reply: Option<&Message>, now: Instant) {
        let mac = asked.chaddr().to_vec();
        let kind = asked.opts().msg_type();
        let given = |address: Ipv4Addr| if address.is_unspecified() { None } else { Some(address) };
        let wanted = match asked.opts().get(OptionCode::RequestedIpAddress) {
            Some(DhcpOption::RequestedIpAddress(address)) => Some(*address),
            _ => None,
        };
        match kind {
            Some(MessageType::Release) => self.drop_of(&mac, given(asked.ciaddr())),
            Some(MessageType::Decline) => self.drop_of(&mac, wanted),
            _ => {}
        }
        let Some(reply) = reply else { return };
        let said = reply.opts().msg_type();
        if let Some(address) = given(reply.yiaddr()) {
            let range: Range = RANGE.parse().expect("a range");
            assert!(range.contains(address), "{address} is not of the range");
            let holder = self.holder(address, now);
            assert!(holder.is_none_or(|holder| holder == mac), "{address} is given to two machines");
            if said == Some(MessageType::Ack) {
                self.0.retain(|_, (who, _)| *who != mac);
                self.0.insert(address, (mac.clone(), now + LEASE));
            }
        }
        if said == Some(MessageType::Nak) {
            let asked = wanted.or_else(|| given(asked.ciaddr()));
            let holder = asked.and_then(|address| self.holder(address, now));
            assert!(holder != Some(&mac), "{asked:?} is taken away from its machine");
        }
    }

    fn drop_of(&mut self, mac: &[u8], address: Option<Ipv4Addr>) {
        self.0.retain(|own, (who, _)| who != mac || Some(*own) != address);
    }
}

fn run(input: &[u8]) -> Outcome {
    let mut fields = Fields::of(input);
    let flags = fields.u8();
    let uefi = if flags & HAS_UKI == 0 { Uefi::File("ipxe.efi".into()) } else { Uefi::Own };
    let loaders = Loaders {
        architecture: Some(Architecture::Amd64),
        bios: Some("undionly.kpxe".into()),
        amd64: Some(uefi),
        arm64: None,
    };
    let pool = (flags & HAS_RANGE != 0).then(|| Pool::new(RANGE.parse().expect("a range")));
    let mut responder = Responder { address: US, http_port: 8080, loaders, pool };
    let (mut now, mut model) = (Instant::now(), Model::default());
    let (mut answers, mut shapes) = (0, Vec::new());
    for _ in 0..MOST_DATAGRAMS {
        if fields.is_empty() {
            break;
        }
        let port = if fields.u8() & ON_PXE == 0 { Port::Dhcp } else { Port::Pxe };
        now += Duration::from_secs(fields.u16().into());
        let packet = fields.sized();
        let packet = &packet[..packet.len().min(FRAME_BYTES)];
        let from = SocketAddr::from(([10, 0, 0, 77], 68));
        let (asked, reply, told) =
            check::within(MOST_BYTES, || heard(&mut responder, packet, from, port, now));
        let Some(asked) = asked else {
            shapes.push("no message".to_owned());
            continue;
        };
        told.iter().for_each(|event| check::shown(&event.to_string()));
        shapes.extend(told.iter().map(|event| shape::of(&event.to_string())));
        if port == Port::Dhcp && asked.opcode() == Opcode::BootRequest && asked.giaddr().is_unspecified() {
            model.hear(&asked, reply.as_ref().map(|reply| &reply.message), now);
        }
        if let Some(Reply { message, to }) = reply {
            answers += 1;
            is_an_answer(&asked, &message, to, from);
            shapes.push(format!("{:?} to {:?}", message.opts().msg_type(), asked.opts().msg_type()));
        }
    }
    Outcome { accepted: answers > 0, shapes }
}

pub(super) const CLIENT: Target = Target {
    name: "dhcp-client",
    about: "answers of DHCP servers to a node",
    seeds: client_seeds,
    words: &["node-1.example", "c\u{2}Sc", "5\u{1}\u{5}", "\u{79}\u{8}", "\u{51}\u{3}"],
    run: client,
};

const XID: u32 = 7;
const OWN: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

fn client_seeds() -> Vec<Vec<u8>> {
    let answer = |kind| {
        let mut message = message(
            kind,
            OWN[5],
            &[
                DhcpOption::ServerIdentifier(US),
                DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0)),
                DhcpOption::Router(vec![US]),
                DhcpOption::DomainNameServer(vec![US, US]),
                DhcpOption::Hostname("node-1".into()),
                DhcpOption::DomainName("example.".into()),
                DhcpOption::InterfaceMtu(1400),
                DhcpOption::AddressLeaseTime(3600),
                DhcpOption::Renewal(u32::MAX),
                DhcpOption::Rebinding(0),
            ],
        );
        message.set_opcode(Opcode::BootReply).set_yiaddr(Ipv4Addr::new(10, 0, 0, 10));
        message.to_vec().expect("a message of a seed")
    };
    let ack = answer(MessageType::Ack);
    // Classless routes, at the end of the options.
    let end = ack.iter().rposition(|byte| *byte == 255).expect("an end of the options");
    let routes = [&ack[..end], &[121, 12, 24, 10, 0, 1, 10, 0, 0, 1, 0, 10, 0, 0, 1, 255]].concat();
    vec![answer(MessageType::Offer), ack, routes, answer(MessageType::Nak)]
}

/// A packet as the node's client gets it in an exchange of its own.
fn client(packet: &[u8]) -> Outcome {
    let packet = &packet[..packet.len().min(FRAME_BYTES)];
    let Some(lease) = check::within(MOST_BYTES, || dhcp::granted(packet, XID, &OWN)) else {
        return Outcome::refused("nothing granted");
    };
    assert!(lease.time.as_secs() >= 30, "a lease of {:?} would be asked for without end", lease.time);
    for name in lease.hostname.iter().chain(&lease.domain).chain(&lease.search_domains) {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        assert!(is_plain && name.len() <= 253, "{name:?} becomes a name of the node");
    }
    let shape = format!(
        "gateway {}, {} resolvers, named {}",
        lease.gateway().is_some(),
        lease.resolvers.len().min(3),
        lease.hostname.is_some()
    );
    Outcome { accepted: true, shapes: vec![shape] }
}

/// As the server does it.
fn heard(
    responder: &mut Responder,
    packet: &[u8],
    from: SocketAddr,
    port: Port,
    now: Instant,
) -> (Option<Message>, Option<Reply>, Vec<Event>) {
    let Some(asked) = netboot::dhcp::read(packet) else { return (None, None, Vec::new()) };
    let mut told = Vec::new();
    let reply = responder.answer(&asked, from, port, now, &mut |event| told.push(event));
    (Some(asked), reply, told)
}

fn is_an_answer(asked: &Message, reply: &Message, to: SocketAddr, from: SocketAddr) {
    let own = reply.xid() == asked.xid() && reply.chaddr() == asked.chaddr();
    assert!(own && reply.opcode() == Opcode::BootReply, "an answer to somebody else: {reply:?}");
    assert!(to == from || to == SocketAddr::from((Ipv4Addr::BROADCAST, 68)), "an answer to {to}");
    let bytes = reply.to_vec().expect("an answer is a message");
    assert!(bytes.len() <= FRAME_BYTES, "an answer of {} bytes", bytes.len());
    let again = Message::decode(&mut Decoder::new(&bytes)).expect("an answer is read");
    let said = |message: &Message| {
        let server = message.opts().get(OptionCode::ServerIdentifier).cloned();
        (message.opts().msg_type(), server, message.yiaddr(), message.fname().map(<[u8]>::to_vec))
    };
    assert!(
        said(&again).0 == said(reply).0 && said(&again).1 == said(reply).1,
        "an answer is read otherwise"
    );
    assert!(said(&again).2 == said(reply).2, "an address is read otherwise");
}
