//! The states of one virtual router on one machine.
//!
//! ```text
//!                  ┌───────────── Startup, fit ─────────────┐ (its own addresses: at once Active)
//!                  │                                        ▼
//!             Initialize ◄── Shutdown or unfit ────────── Backup ◄──┐
//!                  ▲                                        │       │ a better one advertises
//!                  │                   no advertisement for │       │
//!                  │                   Active_Down_Interval ▼       │
//!                  └── Shutdown or unfit: priority 0 ───── Active ──┘
//! ```
//!
//! Who is better has the higher priority, or the same and the higher address. A backup that does not preempt leaves the
//! addresses with whoever has them. All of them wait a little longer for the active one the lower their priority is
//! (Skew_Time), so that the best takes over first.
//!
//! Beside the standard's events there is [`Event::Fit`]: what the addresses lead to may be broken on a machine whose link is
//! well. It then gives them up like one that shuts down, and is silent until it is fit again.
//!
//! Owns: which state follows and when, without sockets and clocks.
//! Order: the addresses are there before other routers and neighbours hear of it, so that a machine that cannot have them
//! disturbs none that can; they are gone before another is asked to take them.
//! Does not: check packets ([`crate::packet`] does), or filter what comes to the addresses: see [`Router::accepts`].
//! Source: RFC 9568 §6.

use std::net::IpAddr;
use std::num::NonZeroU8;
use std::time::Duration;

use crate::interval::Interval;

/// The priority of the machine whose own addresses the virtual ones are (RFC 9568 §5.2.4).
pub const OWNER: NonZeroU8 = NonZeroU8::MAX;
/// The priority of a router whose configuration names none.
pub const DEFAULT_PRIORITY: NonZeroU8 = NonZeroU8::new(100).expect("invariant: 100 is not 0");
/// Says that the sender gives the addresses up.
const RESIGNED: u8 = 0;
/// What Skew_Time is a part of.
const PRIORITIES: u32 = 256;

/// How a router is configured (RFC 9568 §6.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Of this router.
    pub priority: NonZeroU8,
    /// Advertisement_Interval.
    pub interval: Interval,
    /// Preempt_Mode: the addresses are taken from an active router of lower priority.
    pub preempts: bool,
    /// Accept_Mode: who has the addresses also answers at them, not only the machine whose own they are.
    pub accepts: bool,
}

impl Default for Settings {
    /// The standard's defaults, but [`Self::accepts`]: a node's virtual address leads to the node.
    fn default() -> Self {
        Self { priority: DEFAULT_PRIORITY, interval: Interval::DEFAULT, preempts: true, accepts: true }
    }
}

/// A state, as others may know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not taking part.
    Initialize,
    /// Another router has the addresses, or it is not known yet who has.
    Backup,
    /// This machine has the addresses.
    Active,
}

/// What another router advertised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Its primary address.
    pub sender: IpAddr,
    /// Its priority.
    pub priority: u8,
    /// Its Max Advertise Interval.
    pub interval: Interval,
}

/// What happens to a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The link carries packets; this is its primary address.
    Startup(IpAddr),
    /// The end, or the link carries no packets any more.
    Shutdown,
    /// Whether this machine may have the addresses.
    Fit(bool),
    /// An advertisement for this virtual router.
    Advertisement(Heard),
    /// Time passed; [`Router::deadline`] says when it matters.
    Timer,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Give the link the addresses, and keep them there until [`Action::Drop`].
    Hold,
    /// Send an advertisement with this priority.
    Send(u8),
    /// Tell the neighbours where the addresses are.
    Announce,
    /// Take the addresses from the link.
    Drop,
}

/// A state with its timer.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Initialize,
    /// When Active_Down_Timer fires.
    Backup(Duration),
    /// When Adver_Timer fires.
    Active(Duration),
}

/// A virtual router on this machine. Times are since any one moment.
#[derive(Debug)]
pub struct Router {
    settings: Settings,
    phase: Phase,
    fit: bool,
    /// Between startup and shutdown.
    primary: Option<IpAddr>,
    /// Active_Adver_Interval.
    active_interval: Interval,
    /// Who advertised last.
    active: Option<IpAddr>,
}

impl Router {
    /// A router that waits for [`Event::Startup`].
    #[must_use]
    pub fn new(settings: Settings, fit: bool) -> Self {
        let active_interval = settings.interval;
        Self { settings, phase: Phase::Initialize, fit, primary: None, active_interval, active: None }
    }

    /// Where it is.
    #[must_use]
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Initialize => State::Initialize,
            Phase::Backup(_) => State::Backup,
            Phase::Active(_) => State::Active,
        }
    }

    /// The primary address of whoever has the virtual ones, as far as it is known.
    #[must_use]
    pub fn active(&self) -> Option<IpAddr> {
        match self.phase {
            Phase::Initialize => None,
            Phase::Backup(_) => self.active,
            Phase::Active(_) => self.primary,
        }
    }

    /// Whether what comes to the virtual addresses is for this machine. An active router for which this is false answers
    /// nothing but ARP and neighbour discovery there.
    #[must_use]
    pub fn accepts(&self) -> bool {
        self.state() == State::Active && (self.settings.accepts || self.settings.priority == OWNER)
    }

    /// When [`Event::Timer`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Initialize => None,
            Phase::Backup(deadline) | Phase::Active(deadline) => Some(deadline),
        }
    }

    /// How long this router waits for the active one: three of its intervals, and Skew_Time.
    #[must_use]
    pub fn active_down_interval(&self) -> Duration {
        self.active_interval.duration() * 3 + self.skew_time()
    }

    /// How much longer than the best possible router this one waits.
    #[must_use]
    pub fn skew_time(&self) -> Duration {
        let below = PRIORITIES - u32::from(self.settings.priority.get());
        self.active_interval.duration() * below / PRIORITIES
    }

    /// Takes an event; answers what is to be done.
    pub fn step(&mut self, event: Event, now: Duration) -> Vec<Action> {
        match (self.phase, event) {
            (Phase::Initialize, Event::Startup(primary)) => {
                self.primary = Some(primary);
                self.begin(now)
            }
            (Phase::Initialize, Event::Fit(fit)) => {
                self.fit = fit;
                self.begin(now)
            }
            (Phase::Initialize, Event::Shutdown) => {
                self.primary = None;
                Vec::new()
            }
            (Phase::Initialize, Event::Advertisement(_) | Event::Timer) => Vec::new(),
            (Phase::Backup(_) | Phase::Active(_), Event::Startup(primary)) => {
                self.primary = Some(primary);
                Vec::new()
            }
            (Phase::Backup(_) | Phase::Active(_), Event::Shutdown) => {
                self.primary = None;
                self.end()
            }
            (Phase::Backup(_) | Phase::Active(_), Event::Fit(true)) => Vec::new(),
            (Phase::Backup(_) | Phase::Active(_), Event::Fit(false)) => {
                self.fit = false;
                self.end()
            }
            (Phase::Backup(_), Event::Advertisement(heard)) => self.follow(heard, now),
            (Phase::Active(_), Event::Advertisement(heard)) => self.defend(heard, now),
            (Phase::Backup(deadline), Event::Timer) if now >= deadline => self.take_over(now),
            (Phase::Active(deadline), Event::Timer) if now >= deadline => self.advertise(now),
            (Phase::Backup(_) | Phase::Active(_), Event::Timer) => Vec::new(),
        }
    }

    /// RFC 9568 §6.4.1, once the link carries packets and the machine is fit.
    fn begin(&mut self, now: Duration) -> Vec<Action> {
        if !self.fit || self.primary.is_none() {
            return Vec::new();
        }
        if self.settings.priority == OWNER {
            return self.take_over(now);
        }
        self.active_interval = self.settings.interval;
        self.active = None;
        self.phase = Phase::Backup(now + self.active_down_interval());
        Vec::new()
    }

    fn end(&mut self) -> Vec<Action> {
        match std::mem::replace(&mut self.phase, Phase::Initialize) {
            Phase::Initialize | Phase::Backup(_) => Vec::new(),
            Phase::Active(_) => vec![Action::Drop, Action::Send(RESIGNED)],
        }
    }

    fn take_over(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = vec![Action::Hold];
        actions.extend(self.advertise(now));
        actions.push(Action::Announce);
        actions
    }

    fn advertise(&mut self, now: Duration) -> Vec<Action> {
        self.phase = Phase::Active(now + self.settings.interval.duration());
        vec![Action::Send(self.settings.priority.get())]
    }

    /// RFC 9568 §6.4.2: what a backup hears.
    fn follow(&mut self, heard: Heard, now: Duration) -> Vec<Action> {
        if Some(heard.sender) == self.primary {
            return Vec::new();
        }
        if heard.priority == RESIGNED {
            self.active = None;
            self.phase = Phase::Backup(now + self.skew_time());
            return Vec::new();
        }
        self.active = Some(heard.sender);
        if !self.settings.preempts || heard.priority >= self.settings.priority.get() {
            self.wait_for(heard, now);
        }
        Vec::new()
    }

    /// RFC 9568 §6.4.3: what an active router hears. One that is not better is told who has the addresses. It may have told
    /// the neighbours otherwise, and without a virtual MAC address they must learn it anew.
    fn defend(&mut self, heard: Heard, now: Duration) -> Vec<Action> {
        if Some(heard.sender) == self.primary {
            return Vec::new();
        }
        if heard.priority == RESIGNED {
            return self.advertise(now);
        }
        let own = (self.settings.priority.get(), self.primary);
        if (heard.priority, Some(heard.sender)) > own {
            self.active = Some(heard.sender);
            self.wait_for(heard, now);
            return vec![Action::Drop];
        }
        let mut actions = self.advertise(now);
        actions.push(Action::Announce);
        actions
    }

    fn wait_for(&mut self, heard: Heard, now: Duration) {
        self.active_interval = heard.interval;
        self.phase = Phase::Backup(now + self.active_down_interval());
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod network_tests;
#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
