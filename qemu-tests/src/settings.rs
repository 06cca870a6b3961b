//! How long and how random a test run is.
//!
//! Owns: `BILLET_LONG=1` (the counts of a long run) and `BILLET_SEED` (the choices of a random test).

/// The seed of a run that names none: the same bits are flipped in every short run.
const DEFAULT_SEED: u64 = 1;

/// The long count with `BILLET_LONG=1`, else the short one.
pub fn rounds(short: u32, long: u32) -> u32 {
    if std::env::var("BILLET_LONG").is_ok_and(|value| value == "1") { long } else { short }
}

/// `BILLET_SEED`, or the default.
pub fn seed() -> u64 {
    std::env::var("BILLET_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_SEED)
}

/// A small generator of random numbers (splitmix64): the same seed gives the same numbers everywhere.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % u64::try_from(bound).unwrap_or(u64::MAX)).unwrap_or(0)
    }

    /// A mask with exactly one bit.
    pub fn bit(&mut self) -> u8 {
        1 << (self.number() % 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.number(), random.number()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        // First output of the published generator for seed 0.
        assert_eq!(Random::new(0).number(), 0xe220_a839_7b1d_cdaf);
    }
}
