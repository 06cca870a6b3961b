//! Lines on their way to a receiver: bounded, the oldest gives way.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Most bytes that wait for a receiver: as many as a log file keeps.
const MOST_BYTES: usize = 1 << 20;

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines dropped in all.
    dropped: u64,
    /// Of these, the ones that the receiver was not told of.
    untold: u64,
}

/// A queue with one end for a source and one for a sender.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line; never waits.
    pub(super) fn push(&self, line: Vec<u8>) {
        let mut waiting = self.waiting();
        waiting.bytes += line.len();
        waiting.lines.push_back(line);
        while waiting.bytes > MOST_BYTES && waiting.lines.len() > 1 {
            let oldest = waiting.lines.pop_front().map_or(0, |line| line.len());
            waiting.bytes -= oldest;
            waiting.dropped += 1;
            waiting.untold += 1;
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// Counts lines that were lost before they came here.
    pub(super) fn lost(&self, lines: u64) {
        let mut waiting = self.waiting();
        waiting.dropped += lines;
        waiting.untold += lines;
    }

    /// Waits for the oldest line, and leaves it here: it is gone only when [`Self::done`] says so.
    pub(super) async fn oldest(&self) -> Vec<u8> {
        loop {
            if let Some(line) = self.waiting().lines.front() {
                return line.clone();
            }
            self.filled.notified().await;
        }
    }

    /// The line was handed over. It may have given way meanwhile, then it was counted as dropped: better than not.
    pub(super) fn done(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.lines.front().is_some_and(|front| front == line) {
            waiting.lines.pop_front();
            waiting.bytes -= line.len();
        }
    }

    /// Dropped lines that the receiver does not know of yet.
    pub(super) fn untold(&self) -> u64 {
        self.waiting().untold
    }

    /// The receiver was told of so many.
    pub(super) fn told(&self, lines: u64) {
        let mut waiting = self.waiting();
        waiting.untold = waiting.untold.saturating_sub(lines);
    }

    /// Lines dropped in all.
    pub(super) fn dropped(&self) -> u64 {
        self.waiting().dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_gives_way_and_is_counted() {
        let queue = Queue::default();
        let line = |number: u8| vec![number; MOST_BYTES / 4];
        for number in 0..6 {
            queue.push(line(number));
        }
        assert_eq!((queue.dropped(), queue.untold()), (2, 2));
        let oldest = queue.oldest().await;
        assert_eq!(oldest[0], 2);
        queue.done(&oldest);
        assert_eq!(queue.oldest().await[0], 3);
        queue.told(2);
        queue.lost(5);
        assert_eq!((queue.dropped(), queue.untold()), (7, 5));
    }

    #[tokio::test]
    async fn a_line_larger_than_the_queue_still_passes() {
        let queue = Queue::default();
        queue.push(vec![0; MOST_BYTES * 2]);
        assert_eq!(queue.oldest().await.len(), MOST_BYTES * 2);
    }
}
