//! How often something is done, whoever asks for it.
//!
//! Owns: one rate with a burst; rates for each network card and for all, in bounded memory.
//! Does not: know a clock. Source: the generic cell rate algorithm (ITU-T I.371), as a time at which all is made up for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::mac::Mac;

/// So many at once, and one more for each pause.
#[derive(Debug, Clone)]
pub(crate) struct Rate {
    burst: u32,
    pause: Duration,
    /// When the whole burst is there again.
    rested: Option<Instant>,
}

impl Rate {
    pub(crate) const fn new(burst: u32, pause: Duration) -> Self {
        Self { burst, pause, rested: None }
    }

    /// Whether it may be done once more now.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let from = self.rested.map_or(now, |rested| rested.max(now));
        if from.duration_since(now) > self.pause * self.burst.saturating_sub(1) {
            return false;
        }
        self.rested = Some(from + self.pause);
        true
    }

    fn is_rested(&self, now: Instant) -> bool {
        self.rested.is_none_or(|rested| rested <= now)
    }
}

/// Rates of network cards. Addresses of cards are whatever a sender says, so all together have one as well.
#[derive(Debug)]
pub(crate) struct Rates {
    each: Rate,
    all: Rate,
    cards: BTreeMap<Mac, Rate>,
}

/// Cards that are remembered at once; further ones have the rate of all.
const CARDS: usize = 1024;

impl Rates {
    pub(crate) const fn new(each: Rate, all: Rate) -> Self {
        Self { each, all, cards: BTreeMap::new() }
    }

    /// Whether this card may be answered now.
    pub(crate) fn take(&mut self, mac: Mac, now: Instant) -> bool {
        if self.cards.len() >= CARDS {
            self.cards.retain(|_, rate| !rate.is_rested(now));
        }
        let has_room = self.cards.len() < CARDS;
        let of_card = match self.cards.get_mut(&mac) {
            Some(rate) => rate.take(now),
            None => {
                let mut rate = self.each.clone();
                let taken = rate.take(now);
                if has_room {
                    self.cards.insert(mac, rate);
                }
                taken
            }
        };
        of_card && self.all.take(now)
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.cards.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_and_then_one_for_each_pause() {
        let (mut rate, now) = (Rate::new(3, SECOND), Instant::now());
        let mut taken = |at| (0..5).filter(|_| rate.take(now + at)).count();
        assert_eq!(taken(Duration::ZERO), 3);
        assert_eq!(taken(SECOND), 1);
        assert_eq!(taken(SECOND * 100), 3);
    }

    #[test]
    fn cards_have_a_rate_each_and_all_have_one_in_bounded_memory() {
        let (each, all) = (Rate::new(2, SECOND), Rate::new(3000, SECOND));
        let (mut rates, now) = (Rates::new(each, all), Instant::now());
        let mac = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            Mac([2, 0, a, b, c, d])
        };
        assert_eq!((0..5).filter(|_| rates.take(mac(7), now)).count(), 2);
        // Somebody makes up a card for each request.
        assert_eq!((100..10_000).filter(|number| rates.take(mac(*number), now)).count(), 2998);
        assert_eq!(rates.remembered(), CARDS);
        let later = now + SECOND * 10_000;
        assert!(rates.take(mac(1), later));
        assert_eq!(rates.remembered(), 1, "who rests is forgotten");
    }
}
