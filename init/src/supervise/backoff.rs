//! Pauses between starts of machined, and when to stop starting it.
//!
//! Owns: how long init waits before the next start, and how many crashes end a boot.
//! Order: what somebody killed is started again at once; what crashed is waited for longer each time. A boot whose
//! machined was never steady ends after [`MOST_CRASHES`]: a new system that cannot run must not stay. Once machined was
//! steady, the node's containers may depend on this boot, so it is started for as long as it takes.

const MS: u64 = 1_000_000;

/// Wait after the second end in a row.
const FIRST_NS: u64 = 250 * MS;
/// No wait is longer.
const LONGEST_NS: u64 = 10_000 * MS;

/// A machined that was ready for this long is steady.
pub const STEADY_NS: u64 = 30_000 * MS;

/// So many crashes in a row end a boot: about 26 s of waits.
pub const MOST_CRASHES: u32 = 8;

/// What the end of a machined says about the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It had run well for [`STEADY_NS`].
    Steady,
    /// It was ready, and somebody else than init killed it.
    Killed,
    /// It was killed before it was ready.
    KilledEarly,
    /// It ended by itself, or init had to end it.
    Crashed,
}

/// When machined is started again.
#[derive(Debug, Default)]
pub struct Backoff {
    next_ns: u64,
    crashes: u32,
    was_steady: bool,
}

impl Backoff {
    /// machined ended; the wait before the next start: nothing at first, then 250 ms, doubling to 10 s.
    pub fn ended(&mut self, end: End) -> u64 {
        match end {
            End::Steady => *self = Self { was_steady: true, ..Self::default() },
            End::Killed => self.next_ns = 0,
            End::KilledEarly => {}
            End::Crashed => self.crashes = self.crashes.saturating_add(1),
        }
        self.wait_ns()
    }

    /// The wait after a start that failed.
    pub fn wait_ns(&mut self) -> u64 {
        let wait = self.next_ns;
        self.next_ns = (wait * 2).clamp(FIRST_NS, LONGEST_NS);
        wait
    }

    /// Whether starting it again in this boot is in vain.
    pub fn is_hopeless(&self) -> bool {
        !self.was_steady && self.crashes >= MOST_CRASHES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_ten_seconds_and_start_over() {
        let mut backoff = Backoff::default();
        let waits: [u64; 9] = core::array::from_fn(|_| backoff.ended(End::KilledEarly) / MS);
        assert_eq!(waits, [0, 250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!((backoff.ended(End::Killed), backoff.is_hopeless()), (0, false));
        assert_eq!(backoff.ended(End::Crashed), FIRST_NS);
        assert_eq!(backoff.ended(End::Steady), 0);
    }

    #[test]
    fn crashes_of_a_machined_that_was_never_steady_end_the_boot() {
        let mut backoff = Backoff::default();
        for crash in 1..=MOST_CRASHES {
            assert!(!backoff.is_hopeless());
            // Being killed in between proves nothing.
            backoff.ended(End::Killed);
            backoff.ended(End::Crashed);
            assert_eq!(backoff.is_hopeless(), crash == MOST_CRASHES);
        }
        backoff.ended(End::Steady);
        for _ in 0..2 * MOST_CRASHES {
            backoff.ended(End::Crashed);
        }
        assert!(!backoff.is_hopeless());
    }
}
