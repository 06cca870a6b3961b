//! The exit table.
//!
//! Owns: exits that machined has not acknowledged, in a table of fixed size; what does not fit is counted.

use alloc::vec::Vec;

use handoff::{Exit, MAX_EXITS};

use crate::kernel::Ended;

/// Unread exits, oldest first.
#[derive(Debug)]
pub struct Exits {
    entries: Vec<Exit>,
    last_number: u64,
    /// Number of the last exit that the present machined was sent.
    sent_through: u64,
    lost: u32,
}

impl Exits {
    /// An empty table; the only allocation it ever makes.
    pub fn new() -> Self {
        Self { entries: Vec::with_capacity(MAX_EXITS), last_number: 0, sent_through: 0, lost: 0 }
    }

    /// Adds an exit, or counts it if the table is full.
    pub fn push(&mut self, ended: Ended) {
        self.last_number += 1;
        if self.entries.len() == MAX_EXITS {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        let Ended { pid, start_ticks, status } = ended;
        self.entries.push(Exit { number: self.last_number, pid, start_ticks, status });
    }

    /// Forgets what was read.
    pub fn acknowledge(&mut self, number: u64) {
        self.entries.retain(|e| e.number > number);
    }

    /// A new machined has been sent nothing.
    pub fn rewind(&mut self) {
        self.sent_through = 0;
    }

    /// The next exit to send.
    pub fn unsent(&self) -> Option<Exit> {
        self.entries.iter().find(|e| e.number > self.sent_through).copied()
    }

    /// That one was sent.
    pub fn mark_sent(&mut self, number: u64) {
        self.sent_through = number;
    }

    /// How many were lost and not reported.
    pub fn lost(&self) -> Option<u32> {
        (self.lost > 0).then_some(self.lost)
    }

    /// The loss was reported.
    pub fn mark_lost_sent(&mut self) {
        self.lost = 0;
    }
}

impl Default for Exits {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(pid: i32) -> Ended {
        Ended { pid, start_ticks: 5, status: 0 }
    }

    #[test]
    fn exits_are_sent_once_to_each_machined_until_acknowledged() {
        let mut exits = Exits::new();
        exits.push(ended(10));
        exits.push(ended(11));
        assert_eq!(exits.unsent().unwrap().pid, 10);
        exits.mark_sent(1);
        assert_eq!(exits.unsent().unwrap().pid, 11);
        exits.acknowledge(1);
        exits.rewind();
        assert_eq!(exits.unsent().unwrap().pid, 11);
        exits.mark_sent(2);
        assert_eq!(exits.unsent(), None);
    }

    #[test]
    fn overflow_is_counted_and_the_table_never_grows() {
        let mut exits = Exits::new();
        let capacity = exits.entries.capacity();
        for pid in 0..i32::try_from(MAX_EXITS).unwrap() + 3 {
            exits.push(ended(pid));
        }
        assert_eq!(exits.lost(), Some(3));
        assert_eq!(exits.entries.capacity(), capacity);
        exits.mark_lost_sent();
        assert_eq!(exits.lost(), None);
        exits.acknowledge(u64::MAX);
        exits.push(ended(1));
        assert_eq!(exits.unsent().unwrap().number, 260);
    }
}
