//! How much of an image is done: what is told while it is written and while it is read back.
//!
//! Owns: which bytes count: those that take time. Of a raw image all but the holes that the disk makes zeros by itself, or
//! that are left alone; of a packed one all, since each is unpacked.

use std::ops::Range;

use super::zeros::length;
use crate::Progress;

/// The progress of one step.
pub(super) struct Meter {
    step: &'static str,
    /// What takes no time, in the order of the bytes.
    free: Vec<Range<u64>>,
    /// How many of these the place that was told last is behind of, and how many bytes they have.
    passed: (usize, u64),
    done_bytes: u64,
    total_bytes: u64,
}

impl Meter {
    /// For an image of so many bytes with these holes, of which some have to be written.
    pub(super) fn new(step: &'static str, bytes: u64, holes: &[Range<u64>], written: &[Range<u64>]) -> Self {
        let free = without(holes, written);
        let total_bytes = bytes.saturating_sub(free.iter().map(length).sum());
        Self { step, free, passed: (0, 0), done_bytes: 0, total_bytes }
    }

    /// Everything before this place is done.
    pub(super) fn tell(&mut self, at: u64, progress: &mut dyn FnMut(Progress)) {
        let (mut count, mut bytes) = self.passed;
        while let Some(range) = self.free.get(count).filter(|range| range.end <= at) {
            bytes += length(range);
            count += 1;
        }
        self.passed = (count, bytes);
        let within = self.free.get(count).map_or(0, |range| at.saturating_sub(range.start));
        // Zeros that had to wait for what follows them come after a place was told.
        self.done_bytes = self.done_bytes.max(at.saturating_sub(bytes + within)).min(self.total_bytes);
        self.say(progress);
    }

    /// All of it, also what is written with the table.
    pub(super) fn end(&mut self, progress: &mut dyn FnMut(Progress)) {
        self.done_bytes = self.total_bytes;
        self.say(progress);
    }

    fn say(&self, progress: &mut dyn FnMut(Progress)) {
        let Self { step, done_bytes, total_bytes, .. } = *self;
        progress(Progress { step, done_bytes, total_bytes });
    }
}

/// What is in one list and not in the other; both are in the order of the bytes.
fn without(list: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for range in list {
        let mut at = range.start;
        let first = other.partition_point(|other| other.end <= range.start);
        for taken in other.iter().skip(first).take_while(|taken| taken.start < range.end) {
            left.push(at..taken.start);
            at = taken.end;
        }
        left.push(at..range.end);
    }
    left.retain(|range| range.start < range.end);
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_out_of_ranges() {
        let list = [0..10, 20..30, 40..50];
        assert_eq!(without(&list, &[]), list);
        assert_eq!(without(&list, &[0..10, 22..24, 28..45]), [20..22, 24..28, 45..50]);
        assert_eq!(without(&list, &[0..5, 5..60]), []);
    }

    #[test]
    fn what_takes_no_time_does_not_count() {
        let (holes, written) = ([10..50, 60..100], [40..45, 45..50]);
        let mut meter = Meter::new("write", 100, &holes, &written);
        let mut told = Vec::new();
        for at in [5, 10, 30, 40, 45, 50, 55, 50, 80, 100] {
            meter.tell(at, &mut |progress| told.push((progress.done_bytes, progress.total_bytes)));
        }
        let wanted = [5, 10, 10, 10, 15, 20, 25, 25, 30, 30].map(|done| (done, 30));
        assert_eq!(told, wanted);
        let mut packed = Meter::new("write", 100, &[], &[]);
        packed.tell(70, &mut |progress| assert_eq!((progress.done_bytes, progress.total_bytes), (70, 100)));
    }
}
