//! The forwarder in a simulated network with virtual time, beside a model of what each client may hear.
//!
//! Each round is wild at first: questions and answers are lost, late, torn, forged or cut off; servers fail, refuse, and are others
//! from a moment on; hours pass. Then all servers answer, and each client must have an answer at once.
//! The model knows each answer of a server by a number in it: which question it was for, when it came, and how long it counts.

use super::*;

/// In milliseconds: a client has its answer by then.
const PATIENCE: u64 = 4_500;
/// So long an answer counts at most, in seconds; and after its end for a client that no server answers.
const LONGEST: u64 = 24 * 60 * 60;
const STALE: u64 = 24 * 60 * 60;
/// The time that an answer which is over is told with, in seconds.
const STALE_TIME: u64 = 30;

/// What makes two questions one, as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    name: String,
    wants_proof: bool,
}

impl Question {
    fn of(message: &Message) -> Self {
        let wants_proof = message.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok);
        Self { name: message.queries[0].name().to_lowercase().to_ascii(), wants_proof }
    }
}

/// What a server said.
struct Said {
    question: Question,
    server: SocketAddr,
    /// In seconds.
    time: u64,
    /// In milliseconds; none before it arrives.
    came: Option<u64>,
}

struct Waiting {
    since: u64,
    question: Question,
    /// As the client spelt it.
    spelt: String,
}

enum Event {
    Asks(u32),
    /// Of an exchange: the bytes, and the number of what a server really said.
    Arrives(u64, Vec<u8>, Option<u32>),
    Fails(u64),
}

struct World {
    random: Rng,
    /// In milliseconds.
    now: u64,
    forwarder: Forwarder<u32>,
    servers: Vec<SocketAddr>,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    is_calm: bool,
    said: BTreeMap<u32, Said>,
    waiting: BTreeMap<u32, Waiting>,
    /// Exchanges that run, with the server of each and what it was asked.
    exchanges: BTreeMap<u64, (SocketAddr, Question)>,
    /// What counts, by the model: the number of the last answer of the present servers.
    kept: BTreeMap<Question, u32>,
    answered: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let servers: Vec<SocketAddr> = (1..=random.u8(1..4)).map(server).collect();
        let mut numbers = Rng::with_seed(!seed);
        let mut forwarder = Forwarder::new(move || numbers.u16(..));
        forwarder.set_servers(&servers);
        Self {
            random,
            now: 0,
            forwarder,
            servers,
            events: BTreeMap::new(),
            count: 0,
            is_calm: false,
            said: BTreeMap::new(),
            waiting: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            kept: BTreeMap::new(),
            answered: 0,
        }
    }

    fn after(&mut self, way: u64, event: Event) {
        self.count += 1;
        self.events.insert((self.now + way, self.count), event);
    }

    /// The next thing that is due: something that arrives, or what the forwarder does by itself.
    fn pass(&mut self) -> bool {
        let due = self.forwarder.deadline().map(|due| u64::try_from(due.as_millis()).unwrap());
        let next = self.events.first_entry().filter(|event| due.is_none_or(|due| event.key().0 <= due));
        match (next, due) {
            (Some(event), _) => {
                let ((at, _), event) = event.remove_entry();
                self.now = at.max(self.now);
                self.happens(event);
            }
            (None, Some(due)) => {
                self.now = due.max(self.now);
                let outputs = self.forwarder.tick(at(self.now));
                self.perform(outputs);
            }
            (None, None) => return false,
        }
        let open = self.forwarder.open.len();
        assert_eq!(
            (self.forwarder.by_key.len(), self.exchanges.len()),
            (open, self.forwarder.by_exchange.len())
        );
        assert!(open <= MAX_OPEN);
        true
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Asks(client) => self.ask(client),
            Event::Fails(exchange) => {
                let outputs = self.forwarder.failed(at(self.now), exchange);
                self.exchanges.remove(&exchange);
                self.perform(outputs);
            }
            Event::Arrives(exchange, bytes, number) => {
                let number = number.filter(|_| self.exchanges.contains_key(&exchange));
                if let Some(said) = number.and_then(|number| self.said.get_mut(&number)) {
                    said.came = Some(self.now);
                    if self.servers.contains(&said.server) && said.time > 0 {
                        self.kept.insert(said.question.clone(), number.unwrap());
                    }
                }
                let outputs = self.forwarder.answered(at(self.now), exchange, &bytes);
                self.perform(outputs);
                // Whatever it is, all who asked for it have it.
                if let Some(said) = number.and_then(|number| self.said.get(&number)) {
                    let left = self.waiting.values().find(|waiting| waiting.question == said.question);
                    assert!(left.is_none(), "a client waits on for {:?}", said.question);
                }
            }
        }
    }

    fn ask(&mut self, client: u32) {
        let name = ["n0.example.", "N1.example.", "n2.EXAMPLE.", "n3.example."][self.random.usize(..4)];
        let mut message = Message::new(client as u16, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
        if self.random.u8(..4) == 0 {
            let mut edns = Edns::new();
            edns.set_dnssec_ok(true);
            message.set_edns(edns);
        }
        let question = Question::of(&message);
        let waiting = Waiting { since: self.now, question: question.clone(), spelt: name.to_owned() };
        self.waiting.insert(client, waiting);
        let transport = [Transport::Datagram, Transport::Stream][self.random.usize(..2)];
        let bytes = message.to_vec().unwrap();
        let outputs = self.forwarder.asked(at(self.now), client, &bytes, transport);
        let is_fresh = self.kept.get(&question).is_some_and(|number| self.counts(*number));
        let is_asked = outputs.iter().any(|output| matches!(output, Output::Ask { .. }));
        assert!(!(is_fresh && is_asked), "{question:?} is kept, and asked for again");
        self.perform(outputs);
        assert!(!is_fresh || !self.waiting.contains_key(&client), "{question:?} is kept, and not answered");
    }

    /// Whether what a server said still counts.
    fn counts(&self, number: u32) -> bool {
        self.is_within(number, 0)
    }

    /// Whether it is over for less than so many seconds.
    fn is_within(&self, number: u32, seconds: u64) -> bool {
        let said = &self.said[&number];
        said.came.is_some_and(|came| self.now < came + (said.time.min(LONGEST) + seconds) * 1000)
    }

    fn perform(&mut self, outputs: Outputs) {
        for output in outputs {
            match output {
                Output::Cancel(exchange) => {
                    assert!(self.exchanges.remove(&exchange).is_some(), "{exchange} did not run");
                }
                Output::Ask { exchange, server, message, transport } => {
                    let asked = Message::from_vec(&message).unwrap();
                    let question = Question::of(&asked);
                    let before = self.exchanges.insert(exchange, (server, question));
                    assert!(before.is_none(), "{exchange} runs already");
                    self.serve(exchange, server, &asked, transport);
                }
                Output::Reply(client, bytes) => self.judge(client, &bytes),
            }
        }
    }

    /// A server, and the way to it and back.
    fn serve(&mut self, exchange: u64, from: SocketAddr, asked: &Message, transport: Transport) {
        let way = self.random.u64(1..300);
        let number = self.said.len() as u32 + 1;
        let time = [0, 1, 5, 20, 3_600, 200_000][self.random.usize(..6)];
        if self.is_calm {
            let answer = self.says(asked, from, number, 60);
            return self.after(way, Event::Arrives(exchange, answer.to_vec().unwrap(), Some(number)));
        }
        let failure = [ResponseCode::ServFail, ResponseCode::Refused][self.random.usize(..2)];
        match self.random.u8(..14) {
            0..=2 => {}
            3 => self.after(way, Event::Fails(exchange)),
            4 => {
                let answer = respond(asked, failure, 0, 0).to_vec().unwrap();
                self.after(way, Event::Arrives(exchange, answer, None));
            }
            5 => {
                let mut forged = respond(asked, ResponseCode::NoError, 9_999, 0);
                forged.metadata.id ^= 1 << self.random.u8(..16);
                self.after(way, Event::Arrives(exchange, forged.to_vec().unwrap(), None));
            }
            6 => {
                // The number of this question, and another name.
                let mut other = asked.clone();
                other.queries = vec![Query::query(Name::from_ascii("n9.example.").unwrap(), RecordType::A)];
                let answer = respond(&other, ResponseCode::NoError, 9_999, 0).to_vec().unwrap();
                self.after(way, Event::Arrives(exchange, answer, None));
            }
            7 => {
                let mut torn = respond(asked, ResponseCode::NoError, 9_999, 0).to_vec().unwrap();
                torn.truncate(self.random.usize(..torn.len()));
                self.after(way, Event::Arrives(exchange, torn, None));
            }
            8 if transport == Transport::Datagram => {
                let mut cut = respond(asked, ResponseCode::NoError, 9_999, 0);
                cut.answers.clear();
                cut.metadata.truncation = true;
                self.after(way, Event::Arrives(exchange, cut.to_vec().unwrap(), None));
            }
            kind => {
                let answer = self.says(asked, from, number, time).to_vec().unwrap();
                let way = if kind == 9 { self.random.u64(1_000..6_000) } else { way };
                self.after(way, Event::Arrives(exchange, answer, Some(number)));
            }
        }
    }

    /// A true answer: an address, or that there is no such name.
    fn says(&mut self, asked: &Message, server: SocketAddr, number: u32, time: u64) -> Message {
        let question = Question::of(asked);
        let is_there = self.random.bool();
        // One that says that there is nothing counts for an hour at most.
        let time = if is_there { time } else { time.min(3_600) };
        self.said.insert(number, Said { question, server, time, came: None });
        if is_there {
            return respond(asked, ResponseCode::NoError, time as u32, number as u16);
        }
        let mut answer = respond(asked, ResponseCode::NXDomain, time as u32, 0);
        let zone = SOA::new(Name::root(), Name::root(), number, 2, 3, 4, time as u32);
        answer.authorities = vec![Record::from_rdata(Name::root(), time as u32, RData::SOA(zone))];
        answer
    }

    fn judge(&mut self, client: u32, bytes: &[u8]) {
        let waiting =
            self.waiting.remove(&client).unwrap_or_else(|| panic!("{client} has its answer already"));
        self.answered += 1;
        let message = Message::from_vec(bytes).unwrap();
        let waited = self.now - waiting.since;
        assert!(waited <= PATIENCE, "{client} waited {waited} ms");
        assert_eq!(
            (message.metadata.id, message.metadata.message_type),
            (client as u16, MessageType::Response)
        );
        assert_eq!(message.queries[0].name().to_ascii(), waiting.spelt);
        let kept = self.kept.get(&waiting.question).copied();
        let Some((number, left)) = said_in(&message) else {
            let code = message.metadata.response_code;
            assert!(matches!(code, ResponseCode::ServFail | ResponseCode::Refused), "{code:?}");
            assert!(!kept.is_some_and(|number| self.counts(number)), "{code:?} for what is kept");
            let has_stale = kept.is_some_and(|number| self.is_within(number, STALE));
            assert!(code == ResponseCode::Refused || !has_stale, "{code:?} for what is over and kept");
            assert!(!self.is_calm, "{code:?} though all servers answer");
            return;
        };
        let said = self.said.get(&number).unwrap_or_else(|| panic!("{number} was never said"));
        let came = said.came.unwrap_or_else(|| panic!("{number} did not arrive"));
        assert_eq!(said.question, waiting.question);
        let age = (self.now - came) / 1000;
        if came == self.now {
            assert!(left <= said.time);
            return;
        }
        assert_eq!(kept, Some(number), "an answer of before");
        if self.counts(number) {
            assert!(left + age <= said.time, "{left} s left of {} s after {age} s", said.time);
        } else {
            assert!(self.is_within(number, STALE), "{age} s old");
            assert_eq!(left, STALE_TIME);
            assert!(!self.is_calm, "{number} is over, and all servers answer");
        }
    }

    fn disturb(&mut self) {
        match self.random.u8(..4) {
            // Hours pass: there is no question open, as each has its end.
            0 => {
                while !self.forwarder.open.is_empty() && self.pass() {}
                let hours = self.random.u64(..30 * 60 * 60) * 1000;
                let events = std::mem::take(&mut self.events);
                self.events = events.into_iter().map(|((at, n), event)| ((at + hours, n), event)).collect();
                self.now += hours;
            }
            1 => {
                self.servers = (1..=self.random.u8(1..4)).map(server).collect();
                if self.random.bool() {
                    self.servers.reverse();
                }
                let before: Vec<_> = self.forwarder.health().iter().map(|it| it.server).collect();
                if before != self.servers {
                    self.kept.clear();
                }
                self.forwarder.set_servers(&self.servers);
            }
            _ => {}
        }
    }
}

/// The number of what a server said, and the time that is left of it in seconds.
fn said_in(message: &Message) -> Option<(u32, u64)> {
    let records = message.answers.iter().chain(&message.authorities);
    let mut numbers = records.filter_map(|record| match &record.data {
        RData::A(A(address)) => Some((u32::from(*address) & 0xffff, u64::from(record.ttl))),
        RData::SOA(zone) => Some((zone.serial, u64::from(record.ttl))),
        _ => None,
    });
    numbers.next()
}

fn round(seed: u64) {
    let mut world = World::new(seed);
    let asks = |world: &mut World, clients: std::ops::Range<u32>, within: u64| {
        for client in clients {
            let way = world.random.u64(..within);
            world.after(way, Event::Asks(client));
        }
    };
    for wave in 0..4 {
        asks(&mut world, wave * 12..(wave + 1) * 12, 20_000);
        for _ in 0..10 {
            world.disturb();
            for _ in 0..6 {
                world.pass();
            }
        }
    }
    while world.pass() {}
    assert_eq!((world.answered, world.waiting.len()), (48, 0));
    world.is_calm = true;
    asks(&mut world, 48..60, 10_000);
    while world.pass() {}
    assert_eq!((world.answered, world.waiting.len(), world.exchanges.len()), (60, 0, 0));
    assert!(world.forwarder.open.is_empty() && world.forwarder.by_exchange.is_empty());
}

#[test]
fn in_any_network_each_client_has_one_answer_that_is_true_and_not_too_old() {
    rounds::play(rounds::count(500, 100_000), round);
}
