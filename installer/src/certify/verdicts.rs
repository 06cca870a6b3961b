//! Verdicts on states, each content checked once: most cuts of an operation leave the same bytes as another one.
//!
//! Owns: what was checked, by content and promises.
//! Does not: outlive a case. Its recordings with a flush left out may share it: they have the same disk before and the
//! same rule.

use std::collections::{HashMap, HashSet};

use super::case::Case;
use super::model::Judge;
use crate::device::{Memory, State};

/// What is on a disk, as far as it differs from another.
type Content = [u64; 2];

/// The judge of a case, and what it said.
pub struct Verdicts {
    judge: Judge,
    said: HashMap<(Content, Vec<String>), Result<(), String>>,
}

impl Verdicts {
    /// Nothing was checked yet.
    #[must_use]
    pub fn new(case: &Case) -> Self {
        Self { judge: case.judge(), said: HashMap::new() }
    }

    /// Whether a state of this case keeps its rule.
    pub fn of(&mut self, case: &Case, state: &mut State<'_>) -> Result<(), String> {
        let promises = state.promises.iter().map(|promise| (*promise).to_owned()).collect();
        let content = content(&state.disk, &case.recording.before);
        let verdict = self.said.entry((content, promises));
        verdict.or_insert_with(|| case.check(&mut self.judge, state)).clone()
    }

    /// How many different contents were checked.
    #[must_use]
    pub fn different(&self) -> usize {
        self.said.keys().map(|(content, _)| content).collect::<HashSet<_>>().len()
    }
}

/// Two sums of all words, each with a multiplier of its own: contents that nobody chose to collide do not.
fn content(disk: &Memory, before: &Memory) -> Content {
    // 2^64 divided by the golden ratio, and the first multiplier of splitmix64: both spread every bit over the upper
    // ones, which the rotation brings down.
    const MULTIPLIERS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9];
    let mut sums = [0; 2];
    let mut take = |word: u64| {
        for (sum, multiplier) in sums.iter_mut().zip(MULTIPLIERS) {
            *sum = (*sum ^ word).wrapping_mul(multiplier).rotate_left(29);
        }
    };
    for (offset, block) in disk.blocks_unlike(before) {
        take(offset);
        block.as_chunks().0.iter().for_each(|word| take(u64::from_le_bytes(*word)));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BlockDevice as _;

    #[test]
    fn a_content_is_its_bytes_and_where_they_lie() {
        let before = Memory::new(1 << 20, 512);
        let with = |at: u64, bytes: &[u8]| {
            let mut disk = before.clone();
            disk.write_at(at, bytes).unwrap();
            content(&disk, &before)
        };
        assert_eq!(with(4096, b"one"), with(4096, b"one"));
        assert_eq!(with(4096, &[0; 512]), content(&before, &before));
        let others = [with(4096, b"two"), with(8192, b"one"), with(4608, b"one"), with(4096, b"one\x01")];
        assert!(!others.contains(&with(4096, b"one")));
    }
}
