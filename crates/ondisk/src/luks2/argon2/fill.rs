//! Filling one segment.
//!
//! Owns: which block each new one is mixed with.
//! Source: RFC 9106 §3.3, §3.4.

use zeroize::Zeroizing;

use super::block::{Block, WORDS};
use super::{Mixing, Parameters, SLICES, SLICES_U32, Variant, hash};

/// Which slice of which pass.
#[derive(Clone, Copy)]
pub(super) struct Fill<'a> {
    pub(super) parameters: Parameters,
    pub(super) pass: u32,
    pub(super) slice: usize,
    /// The hash of all inputs.
    pub(super) first: &'a [u8; 64],
    pub(super) mixing: Mixing,
}

impl Fill<'_> {
    /// The segment of one lane; `others` are all segments but those of this slice, by lane and then slice.
    ///
    /// The first pass appends within what was reserved, later ones add to what is there.
    pub(super) fn segment(&self, lane: usize, own: &mut alloc::vec::Vec<Block>, others: &[&[Block]]) {
        let blocks = self.parameters.segment_blocks();
        let mut addresses = self.is_independent().then(|| Addresses::new(self, lane));
        let opening = self.pass == 0 && self.slice == 0;
        if opening {
            let lane = u32::try_from(lane).unwrap_or(u32::MAX);
            own.extend([0, 1].map(|number| hash::opening_block(self.first, number, lane)));
        }
        let mut room = Zeroizing::new(Block::ZERO);
        for at in if opening { 2 } else { 0 }..blocks {
            if own.len() == at {
                own.push(Block::ZERO);
            }
            let (before, rest) = own.split_at_mut(at);
            let previous = match at.checked_sub(1) {
                Some(_) => before.last(),
                None => others.get(lane * SLICES + (self.slice + SLICES - 1) % SLICES).and_then(|s| s.last()),
            };
            let Some(previous) = previous else { return };
            let random = match &mut addresses {
                Some(addresses) => addresses.at(at),
                None => previous.0[0],
            };
            let (segment, index) = self.reference(lane, at, random);
            let reference = match segment {
                Some(number) => others.get(number).and_then(|segment| segment.get(index)),
                None => before.get(index),
            };
            let (Some(reference), Some(new)) = (reference, rest.first_mut()) else { return };
            (self.mixing)(&mut new.0, &reference.0, &previous.0, &mut room.0);
        }
    }

    /// Whether addresses come from a counter and not from the memory.
    fn is_independent(&self) -> bool {
        match self.parameters.variant {
            Variant::I => true,
            Variant::Id => self.pass == 0 && self.slice < SLICES / 2,
        }
    }

    /// Which block is mixed in: the number of its segment (`None` for the own one) and its place there.
    fn reference(&self, lane: usize, at: usize, random: u64) -> (Option<usize>, usize) {
        let segment = self.parameters.segment_blocks();
        let lanes = u64::from(self.parameters.lanes);
        let opening = self.pass == 0 && self.slice == 0;
        let chosen = if opening { lane } else { usize::try_from((random >> 32) % lanes).unwrap_or(0) };
        // Whole segments that may be read, and where the first of them begins.
        let (finished, start) =
            if self.pass == 0 { (self.slice, 0) } else { (SLICES - 1, (self.slice + 1) % SLICES) };
        let area = if chosen == lane {
            finished * segment + at - 1
        } else {
            // The last block of another lane may still be in the making when this one's first is.
            finished * segment - usize::from(at == 0)
        };
        let low = random & 0xffff_ffff;
        let square = (low * low) >> 32;
        let area_words = u64::try_from(area).unwrap_or(u64::MAX);
        let back = usize::try_from((area_words * square) >> 32).unwrap_or(0);
        let position = (start * segment + area - 1 - back) % (SLICES * segment);
        let slice = position / segment;
        let number = (slice != self.slice).then_some(chosen * SLICES + slice);
        (number, position % segment)
    }
}

/// Addresses that depend on nothing secret, 128 a time.
struct Addresses {
    mixing: Mixing,
    input: Block,
    block: Block,
}

impl Addresses {
    fn new(fill: &Fill<'_>, lane: usize) -> Self {
        let Parameters { variant, memory_kib, passes, lanes } = fill.parameters;
        let parts = SLICES_U32 * lanes;
        let blocks = u64::from(memory_kib / parts * parts);
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let mut input = Block::ZERO;
        input.0[..6].copy_from_slice(&[
            u64::from(fill.pass),
            wide(lane),
            wide(fill.slice),
            blocks,
            u64::from(passes),
            variant as u64,
        ]);
        let mut addresses = Self { mixing: fill.mixing, input, block: Block::ZERO };
        addresses.next();
        addresses
    }

    fn next(&mut self) {
        self.input.0[6] += 1;
        let [mut between, mut room] = [Block::ZERO; 2];
        (self.mixing)(&mut between.0, &Block::ZERO.0, &self.input.0, &mut room.0);
        self.block = Block::ZERO;
        (self.mixing)(&mut self.block.0, &Block::ZERO.0, &between.0, &mut room.0);
    }

    /// The address for a place in the segment; places are asked for in order.
    fn at(&mut self, place: usize) -> u64 {
        let word = place % WORDS;
        if word == 0 && place > 0 {
            self.next();
        }
        self.block.0[word]
    }
}
