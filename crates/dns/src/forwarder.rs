//! The questions that are open.
//!
//! ```text
//!  client ─► kept? ── yes ─► reply
//!              │ no, or over
//!              ▼
//!            asked of the first server ── no answer in 1 s, or a failure ─► of the next … ─► all failed ─► SERVFAIL
//!              │ answer                     │ 1.8 s, and there is a kept one that is over ─► reply with that
//!              ▼                            ▼
//!            kept, reply to all who wait   asked on: the answer is for the next client
//! ```
//!
//! A server that left three questions open in a row comes after the others, and gets one question every few seconds beside
//! another server until it answers again.
//! Owns: numbers of questions, from the caller's randomness: with the random port of each socket they are what a forger has to
//! guess. Limits: [`MAX_OPEN`] questions, [`MAX_WAITING`] clients each.
//! Source: RFC 5452 §4 (what an answer has to match), RFC 8767 §5 (the client's wait).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};

use crate::cache::{Cache, Key};
use crate::reply::{self, Asked, Read, Transport};

/// Questions that are open at a time.
pub const MAX_OPEN: usize = 512;
/// Clients that wait for one question.
pub const MAX_WAITING: usize = 64;
/// After it the next server is asked, too.
const NEXT: Duration = Duration::from_secs(1);
/// A client of glibc asks again after 5 s: it has its answer before.
const DEADLINE: Duration = Duration::from_millis(4500);
/// After it a client gets what is over, if there is something.
const STALE_WAIT: Duration = Duration::from_millis(1800);
/// Each server is asked so often for one question.
const ROUNDS: usize = 2;
/// So many questions in a row that it left open make a server unhealthy.
const FAILURES: u32 = 3;
/// Between two questions to an unhealthy server that is asked beside another.
const PROBE: Duration = Duration::from_secs(5);

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<C> {
    /// Send a client its answer.
    Reply(C, Vec<u8>),
    /// Send a server a question, from a new socket. What comes goes to [`Forwarder::answered`], an error to [`Forwarder::failed`].
    Ask {
        /// Names it.
        exchange: u64,
        /// Who is asked.
        server: SocketAddr,
        /// What is sent.
        message: Vec<u8>,
        /// By what.
        transport: Transport,
    },
    /// Close the socket of a question that was sent.
    Cancel(u64),
}

/// What is known of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The server.
    pub server: SocketAddr,
    /// It answers, or was not asked yet.
    pub is_healthy: bool,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    failures: u32,
    /// When it gets a question beside another server.
    probe: Duration,
}

impl Server {
    fn is_healthy(&self) -> bool {
        self.failures < FAILURES
    }
}

#[derive(Debug)]
struct Exchange {
    server: SocketAddr,
    id: u16,
    transport: Transport,
    began: Duration,
}

/// A question that servers were asked.
#[derive(Debug)]
struct Open<C> {
    key: Key,
    waiting: Vec<(C, Asked)>,
    /// Servers that are still to be asked, the next one last.
    next: Vec<SocketAddr>,
    exchanges: BTreeMap<u64, Exchange>,
    /// When the next one is asked.
    turn: Duration,
    /// When clients get what is over.
    stale: Option<Duration>,
    ends: Duration,
    /// The first failure that a server told.
    failure: Option<Message>,
}

/// A forwarding resolver. `C` names a client.
pub struct Forwarder<C> {
    servers: Vec<Server>,
    hosts: BTreeMap<String, Vec<IpAddr>>,
    cache: Cache,
    /// In the order in which they came.
    open: BTreeMap<u64, Open<C>>,
    by_key: BTreeMap<Key, u64>,
    /// Which question an exchange belongs to.
    by_exchange: BTreeMap<u64, u64>,
    count: u64,
    random: Box<dyn FnMut() -> u16 + Send>,
}

impl<C> Forwarder<C> {
    /// One without servers. `random` must not be guessed by those who forge answers.
    pub fn new(random: impl FnMut() -> u16 + Send + 'static) -> Self {
        Self {
            servers: Vec::new(),
            hosts: BTreeMap::new(),
            cache: Cache::default(),
            open: BTreeMap::new(),
            by_key: BTreeMap::new(),
            by_exchange: BTreeMap::new(),
            count: 0,
            random: Box::new(random),
        }
    }

    /// Servers by preference. Others than before may say other things: what was kept is forgotten.
    pub fn set_servers(&mut self, addresses: &[SocketAddr]) {
        let present: Vec<SocketAddr> = self.servers.iter().map(|server| server.address).collect();
        if present == addresses {
            return;
        }
        let new = |&address| Server { address, failures: 0, probe: Duration::ZERO };
        self.servers = addresses.iter().map(new).collect();
        self.cache.clear();
    }

    /// Names that the node answers for itself, without a dot at the end, in lower case.
    pub fn set_hosts(&mut self, hosts: BTreeMap<String, Vec<IpAddr>>) {
        self.hosts = hosts;
    }

    /// The servers, by preference.
    pub fn health(&self) -> Vec<Health> {
        let one = |server: &Server| Health { server: server.address, is_healthy: server.is_healthy() };
        self.servers.iter().map(one).collect()
    }

    /// When [`Self::tick`] has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        let one = |open: &Open<C>| {
            let stale = open.stale.unwrap_or(Duration::MAX);
            let turn = if open.next.is_empty() { Duration::MAX } else { open.turn };
            turn.min(stale).min(open.ends)
        };
        self.open.values().map(one).min()
    }

    /// A client's message.
    pub fn asked(
        &mut self,
        now: Duration,
        client: C,
        message: &[u8],
        transport: Transport,
    ) -> Vec<Output<C>> {
        let asked = match reply::read(message, transport) {
            Read::Asked(asked) => *asked,
            Read::Refused(answer) => return vec![Output::Reply(client, answer)],
            Read::Nothing => return Vec::new(),
        };
        let key = asked.key();
        let name = key.name.to_ascii();
        if let Some(addresses) = self.hosts.get(name.strip_suffix('.').unwrap_or(&name)) {
            return vec![Output::Reply(client, asked.host(addresses))];
        }
        let mut has_stale = false;
        if let Some(kept) = self.cache.get(now, &key)
            && let Ok(message) = Message::from_vec(&kept.message)
        {
            if !kept.is_stale {
                return vec![Output::Reply(client, asked.reply(&message, kept.age, false))];
            }
            has_stale = true;
        }
        if let Some(open) = self.by_key.get(&key).and_then(|number| self.open.get_mut(number)) {
            if has_stale && open.stale.is_none() {
                return self.stale(now, &key, vec![(client, asked)]);
            }
            if open.waiting.len() >= MAX_WAITING {
                return vec![Output::Reply(client, asked.failure(ResponseCode::ServFail))];
            }
            open.waiting.push((client, asked));
            return Vec::new();
        }
        if self.open.len() >= MAX_OPEN || self.servers.is_empty() {
            return self.stale(now, &key, vec![(client, asked)]);
        }
        self.begin(now, (client, asked), key, has_stale)
    }

    fn begin(&mut self, now: Duration, first: (C, Asked), key: Key, has_stale: bool) -> Vec<Output<C>> {
        let healthy = self.servers.iter().filter(|server| server.is_healthy());
        let unhealthy = self.servers.iter().filter(|server| !server.is_healthy());
        let order: Vec<SocketAddr> = healthy.chain(unhealthy).map(|server| server.address).collect();
        let mut next = order.repeat(ROUNDS);
        next.reverse();
        self.count += 1;
        let number = self.count;
        let open = Open {
            key: key.clone(),
            waiting: vec![first],
            next,
            exchanges: BTreeMap::new(),
            turn: now,
            stale: has_stale.then_some(now + STALE_WAIT),
            ends: now + DEADLINE,
            failure: None,
        };
        self.open.insert(number, open);
        self.by_key.insert(key, number);
        let mut outputs = self.turn(now, number);
        let first = order.first().copied();
        let probed = self
            .servers
            .iter_mut()
            .find(|server| !server.is_healthy() && server.probe <= now && Some(server.address) != first);
        if let Some(server) = probed {
            server.probe = now + PROBE;
            let address = server.address;
            outputs.extend(self.ask(now, number, address, Transport::Datagram));
        }
        outputs
    }

    /// Asks the next server.
    fn turn(&mut self, now: Duration, number: u64) -> Vec<Output<C>> {
        let Some(open) = self.open.get_mut(&number) else { return Vec::new() };
        open.turn = now + NEXT;
        let Some(server) = open.next.pop() else { return Vec::new() };
        self.ask(now, number, server, Transport::Datagram).into_iter().collect()
    }

    fn ask(
        &mut self,
        now: Duration,
        number: u64,
        server: SocketAddr,
        transport: Transport,
    ) -> Option<Output<C>> {
        let open = self.open.get_mut(&number)?;
        self.count += 1;
        let (exchange, id) = (self.count, (self.random)());
        open.exchanges.insert(exchange, Exchange { server, id, transport, began: now });
        self.by_exchange.insert(exchange, number);
        Some(Output::Ask { exchange, server, message: reply::question(&open.key, id), transport })
    }

    /// What a server sent. A datagram that is no answer to the question is dropped: the server's own may follow.
    pub fn answered(&mut self, now: Duration, exchange: u64, message: &[u8]) -> Vec<Output<C>> {
        let Some((number, open)) = self.of_exchange(exchange) else { return Vec::new() };
        let Some(sent) = open.exchanges.get(&exchange) else { return Vec::new() };
        let (server, transport) = (sent.server, sent.transport);
        let Some(answer) = reply::answer(message, &open.key, sent.id) else {
            return match transport {
                Transport::Datagram => Vec::new(),
                Transport::Stream => {
                    let mut outputs = vec![Output::Cancel(exchange)];
                    outputs.extend(self.failed(now, exchange));
                    outputs
                }
            };
        };
        open.exchanges.remove(&exchange);
        self.by_exchange.remove(&exchange);
        let known = self.servers.iter_mut().find(|known| known.address == server);
        // What a server says that the node does not ask any more is for those who wait.
        let is_kept = known.is_some();
        if let Some(known) = known {
            known.failures = 0;
        }
        let mut outputs = vec![Output::Cancel(exchange)];
        if answer.metadata.truncation && transport == Transport::Datagram {
            outputs.extend(self.ask(now, number, server, Transport::Stream));
            return outputs;
        }
        if !matches!(answer.metadata.response_code, ResponseCode::NoError | ResponseCode::NXDomain) {
            if let Some(open) = self.open.get_mut(&number) {
                open.failure.get_or_insert(answer);
            }
            outputs.extend(self.next_or_end(now, number));
            return outputs;
        }
        if let Some(open) = self.open.get(&number) {
            if is_kept {
                self.cache.put(now, open.key.clone(), &answer, message);
            }
            let is_late = |sent: &&Exchange| sent.server != server && sent.began + NEXT <= now;
            let late: Vec<SocketAddr> =
                open.exchanges.values().filter(is_late).map(|sent| sent.server).collect();
            for server in late {
                self.left_open(now, server);
            }
        }
        outputs.extend(self.end(number, Some(&answer)));
        outputs
    }

    /// A question could not be sent, or its connection broke.
    pub fn failed(&mut self, now: Duration, exchange: u64) -> Vec<Output<C>> {
        let Some((number, open)) = self.of_exchange(exchange) else { return Vec::new() };
        let sent = open.exchanges.remove(&exchange);
        self.by_exchange.remove(&exchange);
        if let Some(sent) = sent {
            self.left_open(now, sent.server);
        }
        self.next_or_end(now, number)
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) -> Vec<Output<C>> {
        let mut outputs = Vec::new();
        for number in self.open.keys().copied().collect::<Vec<_>>() {
            let Some(open) = self.open.get_mut(&number) else { continue };
            if open.ends <= now {
                outputs.extend(self.give_up(now, number));
                continue;
            }
            if open.stale.is_some_and(|stale| stale <= now) {
                open.stale = None;
                let waiting = std::mem::take(&mut open.waiting);
                let key = open.key.clone();
                outputs.extend(self.stale(now, &key, waiting));
            }
            if self.open.get(&number).is_some_and(|open| open.turn <= now) {
                outputs.extend(self.turn(now, number));
            }
        }
        outputs
    }

    fn of_exchange(&mut self, exchange: u64) -> Option<(u64, &mut Open<C>)> {
        let number = *self.by_exchange.get(&exchange)?;
        Some((number, self.open.get_mut(&number)?))
    }

    fn left_open(&mut self, now: Duration, address: SocketAddr) {
        if let Some(server) = self.servers.iter_mut().find(|server| server.address == address) {
            server.failures = server.failures.saturating_add(1);
            server.probe = now + PROBE;
        }
    }

    /// After a failure: the next server at once, and where each was asked and none is left to answer, the end.
    fn next_or_end(&mut self, now: Duration, number: u64) -> Vec<Output<C>> {
        let Some(open) = self.open.get(&number) else { return Vec::new() };
        let is_first_round = open.next.len() > self.servers.len() * (ROUNDS - 1);
        if is_first_round {
            return self.turn(now, number);
        }
        // The second round is for datagrams that were lost, and keeps its pace; a failure that a server told is final.
        let is_over = open.exchanges.is_empty() && (open.failure.is_some() || open.next.is_empty());
        if is_over { self.give_up(now, number) } else { Vec::new() }
    }

    /// No server answers.
    fn give_up(&mut self, now: Duration, number: u64) -> Vec<Output<C>> {
        let Some(open) = self.open.get_mut(&number) else { return Vec::new() };
        let mut asked: Vec<SocketAddr> = open.exchanges.values().map(|exchange| exchange.server).collect();
        asked.sort();
        asked.dedup();
        let (key, failure) = (open.key.clone(), open.failure.take());
        let waiting = std::mem::take(&mut open.waiting);
        for server in asked {
            self.left_open(now, server);
        }
        let mut outputs = self.end(number, None);
        // A server that failed is like one that is silent (RFC 8767 §4): what is over is better than nothing.
        match failure.filter(|told| told.metadata.response_code != ResponseCode::ServFail) {
            Some(failure) => {
                outputs.extend(waiting.into_iter().map(|(client, asked)| {
                    Output::Reply(client, asked.reply(&failure, Duration::ZERO, false))
                }))
            }
            None => outputs.extend(self.stale(now, &key, waiting)),
        }
        outputs
    }

    /// What is kept, though it is over; else that it failed.
    fn stale(&mut self, now: Duration, key: &Key, waiting: Vec<(C, Asked)>) -> Vec<Output<C>> {
        let kept = self.cache.get(now, key).and_then(|kept| Message::from_vec(&kept.message).ok());
        let one = |(client, asked): (C, Asked)| {
            let answer = match &kept {
                Some(message) => asked.reply(message, Duration::ZERO, true),
                None => asked.failure(ResponseCode::ServFail),
            };
            Output::Reply(client, answer)
        };
        waiting.into_iter().map(one).collect()
    }

    /// Closes a question, with an answer that came just now for all who wait.
    fn end(&mut self, number: u64, answer: Option<&Message>) -> Vec<Output<C>> {
        let Some(open) = self.open.remove(&number) else { return Vec::new() };
        self.by_key.remove(&open.key);
        let mut outputs = Vec::new();
        for exchange in open.exchanges.into_keys() {
            self.by_exchange.remove(&exchange);
            outputs.push(Output::Cancel(exchange));
        }
        if let Some(message) = answer {
            let one = |(client, asked): (C, Asked)| {
                Output::Reply(client, asked.reply(message, Duration::ZERO, false))
            };
            outputs.extend(open.waiting.into_iter().map(one));
        }
        outputs
    }
}

#[cfg(test)]
#[path = "forwarder_tests.rs"]
mod tests;
