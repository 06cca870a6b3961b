//! A client in a simulated network with virtual time, beside a model of what it may have.
//!
//! Each round is wild at first: messages are lost, doubled, late or broken; cables are pulled; machines restart and sleep; two
//! servers restart, forget and refuse, and grant for no time; another machine has some of their addresses. Then the network is
//! calm: now the client must get an address within a time, and keep it.
//! The model has one address at most, and for each the last end that a server's clock knows.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// In milliseconds: a message is on its way for so long at most, one that comes twice for so long.
const WAY: u64 = 1_000;
const LONG_WAY: u64 = 60_000;
/// A client that has nothing asks at least so often: the longest wait with its jitter, or that after a refusal.
const SILENCE: Duration = Duration::from_secs(66);
/// In a calm network it has an address after so long: a wait, a refusal, and another wait.
const PATIENCE: Duration = Duration::from_secs(200);
/// So long it must keep it.
const CALM: Duration = Duration::from_secs(1500);
/// Addresses of each server.
const POOL: u8 = 4;

fn milliseconds(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn is_one_in(random: &mut Rng, count: u64) -> bool {
    random.u64(..count) == 0
}

/// A server that knows one client.
struct Server {
    number: u8,
    is_up: bool,
    is_rapid: bool,
    /// It refuses what it does not know.
    is_sure: bool,
    /// The last byte of an address, and when the client's time is over.
    bindings: BTreeMap<u8, Duration>,
    declined: BTreeSet<u8>,
}

impl Server {
    fn new(number: u8, random: &mut Rng) -> Self {
        let (is_rapid, is_sure) = (random.bool(), random.bool());
        Self { number, is_up: true, is_rapid, is_sure, bindings: BTreeMap::new(), declined: BTreeSet::new() }
    }

    fn pool(&self) -> std::ops::Range<u8> {
        self.number * 10..self.number * 10 + POOL
    }

    /// What the client has, what it wants, or another one.
    fn choice(&mut self, wanted: u8) -> Option<u8> {
        if self.declined.len() == usize::from(POOL) {
            self.declined.clear();
        }
        let known = self.bindings.keys().next().copied();
        let all = known.into_iter().chain([wanted]).chain(self.pool());
        let mut free = all.filter(|last| self.pool().contains(last) && !self.declined.contains(last));
        free.next()
    }

    fn bind(&mut self, now: Duration, to: &Message, last: u8, random: &mut Rng, is_calm: bool) -> Message {
        // One who grants less than a moment before takes back what an answer on its way still promises: not in a calm network.
        let time = if is_calm { 300 } else { [0, 1, 30, 45, 200, 900][random.usize(..6)] };
        self.bindings.clear();
        self.bindings.insert(last, now + seconds(time.into()));
        let mut answer = answer(to, MessageType::Ack, address(last), self.address(), time);
        if !is_calm && is_one_in(random, 3) {
            answer.opts_mut().insert(DhcpOption::Renewal(random.u32(..time.max(1) * 2)));
            answer.opts_mut().insert(DhcpOption::Rebinding(random.u32(..time.max(1) * 2)));
        }
        answer
    }

    fn address(&self) -> Ipv4Addr {
        address(self.number)
    }

    fn hear(&mut self, now: Duration, to: &Message, random: &mut Rng, is_calm: bool) -> Option<Message> {
        let requested = match to.opts().get(OptionCode::RequestedIpAddress) {
            Some(DhcpOption::RequestedIpAddress(address)) => address.octets()[3],
            _ => to.ciaddr().octets()[3],
        };
        let chosen = match to.opts().get(OptionCode::ServerIdentifier) {
            Some(DhcpOption::ServerIdentifier(server)) => Some(*server),
            _ => None,
        };
        let refusal = Some(answer(to, MessageType::Nak, Ipv4Addr::UNSPECIFIED, self.address(), 0));
        let is_in_mood = !is_calm && is_one_in(random, 8);
        match to.opts().msg_type()? {
            MessageType::Discover => {
                let last = self.choice(requested)?;
                if !self.is_rapid || to.opts().get(OptionCode::RapidCommit).is_none() {
                    return Some(answer(to, MessageType::Offer, address(last), self.address(), 100));
                }
                let mut answer = self.bind(now, to, last, random, is_calm);
                answer.opts_mut().insert(DhcpOption::RapidCommit);
                Some(answer)
            }
            MessageType::Request if chosen.is_some_and(|chosen| chosen != self.address()) => None,
            MessageType::Request if is_in_mood => {
                self.bindings.remove(&requested);
                refusal
            }
            MessageType::Request if chosen.is_some() => {
                let is_free = self.pool().contains(&requested) && !self.declined.contains(&requested);
                if is_free { Some(self.bind(now, to, requested, random, is_calm)) } else { refusal }
            }
            MessageType::Request => {
                let is_known = self.bindings.get(&requested).is_some_and(|end| *end > now);
                if is_known {
                    return Some(self.bind(now, to, requested, random, is_calm));
                }
                refusal.filter(|_| self.is_sure && self.pool().contains(&requested))
            }
            MessageType::Decline if chosen == Some(self.address()) => {
                self.bindings.remove(&requested);
                self.declined.insert(requested);
                None
            }
            _ => None,
        }
    }
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

/// Something on the way.
enum Event {
    /// Which server, and what.
    ToServer(usize, Vec<u8>),
    /// What, and when a server said it.
    ToClient(Vec<u8>, Duration),
    /// Another machine answers for this address.
    Clash(Ipv4Addr),
}

/// Why a client does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// An address, and the end of its time by its server's clock.
    Ack(Ipv4Addr, Duration),
    Nak,
    Clash,
    Other,
}

impl Cause {
    fn of(packet: &[u8], said_at: Duration) -> Self {
        let Some(message) = message::read(packet) else { return Self::Other };
        match message.opts().msg_type() {
            Some(MessageType::Ack) => {
                // The client's own rules: no time at all is half an hour, and half a minute is the least.
                let time = match message.opts().get(OptionCode::AddressLeaseTime) {
                    Some(DhcpOption::AddressLeaseTime(time)) => (*time).max(30),
                    _ => 1800,
                };
                Self::Ack(message.yiaddr(), said_at + seconds(time.into()))
            }
            Some(MessageType::Nak) => Self::Nak,
            _ => Self::Other,
        }
    }
}

struct World {
    random: Rng,
    now: Duration,
    client: Client,
    servers: [Server; 2],
    events: BTreeMap<(Duration, u64), Event>,
    count: u64,
    has_carrier: bool,
    is_calm: bool,
    /// Addresses that another machine has.
    occupied: BTreeSet<u8>,
    /// What the machine knows on its disk.
    kept: Option<Ipv4Addr>,
    // The model.
    used: Option<(Ipv4Addr, Duration)>,
    said: Vec<Duration>,
    acks: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let servers = [Server::new(1, &mut random), Server::new(2, &mut random)];
        let occupied = (0..random.u8(..3)).map(|_| [10, 11, 20, 21][random.usize(..4)]).collect();
        let mut world = Self {
            random,
            now: Duration::ZERO,
            client: client(seed),
            servers,
            events: BTreeMap::new(),
            count: 0,
            has_carrier: true,
            is_calm: false,
            occupied,
            kept: None,
            used: None,
            said: Vec::new(),
            acks: 0,
        };
        let outputs = world.client.start(world.now, None);
        world.perform(&outputs, Cause::Other);
        world
    }

    fn after(&mut self, most: u64, event: Event) {
        self.count += 1;
        let way = self.random.u64(1..most);
        self.events.insert((self.now + milliseconds(way), self.count), event);
    }

    /// Puts what was said on the wire, and judges all of it.
    fn perform(&mut self, outputs: &[Output], cause: Cause) {
        let now = self.now;
        for output in outputs {
            match output {
                Output::Bound(lease) => {
                    let Cause::Ack(granted, end) = cause else { panic!("{lease:?} by {cause:?}") };
                    let over = now + self.client.remaining(now);
                    assert_eq!(lease.address, granted);
                    assert!(over <= end, "{granted} up to {over:?}, granted up to {end:?}");
                    (self.used, self.kept) = (Some((granted, over)), Some(granted));
                    self.acks += 1;
                    if self.occupied.contains(&granted.octets()[3]) {
                        self.after(3_000, Event::Clash(granted));
                    }
                }
                Output::Lost(lease, loss) => self.lose(lease.address, *loss, cause),
                Output::Refused(refused) => {
                    assert_eq!((self.used, self.kept.take(), cause), (None, Some(*refused), Cause::Nak));
                }
                Output::Broadcast(message) => {
                    let from = read(message).ciaddr();
                    assert!(from.is_unspecified() || self.used.is_some_and(|(used, _)| used == from));
                    (0..2).for_each(|server| self.carry(server, message));
                    self.said.push(now);
                }
                Output::Unicast(to, message) => {
                    assert_eq!(self.used.map(|(used, _)| used), Some(read(message).ciaddr()));
                    if let Some(server) = self.servers.iter().position(|server| server.address() == *to) {
                        self.carry(server, message);
                    }
                    self.said.push(now);
                }
            }
        }
        self.holds();
    }

    fn lose(&mut self, lost: Ipv4Addr, loss: Loss, cause: Cause) {
        let Some((used, end)) = self.used.take() else { panic!("{lost} was not in use") };
        assert_eq!(used, lost);
        match loss {
            Loss::Expired => assert!(end <= self.now, "{lost} has {:?} left", end - self.now),
            Loss::Refused => assert_eq!(cause, Cause::Nak, "{lost}"),
            Loss::Conflict => assert_eq!(cause, Cause::Clash, "{lost}"),
        }
        if loss != Loss::Expired {
            self.kept = None;
        }
    }

    /// What is so at any time.
    fn holds(&mut self) {
        let (now, due) = (self.now, self.client.deadline());
        assert_eq!(self.client.lease().map(|lease| lease.address), self.used.map(|(used, _)| used));
        self.said.retain(|at| *at + seconds(20) > now);
        assert!(self.said.len() <= 40, "{} messages in 20 seconds", self.said.len());
        let due = due.expect("it has something to do");
        match self.used {
            Some((used, end)) => assert!(end > now && due <= end, "{used} up to {end:?}, next at {due:?}"),
            None => assert!(due <= now + SILENCE, "silent up to {due:?}"),
        }
    }

    fn carry(&mut self, server: usize, message: &[u8]) {
        if !self.has_carrier || (!self.is_calm && is_one_in(&mut self.random, 5)) {
            return;
        }
        if !self.is_calm && is_one_in(&mut self.random, 8) {
            self.after(LONG_WAY, Event::ToServer(server, message.to_vec()));
        }
        self.after(WAY, Event::ToServer(server, message.to_vec()));
    }

    /// A server's answer sets out.
    fn reply(&mut self, answer: &Message) {
        let mut packet = answer.to_vec().unwrap();
        if !self.is_calm {
            match self.random.u64(..12) {
                0 | 1 => return,
                2 => {
                    let index = self.random.usize(..packet.len());
                    packet[index] ^= 1 << self.random.u8(..8);
                }
                3 | 4 => self.after(LONG_WAY, Event::ToClient(packet.clone(), self.now)),
                _ => {}
            }
        }
        self.after(WAY, Event::ToClient(packet, self.now));
    }

    /// The next thing that is due: something that arrives, or what the client does by itself.
    fn pass(&mut self) {
        let due = self.client.deadline().expect("it has something to do");
        match self.events.first_entry() {
            Some(event) if event.key().0 <= due => {
                let ((at, _), event) = event.remove_entry();
                self.now = at.max(self.now);
                self.arrives(event);
            }
            _ => {
                self.now = due.max(self.now);
                let outputs = self.client.tick(self.now);
                self.perform(&outputs, Cause::Other);
                assert!(self.client.deadline().is_some_and(|due| due > self.now), "it spins");
            }
        }
    }

    fn arrives(&mut self, event: Event) {
        match event {
            Event::ToServer(index, packet) => {
                let server = &mut self.servers[index];
                if server.is_up
                    && let Some(answer) =
                        server.hear(self.now, &read(&packet), &mut self.random, self.is_calm)
                {
                    self.reply(&answer);
                }
            }
            Event::ToClient(packet, said_at) if self.has_carrier => {
                let outputs = self.client.hear(self.now, &packet);
                self.perform(&outputs, Cause::of(&packet, said_at));
            }
            Event::ToClient(..) => {}
            Event::Clash(address) => {
                let is_used = self.used.is_some_and(|(used, end)| used == address && end > self.now);
                if is_used && self.occupied.contains(&address.octets()[3]) {
                    let outputs = self.client.conflict(self.now);
                    self.perform(&outputs, Cause::Clash);
                }
            }
        }
    }

    /// Something that is not the client's doing.
    fn disturb(&mut self) {
        let index = self.random.usize(..2);
        match self.random.u64(..9) {
            0 => self.has_carrier = false,
            1 => self.cable_is_back(),
            2 => self.servers[index].is_up = false,
            3 => self.servers[index].is_up = true,
            4 => self.servers[index].bindings.clear(),
            5 => {
                // The machine starts again: what the link had is gone, and the disk has it.
                self.used = None;
                self.client = client(self.random.u64(..));
                self.cable_is_back();
            }
            6 => {
                let name = Some(format!("node-{}", self.random.u8(..9)));
                let settings = Settings { hostname: name, ..self.client.settings().clone() };
                let outputs = self.client.change(self.now, settings);
                self.perform(&outputs, Cause::Other);
            }
            7 => {
                // The machine sleeps.
                self.now += milliseconds(self.random.u64(..700_000));
                let outputs = self.client.tick(self.now);
                self.perform(&outputs, Cause::Other);
            }
            _ => {
                if let Some(kept) = self.kept {
                    let outputs = self.client.remember(self.now, kept);
                    self.perform(&outputs, Cause::Other);
                }
            }
        }
    }

    fn cable_is_back(&mut self) {
        self.has_carrier = true;
        let outputs = self.client.start(self.now, self.kept);
        self.perform(&outputs, Cause::Other);
    }

    /// Servers that answer, and nothing in the way.
    fn calm_down(&mut self) {
        self.is_calm = true;
        self.occupied.clear();
        self.events.clear();
        self.servers.iter_mut().for_each(|server| server.is_up = true);
        if !self.has_carrier {
            self.cable_is_back();
        }
        self.acks = 0;
        let since = self.used.map_or(self.now, |(_, end)| end);
        while self.acks == 0 {
            assert!(self.now <= since + PATIENCE, "no address at {:?}", self.now);
            self.pass();
        }
        let (address, until) = (self.client.lease().map(|lease| lease.address), self.now + CALM);
        while self.now < until {
            self.pass();
            assert_eq!(self.client.lease().map(|lease| lease.address), address, "at {:?}", self.now);
        }
        assert!(self.acks > 2, "{} renewals", self.acks);
    }
}

fn round(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..60 {
        if is_one_in(&mut world.random, 6) {
            world.disturb();
        } else {
            world.pass();
        }
    }
    world.calm_down();
}

#[test]
fn in_any_network_it_has_what_it_was_granted_and_asks_until_it_has() {
    rounds::play(rounds::count(2_000, 200_000), round);
}
