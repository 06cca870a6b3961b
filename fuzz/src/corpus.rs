//! Inputs worth changing further: each did something that none before it did.
//!
//! Owns: what counts as new. Two kinds of feedback: shapes of answers, always; and counters of the code that ran, when
//! the program was compiled with them.

use crate::Random;
use std::collections::HashSet;
use sys::coverage;

/// What was seen, and the inputs that showed it first.
pub(crate) struct Corpus {
    inputs: Vec<Vec<u8>>,
    shapes: HashSet<String>,
    /// For each counter, the classes of counts that occurred, one bit a class.
    classes: Vec<u8>,
}

impl Corpus {
    pub(crate) fn new() -> Self {
        Self { inputs: Vec::new(), shapes: HashSet::new(), classes: vec![0; coverage::counters()] }
    }

    /// Counts from here on belong to the next input.
    pub(crate) fn forget_counts() {
        coverage::take(|_, _| {});
    }

    /// Keeps `input` if it did something new.
    pub(crate) fn offer(&mut self, input: &[u8], shapes: Vec<String>) -> bool {
        let mut is_new = false;
        for shape in shapes {
            is_new |= self.shapes.insert(shape);
        }
        coverage::take(|index, count| {
            if let Some(classes) = self.classes.get_mut(index) {
                let class = class(count);
                is_new |= *classes & class == 0;
                *classes |= class;
            }
        });
        if is_new || self.inputs.is_empty() {
            self.inputs.push(input.to_vec());
        }
        is_new
    }

    /// An input to change; the newest ones come up more often.
    pub(crate) fn pick(&self, random: &mut Random) -> &[u8] {
        let count = self.inputs.len();
        let newest = (count / 8).max(1);
        let index = if random.below(3) == 0 { count - 1 - random.below(newest) } else { random.below(count) };
        &self.inputs[index]
    }

    pub(crate) fn len(&self) -> usize {
        self.inputs.len()
    }

    pub(crate) fn shapes(&self) -> usize {
        self.shapes.len()
    }

    /// Counters that were ever above 0.
    pub(crate) fn reached(&self) -> usize {
        self.classes.iter().filter(|classes| **classes != 0).count()
    }
}

/// One bit for once, twice, three times, 4 to 7, 8 to 15, 16 to 31, 32 to 127, and more.
fn class(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_nothing_new_is_not_kept() {
        let mut corpus = Corpus::new();
        assert!(corpus.offer(b"a", vec!["one".to_owned()]));
        assert!(!corpus.offer(b"b", vec!["one".to_owned()]));
        assert!(corpus.offer(b"c", vec!["one".to_owned(), "two".to_owned()]));
        assert_eq!((corpus.len(), corpus.shapes()), (2, 2));
    }
}
