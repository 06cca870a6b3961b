//! What to do about an offset, and when to ask again. Pure.
//!
//! Source: docs/users/time.md (64 s to 1024 s, steps above 128 ms).

use std::time::Duration;

/// Offsets above this are set at once, smaller ones are worked off.
const STEP_NS: u64 = 128_000_000;
/// A clock that was right and is now further off than this is set only when the next round says so too.
const DOUBT_NS: u64 = 1_000_000_000_000;
/// An offset below this lets the next round wait longer.
const GOOD_NS: u64 = 20_000_000;
/// Exponents of two of the shortest and longest pause, in seconds.
const SHORTEST: u8 = 6;
const LONGEST: u8 = 10;
/// Pause before a doubtful offset is looked at again.
const DOUBT_PAUSE: Duration = Duration::from_secs(16);
/// First pause after a round that gave no time; doubled up to the shortest regular one.
const RETRY: Duration = Duration::from_secs(1);

/// What is done about an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Correction {
    /// Set the clock.
    Step,
    /// Hand it to the kernel's loop with this time constant.
    Slew { constant: u8 },
    /// Nothing yet.
    Doubt,
}

/// The state between rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Discipline {
    exponent: u8,
    synced: bool,
    doubted_ns: Option<i64>,
    failures: u32,
}

impl Discipline {
    pub(super) fn new() -> Self {
        Self { exponent: SHORTEST, synced: false, doubted_ns: None, failures: 0 }
    }

    /// Whether the clock was right once.
    pub(super) fn synced(&self) -> bool {
        self.synced
    }

    /// A round ended with this offset.
    pub(super) fn offset(&mut self, offset_ns: i64) -> Correction {
        self.failures = 0;
        let size = offset_ns.unsigned_abs();
        let confirmed = self.doubted_ns.is_some_and(|before| before.abs_diff(offset_ns) < DOUBT_NS / 10);
        if self.synced && size > DOUBT_NS && !confirmed {
            self.doubted_ns = Some(offset_ns);
            return Correction::Doubt;
        }
        self.doubted_ns = None;
        let first = !std::mem::replace(&mut self.synced, true);
        if size > STEP_NS {
            self.exponent = SHORTEST;
            return Correction::Step;
        }
        // The loop's constant is that of the pause which just ended.
        let constant = self.exponent.saturating_sub(5);
        if size > GOOD_NS {
            self.exponent = self.exponent.saturating_sub(1).max(SHORTEST);
        } else if !first {
            self.exponent = (self.exponent + 1).min(LONGEST);
        }
        Correction::Slew { constant }
    }

    /// A round gave no time.
    pub(super) fn failed(&mut self) {
        self.failures += 1;
    }

    /// How long to wait for the next round; `random` spreads the nodes of a cluster over a tenth of it.
    pub(super) fn pause(&self, random: u8) -> Duration {
        let regular = Duration::from_secs(1 << self.exponent);
        let pause = match (self.doubted_ns, self.failures) {
            (Some(_), _) => DOUBT_PAUSE,
            (None, 0) => regular,
            (None, failures) => {
                (RETRY * (1 << (failures - 1).min(10))).min(Duration::from_secs(1 << SHORTEST))
            }
        };
        pause + pause / 10 * u32::from(random) / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn the_first_time_is_taken_whatever_it_is() {
        for offset in [30 * 365 * 86_400 * S, -7200 * S, S] {
            assert_eq!(Discipline::new().offset(offset), Correction::Step);
        }
        assert_eq!(Discipline::new().offset(S / 10), Correction::Slew { constant: 1 });
    }

    #[test]
    fn a_clock_that_was_right_does_not_jump_on_one_word() {
        let mut discipline = Discipline::new();
        discipline.offset(0);
        assert_eq!(discipline.offset(86_400 * S), Correction::Doubt);
        assert_eq!(discipline.pause(0), DOUBT_PAUSE);
        assert_eq!(discipline.offset(-500_000 * S), Correction::Doubt);
        assert_eq!(discipline.offset(-500_001 * S), Correction::Step);
        assert_eq!(discipline.offset(2 * S), Correction::Step);
    }

    #[test]
    fn pauses_grow_while_all_is_well_and_shrink_with_the_offset() {
        let mut discipline = Discipline::new();
        let pauses: Vec<u64> = (0..7)
            .map(|_| {
                discipline.offset(0);
                discipline.pause(0).as_secs()
            })
            .collect();
        assert_eq!(pauses, [64, 128, 256, 512, 1024, 1024, 1024]);
        discipline.offset(S / 20);
        assert_eq!(discipline.pause(0).as_secs(), 512);
        discipline.offset(S);
        assert_eq!(discipline.pause(0).as_secs(), 64);
        assert!(discipline.pause(255) > discipline.pause(0));
    }

    #[test]
    fn failures_are_tried_again_ever_more_slowly() {
        let mut discipline = Discipline::new();
        let pauses: Vec<u64> = (0..9)
            .map(|_| {
                discipline.failed();
                discipline.pause(0).as_secs()
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert!(!discipline.synced());
    }
}
