//! The states of a client.
//!
//! ```text
//!  start ─► Confirming ── success, no answer ─► Bound ── T1 ─► Renewing ── T2 ─► Rebinding
//!    │          │ not on link                    ▲ ▲               └── reply ───────┤
//!    ▼          ▼                                │ └────────────────────────────────┤
//!  Selecting ── advertise ─► Requesting ── reply ┘                                  │
//!    ▲  └─ reply at once (rapid commit) ─► Bound       ◄─── no binding: Requesting ─┤
//!    └───────────── no answer, refused, over, conflict (Declining) ◄────────────────┘
//!  start, stateless ─► Informing ── reply ─► Informed ── refresh time ─► Informing
//! ```
//!
//! A client that has a lease, or kept one from before its start, asks whether its addresses fit the link. A lease of before the
//! start is not in use until a server says so, or none answers within ten seconds. One in use stays in use in the meantime.
//! Each answer needs the exchange's number, the client's DUID, and where one server was asked, that server's DUID. A server
//! that says `UseMulticast` or `UnspecFail` has not answered: every message goes to all servers, and is repeated.
//! Source: RFC 8415 §18.2 (sections at the functions), §15 (repeats), §18.2.10 (answers).

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::duid;
use crate::exchange::{self, Exchange, Plan, Rate};
use crate::lease::Lease;
use crate::message::{Information, Kind, Say, Settings, decode, encode};
use fastrand::Rng;

mod answer;
mod state;

use state::{Given, Held, Offer, State};

/// After the second refusal in a row; doubled at each further one, up to 16 times.
const REFUSED_WAIT: Duration = Duration::from_secs(4);
/// Up to so much more.
const JITTER: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send this message to [`crate::message::SERVERS`] on the link, from its link-local address.
    Send(Vec<u8>),
    /// The link has what this grants, for its times from now on, and nothing of an earlier lease that this one lacks.
    Bound(Box<Lease>),
    /// The link has no address of the client's any more.
    Lost(Box<Lease>, Loss),
    /// The lease of before the start, which is not in use, does not fit the link or is over.
    Refused(Box<Lease>),
    /// A server told these settings to a client without addresses. They replace those of before.
    Informed(Box<Information>),
}

/// Why a lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// No server prolonged it in time.
    Expired,
    /// A server took it back, or said that it does not fit the link.
    Refused,
    /// Another machine has its last address.
    Conflict,
    /// The client gave it back.
    Released,
}

/// A client of one link.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    random: Rng,
    rate: Rate,
    state: State,
    /// The last one begun; it runs in the states that ask.
    exchange: Exchange,
    /// Always there, and in use, when bound, renewing or rebinding.
    held: Option<Held>,
    information: Option<Box<Information>>,
    /// Refusals in a row: a server that refuses everything is asked ever more slowly.
    refusals: u32,
    /// `SOL_MAX_RT` and `INF_MAX_RT` of the link.
    solicit_longest: Option<Duration>,
    inform_longest: Option<Duration>,
}

impl Client {
    /// A client that waits for [`Self::start`]. `seed` is a random number.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let exchange = Exchange::new(exchange::SOLICIT, Duration::MAX, &mut random);
        Self {
            settings,
            random,
            rate: Rate::new(),
            state: State::Waiting(None),
            exchange,
            held: None,
            information: None,
            refusals: 0,
            solicit_longest: exchange::SOLICIT.longest,
            inform_longest: exchange::INFORM.longest,
        }
    }

    /// Who the client is.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The lease in use. Its times are as of [`Lease::obtained_at`]; [`Lease::at`] tells what is left.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        self.held.as_ref().filter(|held| held.in_use).map(|held| &*held.lease)
    }

    /// What a client without addresses was told last.
    #[must_use]
    pub fn information(&self) -> Option<&Information> {
        self.information.as_deref()
    }

    /// How long the last address may still be used; zero without a lease. The longest time of all does not pass.
    #[must_use]
    pub fn remaining(&self, now: Duration) -> Duration {
        let times = self.lease().map(|lease| lease.at(now).addresses).unwrap_or_default();
        times.iter().map(|address| address.valid).max().unwrap_or_default()
    }

    /// When [`Self::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let held = |moment: fn(&Lease) -> Duration| self.held.as_ref().map(|held| moment(&held.lease));
        let due = match &self.state {
            State::Waiting(until) | State::Informed(until) => *until,
            State::Bound => held(Lease::renew_at),
            State::Renewing => held(Lease::rebind_at).map(|at| at.min(self.exchange.deadline())),
            _ => Some(self.exchange.deadline()),
        };
        due.into_iter().chain(held(Lease::first_end)).filter(|at| *at < Duration::MAX).min()
    }

    /// The link carries packets, for the first time or again. `before` is a lease that the client had once; the one that it has
    /// goes before it (RFC 8415 §18.2.3).
    pub fn start(&mut self, now: Duration, before: Option<Lease>) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.expire(now, &mut outputs);
        // What servers of another link said about their pace does not count.
        (self.solicit_longest, self.inform_longest) = (exchange::SOLICIT.longest, exchange::INFORM.longest);
        self.refusals = 0;
        if self.held.is_none() {
            let left =
                before.map(|lease| Box::new(lease.at(now))).filter(|lease| !lease.addresses.is_empty());
            self.held = left.map(|lease| Held { lease, in_use: false });
        }
        if self.settings.stateless {
            self.held = None;
        }
        let delay = self.settings.first_delay.mul_f64(self.random.f64());
        if self.held.is_some() {
            self.begin(now, State::Confirming, exchange::CONFIRM, delay, &mut outputs);
        } else {
            self.seek(now, delay, &mut outputs);
        }
        outputs
    }

    /// There is word of a lease that the client had once, after the start. It counts while no server has offered anything.
    pub fn remember(&mut self, now: Duration, before: Lease) -> Vec<Output> {
        match self.state {
            State::Selecting(None) if self.held.is_none() => self.start(now, Some(before)),
            _ => Vec::new(),
        }
    }

    /// The client is another one from now on. A lease is used in the meantime: its server hears a new name in RENEW, and a new
    /// identity asks for addresses of its own. A client that is to have no address any more gives its lease back.
    pub fn change(&mut self, now: Duration, settings: Settings) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.expire(now, &mut outputs);
        let is_same = settings.identifier() == self.settings.identifier()
            && settings.hardware == self.settings.hardware;
        if settings.stateless
            && let Some(given) = self.give_back(&mut outputs)
        {
            let xid = self.random.u32(..) >> 8;
            let message = crate::message::release(&self.settings, &given.addresses, &given.server, xid);
            self.send(now, message, &mut outputs);
        }
        if !settings.stateless {
            self.information = None;
        }
        self.settings = settings;
        if !is_same {
            // A lease of another identity that is not in use is of no use.
            self.held.take_if(|held| !held.in_use);
        }
        let is_prolonged = is_same && self.state.prolongs();
        match &self.held {
            Some(held) if held.in_use && is_prolonged => self.renew(now, &mut outputs),
            Some(held) if held.in_use && !(is_same && matches!(self.state, State::Confirming)) => {
                self.seek(now, Duration::ZERO, &mut outputs);
            }
            _ => outputs.extend(self.start(now, None)),
        }
        outputs
    }

    /// The link is to have no address any more: the server is told, up to four times. The client then waits for
    /// [`Self::start`]. One that cannot wait sends [`crate::message::release`] once (RFC 8415 §18.2.7).
    pub fn release(&mut self, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.expire(now, &mut outputs);
        match self.give_back(&mut outputs) {
            Some(given) => {
                self.begin(now, State::Releasing(given), exchange::RELEASE, Duration::ZERO, &mut outputs);
            }
            None => self.state = State::Waiting(None),
        }
        outputs
    }

    /// Another machine has this address: the server is told, and the rest of the lease is used on. Without a rest it is asked
    /// for another one (RFC 8415 §18.2.8).
    pub fn conflict(&mut self, now: Duration, address: Ipv6Addr) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.expire(now, &mut outputs);
        let Some(held) = self.held.take_if(|held| held.in_use && held.lease.has(address)) else {
            return outputs;
        };
        let server = held.lease.server_duid.clone();
        let mut rest = held.lease.at(now);
        rest.addresses.retain(|known| known.address != address);
        if rest.addresses.is_empty() {
            outputs.push(Output::Lost(held.lease, Loss::Conflict));
        } else {
            self.hold(rest, &mut outputs);
        }
        let mut given = Given { server, addresses: vec![address] };
        // One after the other: the server has not confirmed the first one yet.
        if let State::Declining(before) = &self.state
            && before.server == given.server
        {
            given.addresses.extend(before.addresses.iter().filter(|known| **known != address));
        }
        self.begin(now, State::Declining(given), exchange::DECLINE, Duration::ZERO, &mut outputs);
        outputs
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.expire(now, &mut outputs);
        let reaches = |moment: fn(&Lease) -> Duration| {
            self.held.as_ref().is_some_and(|held| moment(&held.lease) <= now)
        };
        match &mut self.state {
            State::Waiting(Some(until)) if *until <= now => self.seek(now, Duration::ZERO, &mut outputs),
            // Clients that were told together must not ask together again (RFC 8415 §21.23).
            State::Informed(Some(until)) if *until <= now => {
                let delay = self.settings.first_delay.mul_f64(self.random.f64());
                self.seek(now, delay, &mut outputs);
            }
            State::Waiting(_) | State::Informed(_) => {}
            State::Bound if reaches(Lease::renew_at) => self.renew(now, &mut outputs),
            State::Bound => {}
            State::Renewing if reaches(Lease::rebind_at) => self.renew(now, &mut outputs),
            _ if self.exchange.is_over(now) => self.give_up(now, &mut outputs),
            // The time in which offers are collected is over.
            State::Selecting(offer) if self.exchange.is_due(now) => match offer.take() {
                Some(offer) => self.request(now, offer, &mut outputs),
                None => self.transmit(now, &mut outputs),
            },
            _ if self.exchange.is_due(now) => self.transmit(now, &mut outputs),
            _ => {}
        }
        outputs
    }

    /// Hears a message of a server, or of any other sender.
    pub fn hear(&mut self, now: Duration, packet: &[u8]) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.expire(now, &mut outputs);
        if self.exchange.sent == 0 || !self.state.asks() {
            return outputs;
        }
        if let Ok(heard) = decode(packet, duid::iaid(&self.settings.hardware))
            && heard.xid == self.exchange.xid
            && heard.client == self.settings.identifier()
        {
            self.answer(now, &heard, &mut outputs);
        }
        outputs
    }

    /// Begins an exchange. Its first message is sent after `delay`.
    fn begin(&mut self, now: Duration, state: State, plan: Plan, delay: Duration, outputs: &mut Vec<Output>) {
        self.state = state;
        self.exchange = Exchange::new(plan, now + delay, &mut self.random);
        if self.exchange.is_due(now) {
            self.transmit(now, outputs);
        }
    }

    /// Looks for servers (RFC 8415 §18.2.1), or for settings (§18.2.6).
    fn seek(&mut self, now: Duration, delay: Duration, outputs: &mut Vec<Output>) {
        if self.settings.stateless {
            let plan = Plan { longest: self.inform_longest, ..exchange::INFORM };
            self.begin(now, State::Informing, plan, delay, outputs);
        } else {
            let plan = Plan { longest: self.solicit_longest, ..exchange::SOLICIT };
            self.begin(now, State::Selecting(None), plan, delay, outputs);
        }
    }

    /// RFC 8415 §18.2.2.
    fn request(&mut self, now: Duration, offer: Offer, outputs: &mut Vec<Output>) {
        self.begin(now, State::Requesting(offer), exchange::REQUEST, Duration::ZERO, outputs);
    }

    /// Before T2 (RFC 8415 §18.2.4), and after it (§18.2.5).
    fn renew(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        let (state, plan) = match &self.held {
            Some(held) if held.lease.rebind_at() <= now => (State::Rebinding, exchange::REBIND),
            _ => (State::Renewing, exchange::RENEW),
        };
        self.begin(now, state, plan, Duration::ZERO, outputs);
    }

    /// No server answered an exchange that has an end.
    fn give_up(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        match self.state {
            State::Confirming => self.resume(now, outputs),
            State::Declining(_) => self.go_on(now, outputs),
            State::Releasing(_) => self.state = State::Waiting(None),
            _ => self.seek(now, Duration::ZERO, outputs),
        }
    }

    /// The lease fits the link, as far as is known.
    fn resume(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        match self.held.take() {
            Some(held) => {
                self.bind(held.lease.at(now), outputs);
                self.settle(now, outputs);
            }
            None => self.seek(now, Duration::ZERO, outputs),
        }
    }

    /// After DECLINE.
    fn go_on(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        if self.held.is_some() {
            self.settle(now, outputs);
        } else {
            self.refused(now, outputs);
        }
    }

    /// Uses a lease on; T1 may have passed in the meantime.
    fn settle(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        self.state = State::Bound;
        if self.held.as_ref().is_some_and(|held| held.lease.renew_at() <= now) {
            self.renew(now, outputs);
        }
    }

    /// Begins again: at once after the first refusal, later after each further one.
    fn refused(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        let wait = REFUSED_WAIT * (1 << self.refusals.saturating_sub(1).min(4));
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals == 1 {
            self.seek(now, Duration::ZERO, outputs);
        } else {
            self.state = State::Waiting(Some(now + wait + JITTER.mul_f64(self.random.f64())));
        }
    }

    fn bind(&mut self, lease: Lease, outputs: &mut Vec<Output>) {
        self.state = State::Bound;
        self.hold(lease, outputs);
    }

    fn hold(&mut self, lease: Lease, outputs: &mut Vec<Output>) {
        let lease = Box::new(lease);
        outputs.push(Output::Bound(lease.clone()));
        self.held = Some(Held { lease, in_use: true });
    }

    /// Takes the lease off the link, before its server is told.
    fn give_back(&mut self, outputs: &mut Vec<Output>) -> Option<Given> {
        let held = self.held.take()?;
        let given = Given { server: held.lease.server_duid.clone(), addresses: held.lease.list() };
        if held.in_use {
            outputs.push(Output::Lost(held.lease, Loss::Released));
        }
        Some(given)
    }

    /// Takes addresses that are over off the link.
    fn expire(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        let Some(held) = self.held.take_if(|held| held.lease.first_end() <= now) else { return };
        let rest = held.lease.at(now);
        if rest.addresses.is_empty() {
            outputs.push(if held.in_use {
                Output::Lost(held.lease, Loss::Expired)
            } else {
                Output::Refused(held.lease)
            });
            if self.state.needs_lease() {
                self.seek(now, Duration::ZERO, outputs);
            }
        } else if held.in_use {
            self.hold(rest, outputs);
        } else {
            self.held = Some(Held { lease: Box::new(rest), in_use: false });
        }
    }

    fn transmit(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        let held = self.held.as_ref().map(|held| &*held.lease);
        let own = held.map(Lease::list).unwrap_or_default();
        let (kind, server, addresses) = match &self.state {
            State::Selecting(_) => (Kind::Solicit, None, &own),
            State::Requesting(offer) => (Kind::Request, Some(&offer.server), &offer.addresses),
            State::Confirming => (Kind::Confirm, None, &own),
            State::Renewing => (Kind::Renew, held.map(|lease| &lease.server_duid), &own),
            State::Rebinding => (Kind::Rebind, None, &own),
            State::Declining(given) => (Kind::Decline, Some(&given.server), &given.addresses),
            State::Releasing(given) => (Kind::Release, Some(&given.server), &given.addresses),
            State::Informing => (Kind::InformationRequest, None, &own),
            State::Waiting(_) | State::Bound | State::Informed(_) => return,
        };
        let elapsed = self.exchange.elapsed(now);
        let message = encode(Say { kind, server, addresses }, self.exchange.xid, elapsed, &self.settings);
        self.exchange.sent(now, &mut self.random);
        self.send(now, message, outputs);
    }

    fn send(&mut self, now: Duration, message: Vec<u8>, outputs: &mut Vec<Output>) {
        if self.rate.allows(now) {
            outputs.push(Output::Send(message));
        }
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod network_tests;
#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
