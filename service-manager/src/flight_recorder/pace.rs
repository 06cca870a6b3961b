//! How often the flight recorder may write.
//!
//! Owns: the bound on what a noisy log costs a flash disk. A disk writes whole pages, 4 KiB of them for one line of
//! a hundred bytes; a batch of lines that takes *n* slots costs at most *n*/8 + 1 pages and one flush.
//! * Lines are gathered for [`GATHER`], but a warning or worse is written at once.
//! * Never twice within [`INTERVAL`].
//! * Pages come out of a store of [`BURST_PAGES`] (1 MiB), which is filled by one each [`PER_PAGE`]: in the long run
//!   34 MiB a day, whatever the log does. What cannot be written then is left out, the oldest first, and counted.
//!
//! Does not: read a clock; times are since any fixed moment.

use std::time::Duration;

/// Slots in a page.
pub(super) const SLOTS_A_PAGE: u64 = 8;
/// For how long lines wait for others.
const GATHER: Duration = Duration::from_secs(1);
/// Between two writes.
const INTERVAL: Duration = Duration::from_secs(1);
/// The whole ring twice.
const BURST_PAGES: u64 = 256;
/// In the long run.
const PER_PAGE: Duration = Duration::from_secs(10);

/// The right to write.
#[derive(Debug)]
pub(super) struct Pace {
    /// Pages that may be written, as time: [`PER_PAGE`] each.
    credit: Duration,
    /// When that was so.
    at: Duration,
    last_write: Option<Duration>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            credit: PER_PAGE * u32::try_from(BURST_PAGES).unwrap_or(1),
            at: Duration::ZERO,
            last_write: None,
        }
    }
}

impl Pace {
    /// How long lines that wait since `first` have to wait on. Zero: now is the time.
    pub(super) fn wait(&mut self, now: Duration, first: Duration, urgent: bool) -> Duration {
        self.earn(now);
        let gathered = if urgent { first } else { first + GATHER };
        let apart = self.last_write.map_or(Duration::ZERO, |last| last + INTERVAL);
        // A debt is paid first: credit grows from the moment at which that is done.
        let earned = match PER_PAGE.saturating_sub(self.credit) {
            Duration::ZERO => now,
            missing => self.at + missing,
        };
        gathered.max(apart).max(earned).saturating_sub(now)
    }

    /// How many pages the next write may take; at least one when [`Pace::wait`] says now.
    pub(super) fn pages(&self) -> u64 {
        u64::try_from(self.credit.as_millis() / PER_PAGE.as_millis()).unwrap_or(0)
    }

    /// So many were written. A batch that begins within a page takes one more than it was allowed: it is paid later.
    pub(super) fn wrote(&mut self, now: Duration, pages: u64) {
        self.earn(now);
        let price = PER_PAGE * u32::try_from(pages).unwrap_or(u32::MAX);
        let debt = price.saturating_sub(self.credit);
        self.credit = self.credit.saturating_sub(price);
        self.at = now + debt;
        self.last_write = Some(now);
    }

    /// Time is credit; the time of a debt is in the future and earns nothing.
    fn earn(&mut self, now: Duration) {
        let most = PER_PAGE * u32::try_from(BURST_PAGES).unwrap_or(1);
        self.credit = (self.credit + now.saturating_sub(self.at)).min(most);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn lines_are_gathered_and_warnings_are_not() {
        let mut pace = Pace::default();
        let now = Duration::from_secs(100);
        assert_eq!(pace.wait(now, now, false), GATHER);
        assert_eq!(pace.wait(now + 400 * MS, now, false), 600 * MS);
        assert_eq!(pace.wait(now, now, true), Duration::ZERO);
        pace.wrote(now, 1);
        assert_eq!(pace.wait(now + 300 * MS, now + 300 * MS, true), 700 * MS, "not twice a second");
    }

    /// A log that never ends, in warnings: what it costs is bounded.
    #[test]
    fn a_day_of_noise_costs_34_mib() {
        let mut pace = Pace::default();
        let (mut now, mut pages, mut writes) = (Duration::ZERO, 0, 0);
        let day = Duration::from_secs(86_400);
        while now < day {
            match pace.wait(now, now, true) {
                Duration::ZERO => {
                    // As much as it may and the page that it begins within.
                    let taken = pace.pages().min(64) + 1;
                    pace.wrote(now, taken);
                    (pages, writes) = (pages + taken, writes + 1);
                }
                wait => now += wait,
            }
        }
        let most = BURST_PAGES + 8640 + 1;
        assert!((8640..=most + 64).contains(&pages), "{pages} pages in {writes} writes");
        assert!(pages * 4096 < 35 << 20);
    }

    #[test]
    fn quiet_time_fills_the_store_and_no_more() {
        let mut pace = Pace::default();
        pace.wrote(Duration::ZERO, BURST_PAGES + 3);
        assert_eq!(pace.pages(), 0);
        assert_eq!(
            pace.wait(Duration::from_secs(2), Duration::ZERO, true),
            Duration::from_secs(38),
            "a debt is paid first"
        );
        pace.wait(Duration::from_secs(1_000_000), Duration::ZERO, true);
        assert_eq!(pace.pages(), BURST_PAGES);
    }
}
