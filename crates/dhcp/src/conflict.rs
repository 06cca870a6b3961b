//! Whether another machine has an address: asked when a lease begins, heard as long as it lasts.
//!
//! The address is in use from the start: the questions go beside. A machine that answers them had it before. One that claims it
//! later is answered once; if it goes on, the address is given up.
//! Source: RFC 5227 §2.1.1 (probes), §2.3 (announcements), §2.4 (defence).

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::frame::{self, Arp};
use fastrand::Rng;

const PROBES: u32 = 3;
const LEAST_PROBE_GAP: Duration = Duration::from_secs(1);
const MOST_PROBE_GAP: Duration = Duration::from_secs(2);
/// After the last probe.
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
const ANNOUNCEMENTS: u32 = 2;
const ANNOUNCE_GAP: Duration = Duration::from_secs(2);
/// Between two claims of others of which only the first is answered.
const DEFEND_GAP: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send this frame.
    Send(Vec<u8>),
    /// The machine with this hardware address has it: give the address up.
    Conflict([u8; 6]),
}

/// Watches one address of one link.
#[derive(Debug)]
pub struct Guard {
    hardware: [u8; 6],
    address: Ipv4Addr,
    random: Rng,
    probes: u32,
    announcements: u32,
    next: Option<Duration>,
    defended: Option<Duration>,
}

impl Guard {
    /// Asks at once, and again.
    #[must_use]
    pub fn new(hardware: [u8; 6], address: Ipv4Addr, seed: u64, now: Duration) -> Self {
        let random = Rng::with_seed(seed);
        Self { hardware, address, random, probes: 0, announcements: 0, next: Some(now), defended: None }
    }

    /// When [`Self::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.next
    }

    /// Answers what is to be sent by now.
    pub fn tick(&mut self, now: Duration) -> Option<Vec<u8>> {
        self.next.filter(|next| *next <= now)?;
        if self.probes < PROBES {
            self.probes += 1;
            let gap = LEAST_PROBE_GAP + (MOST_PROBE_GAP - LEAST_PROBE_GAP).mul_f64(self.random.f64());
            self.next = Some(now + if self.probes == PROBES { ANNOUNCE_WAIT } else { gap });
            return Some(self.request(Ipv4Addr::UNSPECIFIED));
        }
        self.announcements += 1;
        self.next = (self.announcements < ANNOUNCEMENTS).then(|| now + ANNOUNCE_GAP);
        Some(self.request(self.address))
    }

    /// Hears a frame. `is_own` knows the machine's links: another one in the same network answers for this one.
    pub fn hear(&mut self, now: Duration, frame: &[u8], is_own: impl Fn(&[u8; 6]) -> bool) -> Option<Step> {
        let arp = frame::arp(frame)?;
        if arp.hardware == self.hardware || is_own(&arp.hardware) {
            return None;
        }
        let is_asking = self.announcements == 0;
        let probes_too = is_asking && arp.sender.is_unspecified() && arp.target == self.address;
        if arp.sender != self.address && !probes_too {
            return None;
        }
        let was_defended = self.defended.is_some_and(|defended| now < defended + DEFEND_GAP);
        if is_asking || was_defended {
            return Some(Step::Conflict(arp.hardware));
        }
        self.defended = Some(now);
        Some(Step::Send(self.request(self.address)))
    }

    fn request(&self, sender: Ipv4Addr) -> Vec<u8> {
        frame::arp_request(Arp { hardware: self.hardware, sender, target: self.address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

    fn claim(sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
        frame::arp_request(Arp { hardware: OTHER, sender, target })
    }

    /// Runs the questions; answers the senders' addresses and the time.
    fn run(guard: &mut Guard) -> (Vec<Ipv4Addr>, Duration) {
        let (mut sent, mut now) = (Vec::new(), Duration::ZERO);
        while let Some(next) = guard.deadline() {
            assert!(next >= now && next - now <= MOST_PROBE_GAP);
            now = next;
            sent.push(frame::arp(&guard.tick(now).unwrap()).unwrap().sender);
        }
        (sent, now)
    }

    #[test]
    fn an_address_is_asked_for_three_times_and_told_twice() {
        for seed in 0..100 {
            let mut guard = Guard::new(OWN, ADDRESS, seed, Duration::ZERO);
            let (sent, took) = run(&mut guard);
            let none = Ipv4Addr::UNSPECIFIED;
            assert_eq!(sent, [none, none, none, ADDRESS, ADDRESS]);
            assert!((Duration::from_secs(6)..=Duration::from_secs(8)).contains(&took), "{took:?}");
        }
    }

    #[test]
    fn who_has_the_address_already_keeps_it() {
        let no_link = |_: &[u8; 6]| false;
        let now = Duration::ZERO;
        let mut guard = Guard::new(OWN, ADDRESS, 1, now);
        let _ = guard.tick(now);
        let foreign = claim([10, 0, 0, 9].into(), ADDRESS);
        assert_eq!(guard.hear(now, &foreign, no_link), None, "a question for it is no claim");
        let own = frame::arp_request(Arp { hardware: OWN, sender: ADDRESS, target: ADDRESS });
        assert_eq!(guard.hear(now, &own, no_link), None);
        let there = claim(ADDRESS, ADDRESS);
        assert_eq!(
            guard.hear(now, &there, |hardware| *hardware == OTHER),
            None,
            "another card of this machine"
        );
        assert_eq!(guard.hear(now, &there, no_link), Some(Step::Conflict(OTHER)));
        let probe = claim(Ipv4Addr::UNSPECIFIED, ADDRESS);
        assert_eq!(guard.hear(now, &probe, no_link), Some(Step::Conflict(OTHER)), "two ask at once");
    }

    #[test]
    fn an_address_in_use_is_defended_once() {
        let no_link = |_: &[u8; 6]| false;
        let mut guard = Guard::new(OWN, ADDRESS, 1, Duration::ZERO);
        let (_, now) = run(&mut guard);
        let there = claim(ADDRESS, ADDRESS);
        assert_eq!(
            guard.hear(now, &claim(Ipv4Addr::UNSPECIFIED, ADDRESS), no_link),
            None,
            "the kernel answers probes"
        );
        let Some(Step::Send(answer)) = guard.hear(now, &there, no_link) else { panic!() };
        assert_eq!(frame::arp(&answer).unwrap().sender, ADDRESS);
        assert!(matches!(guard.hear(now + DEFEND_GAP, &there, no_link), Some(Step::Send(_))));
        let soon = now + DEFEND_GAP + Duration::from_secs(9);
        assert_eq!(guard.hear(soon, &there, no_link), Some(Step::Conflict(OTHER)));
    }
}
