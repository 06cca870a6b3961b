//! The states of a client.
//!
//! ```text
//!  start ─► Selecting ── offer ─► Requesting ── ack ─► Bound ── T1 ─► Renewing ── ack ─► Bound
//!              ▲  └─ ack to the address of before, or at once ──►┘         │
//!              └────────────── nak, no answer, over, conflict ◄────────────┘
//! ```
//!
//! A client that had an address asks for it before it asks which servers there are, and does both when no server answers within
//! [`REBOOT_WAIT`]. One whose cable was pulled keeps the address in the meantime.
//! A lease counts from the moment at which it was asked for, as its server's clock does not begin before.
//! Source: RFC 2131 §3.1, §3.2, §4.1 (waits), §4.4; RFC 4039.

use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::v4::{Message, OptionCode};

use crate::lease::Lease;
use crate::message::{Heard, Say, Settings, decode, encode};
use fastrand::Rng;

/// How long the question for the address of before stands alone.
pub const REBOOT_WAIT: Duration = Duration::from_millis(50);
/// First wait for an answer; doubled at each repeat.
const FIRST_WAIT: Duration = Duration::from_secs(4);
const LONGEST_WAIT: Duration = Duration::from_secs(64);
/// Up to so much more or less, so that machines that start together do not ask together.
const JITTER: Duration = Duration::from_secs(1);
/// REQUESTs for an offer before the client looks for servers again.
const REQUESTS: u32 = 3;
/// Between renewals that no server answers. RFC 2131 has a minute, which leaves a lease of a few minutes one try.
const LEAST_RENEW_WAIT: Duration = Duration::from_secs(5);
/// After an address was declined.
const DECLINE_WAIT: Duration = Duration::from_secs(10);
/// All ones in a lease.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
/// T1 and T2 come up to this part of theirs sooner.
const FUZZ: u32 = 32;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send this message to every server.
    Broadcast(Vec<u8>),
    /// Send this message to one server, from the client's address.
    Unicast(Ipv4Addr, Vec<u8>),
    /// The link has what this grants, for its time from now on, and nothing of an earlier lease that this one lacks.
    Bound(Box<Lease>),
    /// The link has no address of the client's any more.
    Lost(Box<Lease>, Loss),
    /// A server refused this address, which is not in use.
    Refused(Ipv4Addr),
}

/// Why a lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// No server prolonged it in time.
    Expired,
    /// A server took it back.
    Refused,
    /// Another machine has the address.
    Conflict,
}

/// A lease in use.
#[derive(Debug)]
struct Held {
    lease: Box<Lease>,
    renew: Duration,
    rebind: Duration,
    end: Duration,
}

/// Questions of one number.
#[derive(Debug)]
struct Exchange {
    xid: u32,
    began: Duration,
    /// When what an ACK answers was sent. A REQUEST for an offer has one number with its repeats: the first one.
    asked: Duration,
    /// Since `began`, as the last message says.
    seconds: u16,
    /// When the question is repeated.
    next: Duration,
    sent: u32,
}

#[derive(Debug)]
enum State {
    /// For the start, or for this time.
    Waiting(Option<Duration>),
    Selecting {
        exchange: Exchange,
        wanted: Option<Ipv4Addr>,
        held: Option<Held>,
    },
    Requesting {
        exchange: Exchange,
        offer: Box<Lease>,
        held: Option<Held>,
    },
    Bound(Held),
    Renewing {
        exchange: Exchange,
        held: Held,
    },
}

/// A client of one link.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    random: Rng,
    state: State,
    /// Refusals in a row: a server that refuses everything is asked ever more slowly.
    refusals: u32,
}

impl Client {
    /// A client that waits for [`Self::start`]. `seed` is a random number.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self { settings, random: Rng::with_seed(seed), state: State::Waiting(None), refusals: 0 }
    }

    /// Who the client is.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The lease in use.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Bound(held) | State::Renewing { held, .. } => Some(&held.lease),
            State::Selecting { held, .. } | State::Requesting { held, .. } => {
                held.as_ref().map(|held| &*held.lease)
            }
            State::Waiting(_) => None,
        }
    }

    /// How long the address may still be used; zero without a lease. The longest time of all does not pass.
    #[must_use]
    pub fn remaining(&self, now: Duration) -> Duration {
        let held = match &self.state {
            State::Bound(held) | State::Renewing { held, .. } => Some(held),
            State::Selecting { held, .. } | State::Requesting { held, .. } => held.as_ref(),
            State::Waiting(_) => None,
        };
        held.map_or(Duration::ZERO, |held| match held.lease.time {
            FOREVER => FOREVER,
            _ => held.end.saturating_sub(now),
        })
    }

    /// When [`Self::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let end = |held: &Option<Held>| held.as_ref().map_or(Duration::MAX, |held| held.end);
        match &self.state {
            State::Waiting(until) => *until,
            State::Selecting { exchange, held, .. } | State::Requesting { exchange, held, .. } => {
                Some(exchange.next.min(end(held)))
            }
            State::Bound(held) => Some(held.renew.min(held.end)),
            State::Renewing { exchange, held } => Some(exchange.next.min(held.end)),
        }
    }

    /// The link carries packets, for the first time or again. `before` is an address that the client had once; the one that
    /// it has goes before it.
    pub fn start(&mut self, now: Duration, before: Option<Ipv4Addr>) -> Vec<Output> {
        let mut held = self.take_held();
        let wanted = held.as_ref().map(|held| held.lease.address).or(before);
        self.refusals = 0;
        let mut outputs = Vec::new();
        if let Some(over) = held.take_if(|held| held.end <= now) {
            outputs.push(Output::Lost(over.lease, Loss::Expired));
        }
        self.select(now, wanted, held, &mut outputs);
        outputs
    }

    /// There is word of an address that the client had once, after the start. It counts while the client has none.
    pub fn remember(&mut self, now: Duration, before: Ipv4Addr) -> Vec<Output> {
        match &self.state {
            State::Selecting { wanted: None, held: None, .. } => self.start(now, Some(before)),
            _ => Vec::new(),
        }
    }

    /// The client is another one from now on: a lease is asked for again under the new name, and used in the meantime.
    pub fn change(&mut self, now: Duration, settings: Settings) -> Vec<Output> {
        self.settings = settings;
        let wanted = match &self.state {
            State::Selecting { wanted, .. } => *wanted,
            _ => None,
        };
        self.start(now, wanted)
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.expire(now, &mut outputs);
        match std::mem::replace(&mut self.state, State::Waiting(None)) {
            State::Waiting(Some(until)) if until <= now => self.select(now, None, None, &mut outputs),
            State::Selecting { mut exchange, wanted, held } if exchange.next <= now => {
                // The first one has the number of the question for the address of before: the answer to either counts.
                if exchange.sent > 0 {
                    exchange.xid = self.random.u32(..);
                }
                outputs.push(Output::Broadcast(self.say(Say::Discover { wanted }, &mut exchange, now)));
                self.repeat(&mut exchange, now);
                self.state = State::Selecting { exchange, wanted, held };
            }
            State::Requesting { exchange, offer, held } if exchange.next <= now => {
                // A machine that slept has an offer of long ago, from which a lease would count.
                if exchange.sent >= REQUESTS || exchange.asked + LONGEST_WAIT <= now {
                    self.select(now, None, held, &mut outputs);
                } else {
                    self.request(now, exchange, offer, held, &mut outputs);
                }
            }
            State::Bound(held) if held.renew <= now => self.renew(now, now, held, &mut outputs),
            State::Renewing { exchange, held } if exchange.next <= now => {
                self.renew(now, exchange.began, held, &mut outputs);
            }
            other => self.state = other,
        }
        outputs
    }

    /// Hears a message of a server, or of anybody.
    pub fn hear(&mut self, now: Duration, packet: &[u8]) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.expire(now, &mut outputs);
        let xid = match &self.state {
            State::Selecting { exchange, .. }
            | State::Requesting { exchange, .. }
            | State::Renewing { exchange, .. } => exchange.xid,
            State::Waiting(_) | State::Bound(_) => return outputs,
        };
        if let Some(heard) = decode(packet, xid, &self.settings.hardware) {
            self.answer(now, heard, &mut outputs);
        }
        outputs
    }

    /// Another machine has the address: the server is told, and asked for another one later.
    pub fn conflict(&mut self, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.expire(now, &mut outputs);
        // Without a lease there is nothing to give up, and whatever is going on goes on.
        if self.lease().is_none() {
            return outputs;
        }
        let Some(held) = self.take_held() else { return outputs };
        let mut exchange = self.exchange(now);
        let (address, server) = (held.lease.address, held.lease.server);
        let message = self.say(Say::Decline { address, server }, &mut exchange, now);
        self.state = State::Waiting(Some(now + DECLINE_WAIT));
        outputs.extend([Output::Broadcast(message), Output::Lost(held.lease, Loss::Conflict)]);
        outputs
    }

    fn answer(&mut self, now: Duration, heard: Heard, outputs: &mut Vec<Output>) {
        match (std::mem::replace(&mut self.state, State::Waiting(None)), heard) {
            // Before a DISCOVER was sent there is nothing that an offer answers.
            (State::Selecting { exchange, wanted, held }, Heard::Offer(message)) if exchange.sent > 0 => {
                match self.parse(&message) {
                    Some(offer) => {
                        // The first DISCOVER has the number of the question for the address of before, whose ACK may still come.
                        let shares = exchange.sent == 1 && wanted == Some(offer.address);
                        let asked = if shares { exchange.began } else { now };
                        let exchange = Exchange { sent: 0, asked, ..exchange };
                        self.request(now, exchange, Box::new(offer), held, outputs);
                    }
                    None => self.state = State::Selecting { exchange, wanted, held },
                }
            }
            (State::Selecting { exchange, wanted, held }, Heard::Ack(message)) => {
                let is_rapid = exchange.sent > 0 && message.opts().get(OptionCode::RapidCommit).is_some();
                // The address of before was asked for once, at the beginning.
                let asked = if is_rapid { exchange.asked } else { exchange.began };
                let lease = self.granted(&message, asked, now);
                match lease.filter(|lease| is_rapid || wanted == Some(lease.address)) {
                    Some(lease) => self.bind(asked, lease, outputs),
                    None => self.state = State::Selecting { exchange, wanted, held },
                }
            }
            // Only the question for the address of before can be refused here.
            (State::Selecting { held, wanted: Some(wanted), .. }, Heard::Nak(_)) => {
                outputs.push(match held {
                    Some(held) => Output::Lost(held.lease, Loss::Refused),
                    None => Output::Refused(wanted),
                });
                self.refused(now, None, outputs);
            }
            (State::Requesting { offer, held, exchange }, Heard::Ack(message)) => {
                let lease = self.granted(&message, exchange.asked, now);
                match lease.filter(|lease| lease.address == offer.address) {
                    Some(lease) => self.bind(exchange.asked, lease, outputs),
                    None => self.state = State::Requesting { exchange, offer, held },
                }
            }
            (State::Requesting { offer, mut held, .. }, Heard::Nak(server))
                if is_by(server, offer.server) =>
            {
                // An address of before that is another one is not what was refused.
                if let Some(held) = held.take_if(|held| held.lease.address == offer.address) {
                    outputs.push(Output::Lost(held.lease, Loss::Refused));
                }
                self.refused(now, held, outputs);
            }
            (State::Renewing { exchange, held }, Heard::Ack(message)) => {
                let lease = self.granted(&message, exchange.asked, now);
                match lease.filter(|lease| lease.address == held.lease.address) {
                    Some(lease) => self.bind(exchange.asked, lease, outputs),
                    None => self.state = State::Renewing { exchange, held },
                }
            }
            // Before T2 its own server was asked, and no other.
            (State::Renewing { held, .. }, Heard::Nak(server))
                if now >= held.rebind || is_by(server, held.lease.server) =>
            {
                outputs.push(Output::Lost(held.lease, Loss::Refused));
                self.refused(now, None, outputs);
            }
            (state, _) => self.state = state,
        }
    }

    fn parse(&self, message: &Message) -> Option<Lease> {
        let mut lease = Lease::parse(message)?;
        // What was not asked for does not count.
        if self.settings.ignores_hostname || self.settings.hostname.is_some() {
            (lease.hostname, lease.domain) = (None, None);
        }
        Some(lease)
    }

    /// What an ACK to a question of this moment grants; one that came so late that it is over grants nothing.
    fn granted(&self, message: &Message, asked: Duration, now: Duration) -> Option<Lease> {
        self.parse(message).filter(|lease| now < asked + lease.time)
    }

    fn bind(&mut self, asked: Duration, lease: Lease, outputs: &mut Vec<Output>) {
        self.refusals = 0;
        let lease = Box::new(lease);
        outputs.push(Output::Bound(lease.clone()));
        let mut sooner = |time: Duration| time - (time / FUZZ).mul_f64(self.random.f64());
        let renew = asked + sooner(lease.renew_after);
        let rebind = (asked + sooner(lease.rebind_after)).max(renew);
        self.state = State::Bound(Held { renew, rebind, end: asked + lease.time, lease });
    }

    /// Looks for servers; for the address of before alone first.
    fn select(
        &mut self,
        now: Duration,
        wanted: Option<Ipv4Addr>,
        held: Option<Held>,
        outputs: &mut Vec<Output>,
    ) {
        let mut exchange = self.exchange(now);
        if let Some(address) = wanted {
            outputs.push(Output::Broadcast(self.say(Say::Reboot { address }, &mut exchange, now)));
            exchange.next = now + REBOOT_WAIT;
        } else {
            outputs.push(Output::Broadcast(self.say(Say::Discover { wanted }, &mut exchange, now)));
            self.repeat(&mut exchange, now);
        }
        self.state = State::Selecting { exchange, wanted, held };
    }

    fn request(
        &mut self,
        now: Duration,
        mut exchange: Exchange,
        offer: Box<Lease>,
        held: Option<Held>,
        outputs: &mut Vec<Output>,
    ) {
        let say = Say::Select { address: offer.address, server: offer.server };
        outputs.push(Output::Broadcast(self.say(say, &mut exchange, now)));
        self.repeat(&mut exchange, now);
        self.state = State::Requesting { exchange, offer, held };
    }

    /// Each question has a number of its own, as each DISCOVER, so that an ACK tells which one it answers.
    fn renew(&mut self, now: Duration, began: Duration, held: Held, outputs: &mut Vec<Output>) {
        let mut exchange = Exchange { began, ..self.exchange(now) };
        let message = self.say(Say::Renew { address: held.lease.address }, &mut exchange, now);
        let is_rebinding = now >= held.rebind;
        outputs.push(if is_rebinding {
            Output::Broadcast(message)
        } else {
            Output::Unicast(held.lease.server, message)
        });
        let until = if is_rebinding { held.end } else { held.rebind };
        // Half of what is left, so that the questions grow denser towards the end.
        let wait = (until.saturating_sub(now) / 2).max(LEAST_RENEW_WAIT);
        exchange.next = (now + wait).min(until.max(now + REBOOT_WAIT));
        self.state = State::Renewing { exchange, held };
    }

    /// Begins again: at once after the first refusal, later after each further one. What is held is used on.
    fn refused(&mut self, now: Duration, held: Option<Held>, outputs: &mut Vec<Output>) {
        let wait = FIRST_WAIT * (1 << self.refusals.min(4)) / 2;
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals == 1 {
            self.select(now, None, held, outputs);
            return;
        }
        let until = now + wait + JITTER.mul_f64(self.random.f64());
        self.state = match held {
            None => State::Waiting(Some(until)),
            held => {
                let exchange = Exchange { next: until, ..self.exchange(now) };
                State::Selecting { exchange, wanted: None, held }
            }
        };
    }

    fn expire(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        let is_over = |held: &Held| held.end <= now;
        match std::mem::replace(&mut self.state, State::Waiting(None)) {
            State::Bound(held) | State::Renewing { held, .. } if is_over(&held) => {
                outputs.push(Output::Lost(held.lease, Loss::Expired));
                self.select(now, None, None, outputs);
            }
            State::Selecting { exchange, held: Some(held), wanted } if is_over(&held) => {
                outputs.push(Output::Lost(held.lease, Loss::Expired));
                self.state = State::Selecting { exchange, wanted, held: None };
            }
            State::Requesting { exchange, held: Some(held), offer } if is_over(&held) => {
                outputs.push(Output::Lost(held.lease, Loss::Expired));
                self.state = State::Requesting { exchange, offer, held: None };
            }
            other => self.state = other,
        }
    }

    fn take_held(&mut self) -> Option<Held> {
        match std::mem::replace(&mut self.state, State::Waiting(None)) {
            State::Bound(held) | State::Renewing { held, .. } => Some(held),
            State::Selecting { held, .. } | State::Requesting { held, .. } => held,
            State::Waiting(_) => None,
        }
    }

    fn exchange(&mut self, now: Duration) -> Exchange {
        Exchange { xid: self.random.u32(..), began: now, asked: now, seconds: 0, next: now, sent: 0 }
    }

    fn repeat(&mut self, exchange: &mut Exchange, now: Duration) {
        let wait = (FIRST_WAIT * (1 << exchange.sent.min(4))).min(LONGEST_WAIT);
        exchange.sent += 1;
        exchange.next = now + wait - JITTER + (JITTER * 2).mul_f64(self.random.f64());
    }

    fn say(&self, say: Say, exchange: &mut Exchange, now: Duration) -> Vec<u8> {
        // A REQUEST for an offer says the seconds of its DISCOVER: relays pass it to the servers that heard that (RFC 2131 §3.1).
        if !matches!(say, Say::Select { .. }) {
            let seconds = now.saturating_sub(exchange.began).as_secs();
            exchange.seconds = u16::try_from(seconds).unwrap_or(u16::MAX);
            exchange.asked = now;
        }
        encode(say, exchange.xid, exchange.seconds, &self.settings)
    }
}

/// A refusal that names no server counts as that of the one that was asked.
fn is_by(named: Option<Ipv4Addr>, server: Ipv4Addr) -> bool {
    named.is_none_or(|named| named == server)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
