//! Numbers that a seed repeats.

use ondisk::Digest;

/// A sequence of numbers: the same seed gives the same ones everywhere.
#[derive(Debug, Clone)]
pub struct Numbers {
    seed: u64,
    count: u64,
}

impl Numbers {
    /// Starts from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, count: 0 }
    }

    /// The next number, below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.count += 1;
        let digest = Digest::sha256(&[&self.seed.to_le_bytes(), &self.count.to_le_bytes()]);
        let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h]) % end
    }

    /// So many bytes that do not repeat.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut state = self.below(u64::MAX) | 1;
        let next = move || {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        let mut bytes: Vec<u8> = std::iter::repeat_with(next).take(count.div_ceil(8)).flatten().collect();
        bytes.truncate(count);
        bytes
    }
}
