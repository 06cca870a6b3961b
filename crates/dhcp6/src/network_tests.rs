//! A client in networks of models: servers that come and go, loss, duplicates, broken answers, conflicts; and mutated answers.
//! Time is virtual.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use super::*;
use crate::options;
use crate::testing::*;

impl Client {
    /// A moment at which its exchange runs.
    fn exchange_began(&self) -> Duration {
        match self.state {
            State::Renewing => seconds(400),
            State::Rebinding => seconds(700),
            State::Confirming => seconds(9),
            _ => Duration::ZERO,
        }
    }
}

fn is_one_in(random: &mut Rng, count: u64) -> bool {
    random.u64(..).is_multiple_of(count)
}

/// A server of a few addresses, as simple as one can be.
struct Model {
    number: u8,
    bindings: BTreeSet<Ipv6Addr>,
    /// It can be started again without its bindings.
    is_up: bool,
    rapid: bool,
    /// It answers the same way each time.
    is_good: bool,
}

impl Model {
    fn new(number: u8, is_good: bool) -> Self {
        Self { number, bindings: BTreeSet::new(), is_up: true, rapid: number.is_multiple_of(2), is_good }
    }

    fn first(&self) -> u16 {
        u16::from(self.number) * 16
    }

    fn is_own(&self, address: Ipv6Addr) -> bool {
        (self.first()..self.first() + 4).any(|last| address == self::address(last))
    }

    fn grant(&mut self, answer: Answer, wanted: Option<Ipv6Addr>, random: &mut Rng) -> Answer {
        let any = address(self.first() + u16::try_from(random.u64(..4)).unwrap());
        let given = wanted.filter(|wanted| self.is_own(*wanted)).unwrap_or(any);
        self.bindings.insert(given);
        let valid = if self.is_good { 600 } else { random.u32(..) % 600 };
        let preferred = if self.is_good || !is_one_in(random, 16) { valid / 2 } else { valid + 1 };
        let answer = answer.with(given, preferred, valid);
        if self.is_good { answer } else { answer.times(random.u32(..) % 300, random.u32(..) % 600) }
    }

    fn hear(&mut self, asked: &Asked, random: &mut Rng) -> Option<Answer> {
        if !self.is_up || !asked.is_to(&server(self.number)) {
            return None;
        }
        let answer = |kind| Answer::new(asked, kind, server(self.number));
        let wanted = asked.addresses.first().copied();
        let refuses = !self.is_good && is_one_in(random, 8);
        let status = [UNSPEC_FAIL, NO_ADDRS_AVAIL, NO_BINDING, NOT_ON_LINK, USE_MULTICAST]
            [usize::try_from(random.u64(..5)).unwrap()];
        match asked.kind {
            SOLICIT | REQUEST | RENEW | REBIND if refuses && is_one_in(random, 2) => {
                let kind = if asked.kind == SOLICIT { ADVERTISE } else { REPLY };
                Some(answer(kind).own_status(status))
            }
            SOLICIT if self.rapid => {
                let answer = answer(REPLY).rapid();
                Some(self.grant(answer, wanted, random))
            }
            SOLICIT => {
                let answer = answer(ADVERTISE).preference(self.number);
                Some(self.grant(answer, wanted, random))
            }
            REQUEST => {
                let answer = answer(REPLY);
                Some(if refuses { answer.status(status) } else { self.grant(answer, wanted, random) })
            }
            RENEW | REBIND => {
                let answer = answer(REPLY);
                let known = wanted.is_some_and(|wanted| self.bindings.contains(&wanted));
                match wanted.filter(|_| known) {
                    Some(wanted) if refuses => Some(answer.with(wanted, 0, 0)),
                    Some(wanted) => Some(self.grant(answer, Some(wanted), random)),
                    None => Some(answer.status(NO_BINDING)),
                }
            }
            CONFIRM => {
                let fits = asked.addresses.iter().all(|address| self.is_own(*address));
                Some(answer(REPLY).own_status(if fits { 0 } else { NOT_ON_LINK }))
            }
            RELEASE | DECLINE => {
                self.bindings.retain(|address| !asked.addresses.contains(address));
                Some(answer(REPLY).own_status(0))
            }
            _ => None,
        }
    }
}

fn ask(servers: &mut [Model], asked: &Asked, random: &mut Rng) -> Vec<Answer> {
    servers.iter_mut().filter_map(|server| server.hear(asked, random)).collect()
}

/// What must hold of whatever a client does.
#[derive(Default)]
struct Judge {
    /// Addresses that a message of a server named, each with the last end that one gave it.
    named: BTreeMap<Ipv6Addr, Duration>,
    /// Addresses in use, each with the end that the client gave it.
    used: Vec<(Ipv6Addr, Duration)>,
    kept: Option<Lease>,
    sent: Vec<Duration>,
}

impl Judge {
    fn see(&mut self, now: Duration, outputs: &[Output]) {
        for output in outputs {
            match output {
                Output::Bound(lease) => {
                    assert!(!lease.addresses.is_empty() && lease.obtained_at == now, "{lease:?} at {now:?}");
                    assert!(lease.t1 <= lease.t2);
                    for known in &lease.addresses {
                        let end = self.named.get(&known.address).expect("it was offered");
                        assert!(now + known.valid <= *end, "{} for longer than offered", known.address);
                        assert!(known.preferred <= known.valid && !known.valid.is_zero());
                    }
                    let end = |known: &crate::Address| (known.address, now + known.valid);
                    self.used = lease.addresses.iter().map(end).collect();
                    self.kept = Some((**lease).clone());
                }
                Output::Lost(lease, loss) => {
                    let used: Vec<Ipv6Addr> = self.used.drain(..).map(|(address, _)| address).collect();
                    assert!(!used.is_empty() && used == lease.list(), "{used:?} were in use");
                    if *loss != Loss::Expired {
                        self.kept = None;
                    }
                }
                Output::Refused(_) => assert!(self.used.is_empty() && self.kept.take().is_some()),
                Output::Informed(_) => panic!("it was not asked for"),
                Output::Send(_) => self.sent.push(now),
            }
        }
        // A client takes each address off in time.
        for (address, end) in &self.used {
            assert!(*end > now, "{address} is over");
        }
        let recent = self.sent.iter().filter(|at| **at + seconds(20) > now).count();
        assert!(recent <= 40, "{recent} messages in 20 seconds");
    }
}

/// `SOL_MAX_RT` with its spread, and the exchange after it.
const LONGEST_WAIT: Duration = Duration::from_secs(3600 / 10 * 11 + 60);

/// Random events of a network, and then one in which all is well.
fn storm(seed: u64, events: u32) {
    let mut random = Rng::with_seed(seed);
    let mut client = Client::new(Settings { first_delay: seconds(1), ..settings() }, seed);
    let mut judge = Judge::default();
    let mut servers = [Model::new(1, false), Model::new(2, false)];
    let mut now = Duration::ZERO;
    let mut wire: Vec<(Duration, Vec<u8>)> = Vec::new();
    let mut outputs = client.start(now, None);
    for _ in 0..events {
        judge.see(now, &outputs);
        let used: Vec<Ipv6Addr> = judge.used.iter().map(|(address, _)| *address).collect();
        assert_eq!(client.lease().map(Lease::list).unwrap_or_default(), used);
        for server in &mut servers {
            if is_one_in(&mut random, 16) {
                (server.is_up, server.bindings) = (!server.is_up, BTreeSet::new());
            }
        }
        for asked in sent(&outputs) {
            for answer in ask(&mut servers, &asked, &mut random) {
                let mut packet = answer.bytes();
                // One in four is lost, one in eight is broken, one in eight comes twice.
                match random.u64(..8) {
                    0 | 1 => continue,
                    2 => {
                        let index = usize::try_from(random.u64(..)).unwrap() % packet.len();
                        packet[index] ^= 1 << (random.u64(..8));
                    }
                    3 => wire.push((now + seconds(60).mul_f64(random.f64()), packet.clone())),
                    _ => {}
                }
                wire.push((now + seconds(3).mul_f64(random.f64()), packet));
            }
        }
        outputs = match random.u64(..40) {
            0 => client.start(now, judge.kept.clone()),
            1 => match judge.used.first() {
                Some((address, _)) => client.conflict(now, *address),
                None => client.conflict(now, address(1)),
            },
            2 if is_one_in(&mut random, 4) => {
                let mut outputs = client.release(now);
                outputs.extend(client.start(now, None));
                outputs
            }
            3 => {
                let name = format!("node-{}", random.u64(..9));
                client.change(now, Settings { hostname: Some(name), ..client.settings().clone() })
            }
            4 => {
                now += seconds(700).mul_f64(random.f64());
                client.tick(now)
            }
            _ => pass(&mut client, &mut judge, &mut now, &mut wire),
        };
    }
    // Servers that answer lead to a lease: after that of now, and the longest wait, at the latest.
    servers.iter_mut().for_each(|server| (server.is_up, server.is_good) = (true, true));
    wire.clear();
    let ends = judge.used.iter().map(|(_, end)| *end).max();
    let until = ends.unwrap_or(now) + LONGEST_WAIT;
    while !outputs.iter().any(|output| matches!(output, Output::Bound(_))) {
        assert!(now <= until, "no lease at {now:?}");
        judge.see(now, &outputs);
        for asked in sent(&outputs) {
            let answers = ask(&mut servers, &asked, &mut random);
            wire.extend(answers.iter().map(|answer| (now + Duration::from_millis(100), answer.bytes())));
        }
        outputs = pass(&mut client, &mut judge, &mut now, &mut wire);
    }
}

/// The next thing that is due: a packet, or what the client does by itself.
fn pass(
    client: &mut Client,
    judge: &mut Judge,
    now: &mut Duration,
    wire: &mut Vec<(Duration, Vec<u8>)>,
) -> Vec<Output> {
    wire.sort_by_key(|(time, _)| *time);
    let due = client.deadline().unwrap_or(Duration::MAX);
    if wire.first().is_some_and(|(time, _)| *time <= due) {
        let (time, packet) = wire.remove(0);
        *now = time.max(*now);
        if let Ok(heard) = decode(&packet, IAID) {
            let offered = heard.association.map(|it| it.addresses).unwrap_or_default();
            for offered in offered {
                let end = match offered.valid {
                    u32::MAX => Duration::MAX,
                    valid => *now + seconds(valid.into()),
                };
                let known = judge.named.entry(offered.address).or_default();
                *known = end.max(*known);
            }
        }
        return client.hear(*now, &packet);
    }
    if due == Duration::MAX {
        return Vec::new();
    }
    *now = due.max(*now);
    let outputs = client.tick(*now);
    assert!(client.deadline().is_none_or(|due| due > *now), "it spins");
    outputs
}

#[test]
fn in_any_network_it_uses_only_what_it_was_offered_and_asks_until_it_has_something() {
    rounds::play(rounds::count(400, 20_000), |seed| storm(seed, 400));
}

/// A server that answers, in a network that loses a third and doubles some: the lease lasts.
fn lasts(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let mut client = Client::new(settings(), seed);
    let mut judge = Judge::default();
    let mut servers = [Model::new(1, true), Model::new(2, true)];
    let mut wire = Vec::new();
    let mut now = Duration::ZERO;
    let mut outputs = client.start(now, None);
    let (mut had, mut renewals) = (false, 0);
    while now < seconds(20_000) {
        judge.see(now, &outputs);
        assert!(!outputs.iter().any(|output| matches!(output, Output::Lost(..))), "{outputs:?} at {now:?}");
        renewals += outputs.iter().filter(|output| matches!(output, Output::Bound(_))).count();
        had |= client.lease().is_some();
        for asked in sent(&outputs) {
            for answer in ask(&mut servers, &asked, &mut random) {
                for _ in 0..[0, 1, 2][usize::try_from(random.u64(..3)).unwrap()] {
                    wire.push((now + seconds(1).mul_f64(random.f64()), answer.bytes()));
                }
            }
        }
        outputs = pass(&mut client, &mut judge, &mut now, &mut wire);
    }
    assert!(had && renewals > 20_000 / 300, "{renewals} renewals");
}

#[test]
fn a_lease_lasts_while_a_server_answers() {
    rounds::play(rounds::count(30, 2_000), lasts);
}

/// States in which an answer counts, each with an answer to its message.
fn states() -> Vec<(Client, Answer)> {
    let grant = |to: &Asked, kind| {
        let names = b"\x07example\x03org\0";
        let answer = Answer::new(to, kind, server(1)).with(address(5), 1000, 2000).with(address(6), 800, 900);
        let answer = answer.option(options::DNS_SERVERS, &address(0x53).octets());
        answer.option(options::DOMAIN_LIST, names).times(400, 700)
    };
    let start = |settings| {
        let mut client = Client::new(settings, 1);
        let asked = sent(&client.start(Duration::ZERO, None)).remove(0);
        (client, asked)
    };
    let bound = || {
        let (mut client, solicit) = start(settings());
        let _ = client.hear(Duration::ZERO, &grant(&solicit, REPLY).rapid().bytes());
        client
    };
    let mut states = Vec::new();
    let (client, solicit) = start(settings());
    states.push((client, grant(&solicit, REPLY).rapid()));
    let (mut client, solicit) = start(settings());
    let outputs = client.hear(Duration::ZERO, &grant(&solicit, ADVERTISE).preference(255).bytes());
    states.push((client, grant(&sent(&outputs)[0], REPLY)));
    for at in [400, 700] {
        let mut client = bound();
        let asked = sent(&client.tick(seconds(at))).remove(0);
        states.push((client, grant(&asked, REPLY)));
    }
    let mut client = bound();
    let asked = sent(&client.start(seconds(9), None)).remove(0);
    states.push((client, Answer::new(&asked, REPLY, server(1)).own_status(0)));
    let (client, inform) = start(Settings { stateless: true, ..settings() });
    states.push((client, grant(&inform, REPLY)));
    states
}

/// No mutated answer panics. A lease is lost only by a REPLY that is whole, of this exchange and this client, and takes it back;
/// what is granted was in the message.
#[test]
fn mutated_answers_neither_forge_nor_lose_a_lease() {
    let count = usize::try_from(rounds::count(10_000, 1_000_000)).unwrap();
    let makes = states().len();
    let seed = rounds::first_seed();
    println!("BILLET_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let (mut ready, mut changed) = (states(), 0);
    for round in 0..count {
        let (client, answer) = &mut ready[round % makes];
        let mut packet = answer.bytes();
        rounds::mutate(&mut packet, &[0, 1, 3, 5, 13, 255], &mut random);
        let before = client.lease().map(Lease::list).unwrap_or_default();
        let now = client.exchange_began();
        let outputs = client.hear(now, &packet);
        let after = client.lease().map(Lease::list).unwrap_or_default();
        let heard = decode(&packet, IAID)
            .ok()
            .filter(|heard| heard.client == settings().identifier() && packet[1..4] == answer.xid);
        if outputs.is_empty() {
            assert_eq!(before, after, "round {round}");
            continue;
        }
        changed += 1;
        let heard = heard.expect("an output comes of an answer to this client");
        let association = heard.association.clone().unwrap_or_default();
        let named: Vec<Ipv6Addr> = association.addresses.iter().map(|it| it.address).collect();
        for address in &after {
            assert!(
                named.contains(address) || before.contains(address),
                "{address} is forged, round {round}"
            );
        }
        for address in before.iter().filter(|address| !after.contains(address)) {
            let is_taken = association.addresses.iter().any(|it| it.address == *address && it.valid == 0);
            let fits = heard.status() != crate::message::Status::NotOnLink;
            assert!(is_taken || !fits, "{address} is lost, round {round}");
        }
        ready[round % makes] = states().swap_remove(round % makes);
    }
    assert!(changed > count / 100, "{changed} of {count} answers counted: the test would test nothing");
}
