//! A device that remembers every write, flush and promise, and the states that a power cut can leave.
//!
//! Owns: what counts as a possible state. A disk may keep any of the writes since its last flush and lose others; a
//! sector is written whole or not at all.
//! Does not: judge a state; that is the test's or the certificate's affair.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use ondisk::{ReadAt, ReadError};

use super::{BlockDevice, DeviceError, Memory};

/// Something that happened to a device.
#[derive(Debug, Clone)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        bytes: Arc<[u8]>,
    },
    /// A range was made zero.
    Zero {
        /// Which, in bytes.
        range: Range<u64>,
    },
    /// Everything before is on the medium.
    Flush,
    /// A promise was made.
    Acknowledge(String),
}

/// A device that works on memory and remembers.
#[derive(Debug)]
pub struct Recorder {
    now: Memory,
    recording: Recording,
}

/// What happened to a device, from a state on.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The device before the first event.
    pub before: Memory,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// Where the power went, and what the medium lacks of the writes since the last flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Number of the event that did not happen any more.
    pub before: usize,
    /// Writes that are not on the medium, or only in part.
    pub damage: Vec<Damage>,
}

/// A write that is not wholly on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Number of the write.
    pub write: usize,
    /// How many of its sectors are there, from its start; 0: it is lost.
    pub sectors: u64,
}

/// How many of the places in which a single write can be torn are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tears {
    /// Behind every sector.
    Each,
    /// Behind the first two, the middle and the last but one.
    Few,
}

/// A state that a power cut can leave.
#[derive(Debug)]
pub struct State<'r> {
    /// The device, as the next boot finds it.
    pub disk: Memory,
    /// Where the power went.
    pub cut: Cut,
    /// The promises made before.
    pub promises: Vec<&'r str>,
}

impl Recorder {
    /// Records from this state on.
    #[must_use]
    pub fn new(before: Memory) -> Self {
        Self { now: before.clone(), recording: Recording { before, events: Vec::new() } }
    }

    /// The device as it is now.
    #[must_use]
    pub fn now(&self) -> &Memory {
        &self.now
    }

    /// What was recorded, and the device as it is now.
    #[must_use]
    pub fn finish(self) -> (Recording, Memory) {
        (self.recording, self.now)
    }
}

impl Recording {
    /// Calls `judge` with every state that is looked at: the cut before every event and at the end, with none, one or
    /// two of the writes since the last flush lost; those whose range is `torn` also with only their first sectors on the
    /// medium, after each sector if one write is damaged, after the first two, the middle and the last but one if two are.
    ///
    /// Returns the number of states.
    pub fn each_state(&self, torn: &dyn Fn(&Range<u64>) -> bool, mut judge: impl FnMut(State<'_>)) -> usize {
        self.each_state_until(&|range| torn(range).then_some(Tears::Each), |state| {
            judge(state);
            ControlFlow::Continue(())
        })
    }

    /// The same up to the state for which `judge` breaks; that one is counted too.
    pub fn each_state_until(
        &self,
        torn: &dyn Fn(&Range<u64>) -> Option<Tears>,
        mut judge: impl FnMut(State<'_>) -> ControlFlow<()>,
    ) -> usize {
        let mut count = 0;
        let mut on_medium = self.before.clone();
        let mut pending: Vec<usize> = Vec::new();
        let mut promises: Vec<&str> = Vec::new();
        for before in 0..=self.events.len() {
            for damage in self.damages(&pending, torn) {
                count += 1;
                let disk = self.with(&on_medium, &pending, &damage);
                let state = State { disk, cut: Cut { before, damage }, promises: promises.clone() };
                if judge(state).is_break() {
                    return count;
                }
            }
            match self.events.get(before) {
                Some(Event::Write { .. } | Event::Zero { .. }) => pending.push(before),
                Some(Event::Flush) => {
                    on_medium = self.with(&on_medium, &pending, &[]);
                    pending.clear();
                }
                Some(Event::Acknowledge(promise)) => promises.push(promise),
                None => {}
            }
        }
        count
    }

    /// None, every one and every two of the pending writes damaged.
    fn damages(&self, pending: &[usize], torn: &dyn Fn(&Range<u64>) -> Option<Tears>) -> Vec<Vec<Damage>> {
        let mut all = vec![Vec::new()];
        for (n, write) in pending.iter().copied().enumerate() {
            let (sectors, tears) = self.tears(write, torn);
            let places = if tears == Tears::Each { (0..sectors).collect() } else { few(sectors) };
            all.extend(places.into_iter().map(|sectors| vec![Damage { write, sectors }]));
            for other in pending.iter().skip(n + 1).copied() {
                for first in few(sectors) {
                    let second = few(self.tears(other, torn).0).into_iter();
                    all.extend(second.map(|sectors| {
                        vec![Damage { write, sectors: first }, Damage { write: other, sectors }]
                    }));
                }
            }
        }
        all
    }

    /// The recording without its flush `index`, counted from 0: is it needed? `None` when there is no such flush.
    #[must_use]
    pub fn without_flush(&self, index: usize) -> Option<Self> {
        let flushes = self.events.iter().enumerate().filter(|(_, event)| matches!(event, Event::Flush));
        let (at, _) = flushes.into_iter().nth(index)?;
        let mut without = self.clone();
        without.events.remove(at);
        Some(without)
    }

    /// In how many ways a write may be damaged, by the sectors that are there, from none on; and which of them are looked
    /// at.
    fn tears(&self, write: usize, torn: &dyn Fn(&Range<u64>) -> Option<Tears>) -> (u64, Tears) {
        let Some(Event::Write { offset, bytes }) = self.events.get(write) else { return (1, Tears::Few) };
        let sectors = (bytes.len() as u64).div_ceil(u64::from(self.before.sector_bytes()));
        match torn(&(*offset..offset + bytes.len() as u64)) {
            Some(tears) => (sectors.max(1), tears),
            None => (1, Tears::Few),
        }
    }

    /// The medium with the pending writes, less what is damaged.
    fn with(&self, on_medium: &Memory, pending: &[usize], damage: &[Damage]) -> Memory {
        let mut disk = on_medium.clone();
        for at in pending {
            let kept = damage.iter().find(|damage| damage.write == *at).map(|damage| damage.sectors);
            match self.events.get(*at) {
                Some(Event::Write { offset, bytes }) => {
                    let length = kept.unwrap_or(u64::MAX).saturating_mul(u64::from(disk.sector_bytes()));
                    let part = usize::try_from(length).ok().and_then(|length| bytes.get(..length));
                    put(&mut disk, *offset, part.unwrap_or(bytes));
                }
                Some(Event::Zero { range }) if kept.is_none() => {
                    disk.zero(range.start, range.end - range.start).expect("invariant: it was done before");
                }
                _ => {}
            }
        }
        disk
    }
}

/// Some of the numbers below `count`: the first three, the middle one, the last.
fn few(count: u64) -> Vec<u64> {
    let mut few = vec![0, 1, 2, count / 2, count.saturating_sub(1)];
    few.sort_unstable();
    few.retain(|number| *number < count);
    few.dedup();
    few
}

fn put(disk: &mut Memory, offset: u64, bytes: &[u8]) {
    disk.write_at(offset, bytes).expect("invariant: it was written to a disk of this size before");
}

impl ReadAt for Recorder {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.now.read_at(offset, buffer)
    }
}

impl BlockDevice for Recorder {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.now.write_at(offset, bytes)?;
        self.recording.events.push(Event::Write { offset, bytes: bytes.into() });
        Ok(())
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.now.zero(offset, length)?;
        self.recording.events.push(Event::Zero { range: offset..offset + length });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.recording.events.push(Event::Flush);
        Ok(())
    }

    fn acknowledge(&mut self, promise: &str) {
        self.recording.events.push(Event::Acknowledge(promise.to_owned()));
    }

    fn bytes(&self) -> u64 {
        self.now.bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.now.sector_bytes()
    }
}
