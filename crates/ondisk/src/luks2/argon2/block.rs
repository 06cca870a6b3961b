//! A block of memory and the function that mixes two of them.
//!
//! Order of words: eight rows of sixteen. Rows are mixed, then columns of pairs of words. Four words are mixed at a time,
//! as many as a processor has registers for. Nothing is left to a compiler's vectors: whole-program optimisation for size,
//! which programs of an image get, makes none. A caller that has wide registers brings a mixing for them.
//! Source: RFC 9106 §3.5, §3.6.

use zeroize::Zeroize;

/// Words of a block.
pub(super) const WORDS: usize = 128;
/// A block as a function of mixing has it.
pub type Words = [u64; WORDS];
/// Bytes of a block.
pub(super) const BYTES: usize = WORDS * 8;

/// 1 KiB as words.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Block(pub(super) Words);

impl Zeroize for Block {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

impl Block {
    pub(super) const ZERO: Self = Self([0; WORDS]);

    pub(super) fn from_bytes(bytes: &[u8; BYTES]) -> Self {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }

    pub(super) fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.0) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// Adds without carry.
    pub(super) fn add(&mut self, other: &Self) {
        add(&mut self.0, &other.0);
    }
}

/// A mixing ([`Mixing`](super::Mixing)) that every processor has registers for: one word at a time.
pub(super) fn mix(into: &mut Words, left: &Words, right: &Words, room: &mut Words) {
    // Copied whole, which reads far memory faster than word by word.
    *room = *left;
    add(room, right);
    add(into, room);
    for row in 0..8 {
        permute(room, row * 16, |part| part);
    }
    for column in 0..8 {
        permute(room, column * 2, |part| (part / 2) * 16 + part % 2);
    }
    add(into, room);
}

fn add(words: &mut Words, others: &Words) {
    words.iter_mut().zip(others).for_each(|(word, other)| *word ^= other);
}

/// The permutation over sixteen words, a square of four by four: its columns, then its diagonals. The `n`th word is at
/// `start` and `place(n)` more.
#[inline(always)]
fn permute(words: &mut Words, start: usize, place: impl Fn(usize) -> usize) {
    let at = |n| start + place(n);
    quarter(words, [at(0), at(4), at(8), at(12)]);
    quarter(words, [at(1), at(5), at(9), at(13)]);
    quarter(words, [at(2), at(6), at(10), at(14)]);
    quarter(words, [at(3), at(7), at(11), at(15)]);
    quarter(words, [at(0), at(5), at(10), at(15)]);
    quarter(words, [at(1), at(6), at(11), at(12)]);
    quarter(words, [at(2), at(7), at(8), at(13)]);
    quarter(words, [at(3), at(4), at(9), at(14)]);
}

/// Four words with each other.
#[inline(always)]
fn quarter(words: &mut Words, places: [usize; 4]) {
    let [mut a, mut b, mut c, mut d] = places.map(|place| words[place]);
    a = multiply_add(a, b);
    d = (d ^ a).rotate_right(32);
    c = multiply_add(c, d);
    b = (b ^ c).rotate_right(24);
    a = multiply_add(a, b);
    d = (d ^ a).rotate_right(16);
    c = multiply_add(c, d);
    b = (b ^ c).rotate_right(63);
    for (place, word) in places.into_iter().zip([a, b, c, d]) {
        words[place] = word;
    }
}

/// x + y + 2 · low half of x · low half of y.
#[inline(always)]
fn multiply_add(x: u64, y: u64) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let product = (x & LOW).wrapping_mul(y & LOW);
    x.wrapping_add(y).wrapping_add(product.wrapping_add(product))
}
