//! Lines of the kernel's log that wait for their write.
//!
//! Owns: how many may wait; which are left out when there are more: the oldest, as the newest lead to the end.

use std::collections::VecDeque;
use std::time::Duration;

use ondisk::kmsg::Record;
use ondisk::recorder::PAYLOAD_BYTES;

use super::pace::SLOTS_A_PAGE;

/// Half of the ring.
const MOST_BYTES: usize = 256 << 10;
/// Beside its text a line takes this much of a slot.
const LINE_BYTES: usize = 8;
/// A warning.
const URGENT: u16 = 4;
/// daemon.warning
const LEFT_OUT: u16 = 28;

/// A line that owns its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    prefix: u16,
    sequence: u64,
    stamp_us: u64,
    text: String,
}

impl Line {
    /// As the ring wants it.
    pub(super) fn record(&self) -> Record<'_> {
        let Self { prefix, sequence, stamp_us, text } = self;
        Record { prefix: *prefix, sequence: *sequence, stamp_us: *stamp_us, text }
    }
}

/// Lines in their order.
#[derive(Debug)]
pub(super) struct Queue {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Since when the oldest waits.
    since: Option<Duration>,
    urgent: bool,
    lost: u64,
    /// The record that is expected next.
    next: u64,
}

impl Queue {
    /// An empty queue for records from this sequence number on.
    pub(super) fn new(next: u64) -> Self {
        Self { lines: VecDeque::new(), bytes: 0, since: None, urgent: false, lost: 0, next }
    }

    /// Adds what the kernel said. Records that are on the disk already are none.
    pub(super) fn push(&mut self, record: &Record<'_>, now: Duration) {
        if record.sequence < self.next {
            return;
        }
        // The kernel's own ring went over some. Before the first one there were none.
        self.lost += if self.next == 0 { 0 } else { record.sequence - self.next };
        self.next = record.sequence + 1;
        self.urgent |= record.priority() <= URGENT;
        self.since.get_or_insert(now);
        let Record { prefix, sequence, stamp_us, text } = *record;
        self.bytes += LINE_BYTES + text.len();
        self.lines.push_back(Line { prefix, sequence, stamp_us, text: text.to_owned() });
        self.shorten(MOST_BYTES);
    }

    /// Since when lines wait.
    pub(super) fn first(&self) -> Option<Duration> {
        self.since
    }

    /// Whether one of them is a warning or worse.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Empties the queue; of more than fits into so many pages the newest.
    pub(super) fn take(&mut self, pages: u64) -> Vec<Line> {
        let slots = usize::try_from(pages.saturating_mul(SLOTS_A_PAGE)).unwrap_or(usize::MAX);
        // Lines do not fill a slot to the end: a fifth stays free.
        self.shorten(slots.saturating_mul(PAYLOAD_BYTES) / 5 * 4);
        let mut lines: Vec<Line> = Vec::with_capacity(self.lines.len() + 1);
        if let (1.., Some(first)) = (self.lost, self.lines.front()) {
            let text = format!("billet: flight recorder: {} lines before this one are left out", self.lost);
            let (sequence, stamp_us) = (first.sequence.saturating_sub(1), first.stamp_us);
            lines.push(Line { prefix: LEFT_OUT, sequence, stamp_us, text });
        }
        lines.extend(self.lines.drain(..));
        (self.bytes, self.since, self.urgent, self.lost) = (0, None, false, 0);
        lines
    }

    /// Leaves the oldest out; never the newest.
    fn shorten(&mut self, most_bytes: usize) {
        while self.bytes > most_bytes && self.lines.len() > 1 {
            let oldest = self.lines.pop_front().map_or(0, |line| LINE_BYTES + line.text.len());
            self.bytes = self.bytes.saturating_sub(oldest);
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u64, prefix: u16, text: &str) -> Record<'_> {
        Record { prefix, sequence, stamp_us: sequence, text }
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn recorded_lines_are_skipped_and_gaps_are_told() {
        let mut queue = Queue::new(5);
        let second = Duration::from_secs(1);
        queue.push(&record(4, 6, "recorded"), second);
        assert_eq!(queue.first(), None);
        queue.push(&record(5, 6, "five"), second);
        queue.push(&record(9, 4, "nine"), second * 2);
        assert_eq!((queue.first(), queue.is_urgent()), (Some(second), true));
        let lines = queue.take(10);
        assert_eq!(
            texts(&lines),
            ["billet: flight recorder: 3 lines before this one are left out", "five", "nine"]
        );
        assert_eq!((queue.first(), queue.is_urgent()), (None, false));
    }

    #[test]
    fn of_too_many_the_newest_are_kept() {
        let mut queue = Queue::new(0);
        let text = "x".repeat(92);
        (3..10_003).for_each(|sequence| queue.push(&record(sequence, 6, &text), Duration::ZERO));
        assert!(queue.bytes <= MOST_BYTES);
        let lines = queue.take(1);
        // 8 slots of 452 bytes, four fifths of them, 100 bytes a line.
        assert_eq!(lines.len(), 1 + 28);
        assert_eq!(lines.last().map(|line| line.sequence), Some(10_002));
        assert!(lines[0].text.contains(" 9972 lines"), "{}", lines[0].text);
    }
}
