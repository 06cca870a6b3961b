//! One question and its repeats.
//!
//! Owns: the waits between transmissions, their end, and the limit on all that a client sends.
//! Source: RFC 8415 §7.6 (times), §14.1 (rate limit), §15 (retransmission), §16.1 (transaction IDs).

use std::time::Duration;

use fastrand::Rng;

const SECOND: Duration = Duration::from_secs(1);
/// Messages that can be sent at once, and a second for each further one.
const BURST: u32 = 20;
/// Transaction IDs have three bytes.
const XID_BITS: u32 = 24;
/// A wait is up to a tenth shorter or longer.
const SPREAD: u32 = 10;

/// How often and how long a question is asked. A limit of `None` is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// IRT.
    pub(crate) first: Duration,
    /// MRT.
    pub(crate) longest: Option<Duration>,
    /// MRC, in transmissions.
    pub(crate) count: Option<u32>,
    /// MRD, since the first transmission.
    pub(crate) duration: Option<Duration>,
    /// The first wait is never shorter than IRT: answers are collected for that time.
    pub(crate) collects: bool,
}

/// The times of RFC 8415 §7.6, in seconds. SOLICIT and INFORMATION-REQUEST have a longest wait that servers can change.
pub(crate) const SOLICIT: Plan = Plan { collects: true, ..plan(1, 3600) };
pub(crate) const REQUEST: Plan = Plan { count: Some(10), ..plan(1, 30) };
pub(crate) const CONFIRM: Plan = Plan { duration: Some(Duration::from_secs(10)), ..plan(1, 4) };
pub(crate) const RENEW: Plan = plan(10, 600);
pub(crate) const REBIND: Plan = plan(10, 600);
pub(crate) const RELEASE: Plan = Plan { longest: None, count: Some(4), ..plan(1, 0) };
pub(crate) const DECLINE: Plan = RELEASE;
pub(crate) const INFORM: Plan = plan(1, 3600);

const fn plan(first: u64, longest: u64) -> Plan {
    let longest = Some(Duration::from_secs(longest));
    Plan { first: Duration::from_secs(first), longest, count: None, duration: None, collects: false }
}

/// Transmissions of one number.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) xid: u32,
    pub(crate) plan: Plan,
    /// Of the first transmission.
    began: Option<Duration>,
    /// When the next transmission is due.
    next: Duration,
    /// RT.
    wait: Duration,
    pub(crate) sent: u32,
}

impl Exchange {
    /// One whose first transmission is due at `next`.
    pub(crate) fn new(plan: Plan, next: Duration, random: &mut Rng) -> Self {
        let xid = random.u32(..) >> (u32::BITS - XID_BITS);
        Self { xid, plan, began: None, next, wait: Duration::ZERO, sent: 0 }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.end().map_or(self.next, |end| end.min(self.next))
    }

    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.next <= now
    }

    /// The exchange failed: all transmissions were made, or its time is over.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        let is_last = self.plan.count.is_some_and(|count| self.sent >= count);
        (is_last && self.is_due(now)) || self.end().is_some_and(|end| end <= now)
    }

    /// Hundredths of a second since the first transmission, for the option.
    pub(crate) fn elapsed(&self, now: Duration) -> u16 {
        let elapsed = now.saturating_sub(self.began.unwrap_or(now));
        u16::try_from(elapsed.as_millis() / 10).unwrap_or(u16::MAX)
    }

    /// Notes a transmission, and when the next one is due.
    pub(crate) fn sent(&mut self, now: Duration, random: &mut Rng) {
        let least = Duration::from_millis(1);
        // Of twice the last wait only one part is spread: RT = 2*RTprev + RAND*RTprev.
        let wait = match self.sent {
            0 if self.plan.collects => {
                self.plan.first
                    + least
                    + ((self.plan.first / SPREAD).saturating_sub(least)).mul_f64(random.f64())
            }
            0 => spread(self.plan.first, random),
            _ => self.wait + spread(self.wait, random),
        };
        self.wait = match self.plan.longest {
            Some(longest) if wait > longest => spread(longest, random),
            _ => wait,
        };
        self.began.get_or_insert(now);
        self.next = now + self.wait;
        self.sent = self.sent.saturating_add(1);
    }

    fn end(&self) -> Option<Duration> {
        Some(self.began? + self.plan.duration?)
    }
}

/// Up to a tenth more or less.
fn spread(wait: Duration, random: &mut Rng) -> Duration {
    wait - wait / SPREAD + (wait / SPREAD * 2).mul_f64(random.f64())
}

/// The limit on what is sent: a bucket of [`BURST`] messages, filled up by one a second.
#[derive(Debug)]
pub(crate) struct Rate {
    left: u32,
    /// Until when the bucket was filled up.
    at: Duration,
}

impl Rate {
    pub(crate) fn new() -> Self {
        Self { left: BURST, at: Duration::ZERO }
    }

    /// Whether a message can be sent now. One that cannot is like one that the network lost.
    pub(crate) fn allows(&mut self, now: Duration) -> bool {
        let seconds = now.saturating_sub(self.at).as_secs();
        self.left = u32::try_from(seconds).unwrap_or(BURST).saturating_add(self.left).min(BURST);
        self.at += SECOND.saturating_mul(u32::try_from(seconds).unwrap_or(u32::MAX));
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(plan: Plan, seed: u64, most: usize) -> Vec<Duration> {
        let mut random = Rng::with_seed(seed);
        let mut now = Duration::from_secs(5);
        let mut exchange = Exchange::new(plan, now, &mut random);
        let mut waits = Vec::new();
        while waits.len() < most && !exchange.is_over(now) {
            if exchange.is_due(now) {
                exchange.sent(now, &mut random);
            }
            waits.push(exchange.deadline() - now);
            now = exchange.deadline();
        }
        waits
    }

    /// Waits in milliseconds without the spread; the spread adds up to 10 %, and more with each doubling of a spread value.
    #[test]
    fn waits_double_up_to_the_longest() {
        for seed in 0..200 {
            let solicit = waits(SOLICIT, seed, 20);
            assert!(solicit[0] > SECOND && solicit[0] <= SECOND + SECOND / 10, "seed {seed}: {solicit:?}");
            for pair in solicit.windows(2) {
                let is_longest = pair[1] >= Duration::from_secs(3240) && pair[1] <= Duration::from_secs(3960);
                let least = pair[0] * 19 / 10;
                let doubles = pair[1] >= least && pair[1] <= pair[0] * 21 / 10 + Duration::from_millis(1);
                assert!(doubles || is_longest, "seed {seed}: {pair:?}");
            }
            let request = waits(REQUEST, seed, 100);
            assert_eq!(request.len(), 10, "seed {seed}");
            assert!(request.iter().all(|wait| *wait <= Duration::from_secs(33)));
            assert_eq!(waits(RELEASE, seed, 100).len(), 4);
            let confirm: Duration = waits(CONFIRM, seed, 100).iter().sum();
            assert_eq!(confirm, Duration::from_secs(10), "seed {seed}");
        }
    }

    #[test]
    fn a_number_has_three_bytes() {
        let mut random = Rng::with_seed(7);
        let numbers: Vec<u32> =
            (0..1000).map(|_| Exchange::new(RENEW, Duration::ZERO, &mut random).xid).collect();
        assert!(numbers.iter().all(|number| *number < 1 << 24));
        assert!(numbers.iter().any(|number| *number > 1 << 23));
    }

    #[test]
    fn a_burst_is_limited() {
        let mut rate = Rate::new();
        let now = Duration::from_secs(1000);
        assert_eq!((0..100).filter(|_| rate.allows(now)).count(), 20);
        assert_eq!((0..100).filter(|_| rate.allows(now + SECOND * 3)).count(), 3);
        let slow = (0..50).filter(|half| rate.allows(now + SECOND * 4 + SECOND / 2 * *half));
        assert_eq!(slow.count(), 25, "one a second");
    }

    #[test]
    fn elapsed_time_is_in_hundredths_and_does_not_run_over() {
        let mut random = Rng::with_seed(1);
        let mut exchange = Exchange::new(SOLICIT, SECOND, &mut random);
        assert_eq!(exchange.elapsed(SECOND * 9), 0, "before the first transmission");
        exchange.sent(SECOND, &mut random);
        assert_eq!(exchange.elapsed(SECOND * 3), 200);
        assert_eq!(exchange.elapsed(SECOND * 9999), u16::MAX);
    }
}
