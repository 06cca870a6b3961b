//! Argon2, version 1.3, with lanes that are filled at the same time.
//!
//! Owns: the whole function: first hash, the lanes' segments, the tag; the memory, which is asked for once, written once
//! before it is read, and zeroised.
//! Does not: make threads. Within a slice of a pass no lane reads what another writes, so a slice is one task a lane, and
//! the caller says who runs them ([`Workers`]). Nor use registers that not every processor has: the caller may bring the
//! mixing of two blocks, where nearly all of the time goes ([`Workers::mixing`]).
//! Fails by: [`Failure`]: too little memory, or numbers that the function refuses.
//! Source: RFC 9106. The crate `argon2`, which fills lanes one after another, is what tests compare with.

mod block;
mod fill;
mod hash;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use zeroize::Zeroize as _;

use block::Block;
pub use block::Words;
use fill::Fill;

/// Slices of a pass: between two of them all lanes wait for each other.
const SLICES: usize = 4;
/// The same, for 32-bit numbers.
const SLICES_U32: u32 = 4;
/// Least blocks of a lane.
const LEAST_LANE: u32 = 8;
/// Most lanes (RFC 9106 §3.1).
const MOST_LANES: u32 = (1 << 24) - 1;
/// Bytes of the shortest salt.
pub(super) const LEAST_SALT_BYTES: usize = 8;

/// Who runs tasks that may run at the same time.
pub trait Workers {
    /// Runs each once and returns when all are done. A task neither allocates nor panics.
    fn run<F: FnMut() + Send>(&self, tasks: &mut [F]);

    /// How the processor mixes two blocks of Argon2 faster than one word at a time, if it does.
    fn mixing(&self) -> Option<Mixing> {
        None
    }
}

/// Adds (without carry) to the first block what the next two give. The last is room for steps between: it is not read
/// before it is written, and whoever lends it zeroises it.
pub type Mixing = fn(&mut Words, &Words, &Words, &mut Words);

/// One after another, in the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Workers for Alone {
    fn run<F: FnMut() + Send>(&self, tasks: &mut [F]) {
        tasks.iter_mut().for_each(|task| task());
    }
}

/// Which of the sisters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// Addresses never depend on the passphrase.
    I = 1,
    /// They do after half of the first pass.
    Id = 2,
}

/// What a derivation costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) variant: Variant,
    pub(super) memory_kib: u32,
    pub(super) passes: u32,
    pub(super) lanes: u32,
}

/// What a key is derived from. LUKS2 has neither secret nor data.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) passphrase: &'a [u8],
    pub(super) salt: &'a [u8],
    pub(super) secret: &'a [u8],
    pub(super) data: &'a [u8],
}

/// Why no key was derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The memory is not there.
    Memory,
    /// A number that the function refuses.
    Parameters(&'static str),
}

impl Parameters {
    fn check(self, inputs: &Inputs<'_>) -> Result<(), Failure> {
        let lanes = self.lanes;
        let least = lanes.checked_mul(LEAST_LANE);
        let problem = if lanes == 0 || lanes > MOST_LANES {
            "the number of lanes is out of range"
        } else if self.passes == 0 {
            "there must be one pass at least"
        } else if least.is_none_or(|least| self.memory_kib < least) {
            "there must be 8 KiB of memory for each lane at least"
        } else if inputs.salt.len() < LEAST_SALT_BYTES {
            "the salt is too short"
        } else {
            return Ok(());
        };
        Err(Failure::Parameters(problem))
    }

    /// Blocks of a segment: a slice of a lane.
    fn segment_blocks(self) -> usize {
        let blocks = self.memory_kib / (SLICES_U32 * self.lanes);
        usize::try_from(blocks).unwrap_or(usize::MAX)
    }
}

/// Fills `tag` with what the inputs give at this cost; it has 32 or 64 bytes.
pub(super) fn derive<W: Workers>(
    parameters: Parameters,
    inputs: &Inputs<'_>,
    workers: &W,
    tag: &mut [u8],
) -> Result<(), Failure> {
    parameters.check(inputs)?;
    let mut memory = Memory::reserve(parameters)?;
    let first = hash::first(parameters, inputs, tag.len());
    let first = first.ok_or(Failure::Parameters("a length is out of range"))?;
    let mixing = workers.mixing().unwrap_or(block::mix);
    for pass in 0..parameters.passes {
        for slice in 0..SLICES {
            memory.fill(Fill { parameters, pass, slice, first: &first, mixing }, workers);
        }
    }
    let done = memory.last_blocks().and_then(|last| hash::tag(&last, tag));
    memory.wipe(workers);
    done.ok_or(Failure::Parameters("a tag has 32 or 64 bytes"))
}

/// The segments, by lane and then slice. Each is a piece of its own, so that one is written while others are read.
struct Memory {
    segments: Vec<Vec<Block>>,
}

impl Memory {
    /// Asks for all of it, and writes nothing yet: the first pass does, each lane for itself.
    fn reserve(parameters: Parameters) -> Result<Self, Failure> {
        let lanes = usize::try_from(parameters.lanes).map_err(|_| Failure::Memory)?;
        let count = lanes.checked_mul(SLICES).ok_or(Failure::Memory)?;
        let mut segments = Vec::new();
        segments.try_reserve_exact(count).map_err(|_| Failure::Memory)?;
        for _ in 0..count {
            let mut segment = Vec::new();
            segment.try_reserve_exact(parameters.segment_blocks()).map_err(|_| Failure::Memory)?;
            segments.push(segment);
        }
        Ok(Self { segments })
    }

    /// One slice of a pass, in all lanes.
    fn fill<W: Workers>(&mut self, fill: Fill<'_>, workers: &W) {
        let mut others: Vec<&[Block]> = alloc::vec![&[]; self.segments.len()];
        let mut own = Vec::new();
        for (number, segment) in self.segments.iter_mut().enumerate() {
            if number % SLICES == fill.slice {
                own.push(segment);
            } else if let Some(other) = others.get_mut(number) {
                *other = segment;
            }
        }
        let others = &others;
        let tasks = own.into_iter().enumerate();
        let mut tasks: Vec<_> =
            tasks.map(|(lane, segment)| move || fill.segment(lane, segment, others)).collect();
        workers.run(&mut tasks);
    }

    /// The sum of all lanes' last blocks.
    fn last_blocks(&self) -> Option<Block> {
        let mut lanes = self.segments.chunks_exact(SLICES);
        let mut sum = *lanes.next()?.last()?.last()?;
        for lane in lanes {
            sum.add(lane.last()?.last()?);
        }
        Some(sum)
    }

    fn wipe<W: Workers>(&mut self, workers: &W) {
        let mut tasks: Vec<_> = self
            .segments
            .iter_mut()
            .map(|segment| move || segment.iter_mut().for_each(|block| block.zeroize()))
            .collect();
        workers.run(&mut tasks);
    }
}
