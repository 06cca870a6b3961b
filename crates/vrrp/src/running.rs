//! The turns of a virtual router that runs: its socket, its clock, and the caller's addresses.
//!
//! Each turn does all that is due, in this order: look at the link, take over whether the machine is fit, hear packets, the
//! router's timer, announce the addresses again, hold them, publish the status. Then it waits for the next of these. Packets
//! come before the timer, so that a process that was stopped for a while hears who has taken over before it believes that it
//! has the addresses still.
//!
//! Owns: when the caller's addresses are held, announced and dropped, and what is tried again.
//! Does not: know how an address gets to a link.
//! Fails by: saying so, once for each cause, and leaving the addresses to others: a machine whose link, socket or addresses
//! fail resigns, and tries again each second.
//! Source: RFC 9568 §6; RFC 5227 §2.3 (announcements are repeated).

use std::future::pending;
use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::addresses::Addresses;
use crate::caller::{Address, HOLD_PERIOD, within_deadline};
use crate::packet::{Advertisement, DecodeError};
use crate::report::{Cause, Reporter};
use crate::router::{Action, Event, Heard, OWNER, Router, State};
use crate::settings::{Settings, Status};
use crate::socket::{Link, Raw, SocketError};

/// Between looks at the link, and before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Looks at a link without an address before that is told: IPv6 asks for a second or two whether another machine has it
/// (RFC 4862 §5.4).
const QUIET_LOOKS: u8 = 4;
/// Of a takeover, the first included. One that is lost leaves neighbours with the address of the machine before.
const ANNOUNCEMENTS: u8 = 3;
const ANNOUNCE_PERIOD: Duration = Duration::from_secs(1);
/// Packets heard in a turn, so that a flood does not keep the rest from its turn.
const PACKETS: usize = 64;

/// What a socket had.
enum Came {
    Nothing,
    /// It was counted.
    Dropped,
    /// For this virtual router.
    Advertisement(Heard),
}

/// A driver that runs.
pub(crate) struct Running<'a, A, S> {
    settings: Settings,
    addresses: Addresses,
    status: watch::Sender<Status>,
    router: Router,
    raw: Option<Raw>,
    address: &'a mut A,
    told: Reporter<S>,
    /// What the router's times count from.
    start: Instant,
    look_at: Instant,
    /// In a row that found no address.
    quiet_looks: u8,
    hold_at: Instant,
    /// Until then the machine is not fit, because it could not have the addresses.
    failed_until: Instant,
    announce_at: Instant,
    announcements: u8,
    malformed: u64,
    ignored: u64,
}

impl<'a, A: Address, S: Fn(&str)> Running<'a, A, S> {
    pub(crate) fn new(
        settings: Settings,
        addresses: Addresses,
        status: watch::Sender<Status>,
        address: &'a mut A,
        say: S,
    ) -> Self {
        let now = Instant::now();
        Self {
            // Whether it is fit is said in the first turn.
            router: Router::new(settings.router.clone(), false),
            settings,
            addresses,
            status,
            raw: None,
            address,
            told: Reporter::new(say),
            start: now,
            look_at: now,
            quiet_looks: 0,
            hold_at: now,
            failed_until: now,
            announce_at: now,
            announcements: 0,
            malformed: 0,
            ignored: 0,
        }
    }

    /// Does what is due.
    pub(crate) async fn turn(&mut self, is_fit: bool) {
        if Instant::now() >= self.look_at {
            self.look_at = Instant::now() + PAUSE;
            self.look().await;
        }
        let is_able = Instant::now() >= self.failed_until;
        self.step(Event::Fit(is_fit && is_able)).await;
        self.hear().await;
        self.step(Event::Timer).await;
        if self.is_active() && self.announcements > 0 && Instant::now() >= self.announce_at {
            self.announce().await;
        }
        if self.is_active() && Instant::now() >= self.hold_at {
            self.hold_again().await;
        }
        self.publish();
    }

    /// Waits for a packet, or until something is due.
    pub(crate) async fn next_turn(&self) {
        let mut due = self.look_at;
        if self.failed_until > Instant::now() {
            due = due.min(self.failed_until);
        }
        if let Some(deadline) = self.router.deadline() {
            due = due.min(self.start + deadline);
        }
        if self.is_active() {
            due = due.min(self.hold_at);
        }
        if self.is_active() && self.announcements > 0 {
            due = due.min(self.announce_at);
        }
        let readable = async {
            match &self.raw {
                Some(raw) => raw.readable().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = sleep_until(due) => {}
            () = readable => {}
        }
    }

    /// Gives the addresses up.
    pub(crate) async fn end(mut self) {
        self.step(Event::Shutdown).await;
        self.publish();
    }

    fn is_active(&self) -> bool {
        self.router.state() == State::Active
    }

    /// Opens the socket when the link is well, closes it when it is not, or is another one.
    async fn look(&mut self) {
        // The owner's virtual addresses are its own.
        let not_own: &[IpAddr] =
            if self.settings.router.priority == OWNER { &[] } else { self.addresses.as_slice() };
        let looked = Link::look(&self.settings.link, self.addresses.is_ipv4(), not_own);
        match looked {
            Ok(link) if self.raw.as_ref().is_some_and(|raw| raw.link == link) => {}
            Ok(link) => {
                self.step(Event::Shutdown).await;
                self.open(link).await;
            }
            Err(SocketError::NoPrimary { .. }) if self.quiet_looks < QUIET_LOOKS => {
                self.quiet_looks += 1;
                self.raw = None;
                self.step(Event::Shutdown).await;
            }
            Err(error) => self.close(Cause::Link, &error).await,
        }
    }

    async fn open(&mut self, link: Link) {
        let primary = link.primary;
        // Of the socket before this one.
        self.raw = None;
        self.quiet_looks = 0;
        match Raw::open(link) {
            Ok(raw) => {
                self.raw = Some(raw);
                self.told.over(Cause::Link);
                self.step(Event::Startup(primary)).await;
            }
            Err(error) => self.told.tell(Cause::Link, error.text()),
        }
    }

    /// What cannot be heard must not have the addresses.
    async fn close(&mut self, cause: Cause, error: &SocketError) {
        self.told.tell(cause, error.text());
        self.raw = None;
        self.step(Event::Shutdown).await;
    }

    async fn hear(&mut self) {
        for _ in 0..PACKETS {
            match self.hear_one() {
                Ok(Came::Advertisement(heard)) => self.step(Event::Advertisement(heard)).await,
                Ok(Came::Dropped) => {}
                Ok(Came::Nothing) => break,
                Err(error) => return self.close(Cause::Receive, &error).await,
            }
        }
    }

    fn hear_one(&mut self) -> Result<Came, SocketError> {
        let Some(raw) = &mut self.raw else { return Ok(Came::Nothing) };
        let received = raw.receive()?;
        self.told.over(Cause::Receive);
        let Some(received) = received else { return Ok(Came::Nothing) };
        let vrid = self.settings.vrid;
        let decoded = received.and_then(|(envelope, bytes)| {
            Ok((envelope.source, Advertisement::decode(bytes, &envelope, vrid)?))
        });
        match decoded {
            Ok((sender, advertisement)) => Ok(Came::Advertisement(self.judge(sender, &advertisement))),
            Err(error) => {
                self.count(&error);
                Ok(Came::Dropped)
            }
        }
    }

    fn count(&mut self, error: &DecodeError) {
        if error.is_of_others() {
            self.ignored += 1;
        } else {
            self.malformed += 1;
        }
    }

    /// Routers with the same number and other addresses are a mistake of configuration: told once. The election goes on, as
    /// RFC 9568 §7.1 has it.
    fn judge(&mut self, sender: IpAddr, advertisement: &Advertisement) -> Heard {
        let Advertisement { vrid, priority, interval, addresses } = advertisement;
        if !addresses.has_same(&self.addresses) {
            let (link, own) = (&self.settings.link, &self.addresses);
            self.told.tell_first(Cause::Addresses, || {
                format!(
                    "router {sender} of link {link} advertises {addresses} as virtual router {vrid}, and this machine {own}: \
                     the numbers must differ, or the addresses must be the same"
                )
            });
        }
        Heard { sender, priority: *priority, interval: *interval }
    }

    /// Has the router take an event, and does what it says. What fails is an event too.
    async fn step(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            for action in self.router.step(event, self.start.elapsed()) {
                if let Err(failed) = self.act(action).await {
                    next = Some(failed);
                    break;
                }
            }
        }
    }

    async fn act(&mut self, action: Action) -> Result<(), Event> {
        match action {
            Action::Hold => self.hold().await,
            Action::Send(priority) => self.send(priority),
            Action::Announce => {
                self.announcements = ANNOUNCEMENTS;
                self.announce().await;
                Ok(())
            }
            Action::Drop => {
                self.drop_address().await;
                Ok(())
            }
        }
    }

    fn send(&mut self, priority: u8) -> Result<(), Event> {
        let Some(raw) = &self.raw else { return Ok(()) };
        let advertisement = Advertisement {
            vrid: self.settings.vrid,
            priority,
            interval: self.settings.router.interval,
            addresses: self.addresses.clone(),
        };
        match raw.send(&advertisement.encode(raw.link.primary)) {
            Ok(()) => self.told.over(Cause::Send),
            Err(error) => {
                self.told.tell(Cause::Send, error.text());
                self.raw = None;
                return Err(Event::Shutdown);
            }
        }
        Ok(())
    }

    /// A machine that cannot have the addresses is not fit for a moment.
    async fn hold(&mut self) -> Result<(), Event> {
        self.hold_at = Instant::now() + HOLD_PERIOD;
        match within_deadline(self.address.hold()).await {
            Ok(()) => {
                self.told.over(Cause::Hold);
                Ok(())
            }
            Err(error) => {
                self.told.tell(Cause::Hold, self.failed("hold", &error));
                self.failed_until = Instant::now() + PAUSE;
                Err(Event::Fit(false))
            }
        }
    }

    async fn hold_again(&mut self) {
        if let Err(failed) = self.hold().await {
            self.step(failed).await;
        }
    }

    async fn announce(&mut self) {
        self.announcements -= 1;
        self.announce_at = Instant::now() + ANNOUNCE_PERIOD;
        match within_deadline(self.address.announce()).await {
            Ok(()) => self.told.over(Cause::Announce),
            Err(error) => self.told.tell(Cause::Announce, self.failed("announce", &error)),
        }
    }

    async fn drop_address(&mut self) {
        match within_deadline(self.address.drop_address()).await {
            Ok(()) => self.told.over(Cause::Drop),
            Err(error) => self.told.tell(Cause::Drop, self.failed("drop", &error)),
        }
    }

    fn failed(&self, what: &str, error: &str) -> String {
        format!("{what} {} of link {}: {error}", self.addresses, self.settings.link)
    }

    fn publish(&self) {
        let status = Status {
            state: self.router.state(),
            active: self.router.active(),
            accepts: self.router.accepts(),
            malformed: self.malformed,
            ignored: self.ignored,
        };
        self.status.send_if_modified(|last| {
            let is_new = *last != status;
            *last = status;
            is_new
        });
    }
}
