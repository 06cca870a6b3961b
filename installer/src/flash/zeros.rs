//! Which zeros of an image have to be on a disk that can make none without writing them.
//!
//! Owns: what counts in a root slot: zeros before the last byte that the image has there, and those at both ends of the
//! slot, where what was there before could be taken for a file system. The rest is behind every layer.
//! Does not: tell holes from zeros that a file holds: tools that copy images turn the one into the other.
//! Order: zeros in a slot wait until it is seen what follows them.
//! Source: docs/decisions/0016-zeros-that-count.md.

use std::ops::Range;

/// What is made zeros at both ends of a slot.
const EDGE_BYTES: u64 = 1 << 20;

/// What was seen of the zeros of an image that is read from the front.
#[derive(Debug, Default)]
pub(super) struct Zeros {
    /// In the order of the bytes, none in another.
    slots: Vec<Range<u64>>,
    /// Zeros in a slot of which it is not known yet what follows them.
    waiting: Option<Range<u64>>,
    /// Bytes that do not count.
    left_bytes: u64,
}

impl Zeros {
    /// With these slots; without any, all zeros count.
    pub(super) fn new(slots: Vec<Range<u64>>) -> Self {
        Self { slots, ..Self::default() }
    }

    /// How many of the zeros so far did not count.
    pub(super) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Zeros follow. Returns those that count, as far as that is known by now.
    pub(super) fn more(&mut self, zeros: Range<u64>) -> Vec<Range<u64>> {
        let mut counting = Vec::new();
        let mut at = zeros.start;
        while at < zeros.end {
            let slot = self.slots.iter().find(|slot| at < slot.end && slot.start < zeros.end).cloned();
            let end = match slot {
                None => zeros.end,
                Some(slot) if at < slot.start => slot.start,
                Some(slot) => {
                    let start = self.waiting.take().map_or(at, |before| before.start);
                    at = slot.end.min(zeros.end);
                    if at < slot.end {
                        self.waiting = Some(start..at);
                    } else {
                        let edges = edges(&slot, start);
                        self.left_bytes += slot.end - start - edges.iter().map(length).sum::<u64>();
                        counting.extend(edges);
                    }
                    continue;
                }
            };
            counting.push(at..end);
            at = end;
        }
        counting
    }

    /// Something else follows, or nothing: what waited counts.
    pub(super) fn end(&mut self) -> Option<Range<u64>> {
        self.waiting.take()
    }
}

/// What counts of the zeros from `start` to the end of a slot.
fn edges(slot: &Range<u64>, start: u64) -> Vec<Range<u64>> {
    let first = (slot.start + EDGE_BYTES).min(slot.end);
    let last = slot.end.saturating_sub(EDGE_BYTES).max(first);
    let mut edges = vec![start..first, start.max(last)..slot.end];
    edges.retain(|edge| edge.start < edge.end);
    edges
}

/// What of these zeros counts.
pub(super) fn counting(zeros: &[Range<u64>], slots: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let (mut seen, mut counting, mut behind) = (Zeros::new(slots), Vec::new(), 0);
    for range in zeros {
        if range.start > behind {
            counting.extend(seen.end());
        }
        counting.extend(seen.more(range.clone()));
        behind = range.end;
    }
    counting.extend(seen.end());
    counting
}

/// How long a range is.
pub(super) fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn ranges(list: &[(u64, u64)]) -> Vec<Range<u64>> {
        list.iter().map(|(start, end)| start * MIB..end * MIB).collect()
    }

    /// Two slots that touch, from 10 to 20 and from 20 to 30.
    fn slots() -> Vec<Range<u64>> {
        ranges(&[(10, 20), (20, 30)])
    }

    #[test]
    fn only_zeros_behind_everything_in_a_slot_do_not_count() {
        for (zeros, wanted) in [
            // Outside.
            (&[(2, 10), (30, 40)][..], &[(2, 10), (30, 40)][..]),
            // Between two things in the slot, and before the first one.
            (&[(10, 12), (14, 18)], &[(10, 12), (14, 18)]),
            // Behind the last thing; an empty slot; both ends are told apart.
            (&[(12, 20)], &[(19, 20)]),
            (&[(20, 30)], &[(20, 21), (29, 30)]),
            // All in one go, and the two slots with what is around them.
            (&[(5, 35)], &[(5, 10), (10, 11), (19, 20), (20, 21), (29, 30), (30, 35)]),
            // Less than both ends.
            (&[(19, 20)], &[(19, 20)]),
            // The image ends within a slot.
            (&[(25, 28)], &[(25, 28)]),
        ] {
            assert_eq!(counting(&ranges(zeros), slots()), ranges(wanted), "{zeros:?}");
        }
        assert_eq!(counting(&ranges(&[(5, 35)]), Vec::new()), ranges(&[(5, 35)]), "no image of ours");
    }

    #[test]
    fn it_does_not_matter_in_how_many_pieces_zeros_come() {
        for pieces in 1..40 {
            let mut seen = Zeros::new(slots());
            let mut found = Vec::new();
            for start in (5 * MIB..35 * MIB).step_by(pieces * (1 << 18)) {
                found.extend(seen.more(start..(start + pieces as u64 * (1 << 18)).min(35 * MIB)));
            }
            assert_eq!(seen.end(), None);
            let bytes: u64 = found.iter().map(length).sum();
            assert_eq!((bytes, seen.left_bytes()), (14 * MIB, 16 * MIB), "{pieces}");
            assert!(found.is_sorted_by(|a, b| a.end <= b.start), "{found:?}");
        }
    }

    #[test]
    fn a_slot_that_is_hardly_more_than_its_ends_is_made_zeros_whole() {
        for bytes in [1, MIB, 2 * MIB - 1, 2 * MIB] {
            let slot = MIB..MIB + bytes;
            let found = counting(std::slice::from_ref(&slot), vec![slot.clone()]);
            assert_eq!(found.iter().map(length).sum::<u64>(), bytes);
        }
    }
}
