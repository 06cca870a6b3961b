//! Numbers that spread machines over time. No secret depends on them.

use std::time::Duration;

/// Source: G. Steele, D. Lea, C. Flood: Fast splittable pseudorandom number generators (`SplitMix64`).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn number(&mut self) -> u32 {
        u32::try_from(self.next() >> 32).unwrap_or_default()
    }

    /// Up to `most`, in milliseconds.
    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.next() % most.saturating_add(1).max(1))
    }
}
