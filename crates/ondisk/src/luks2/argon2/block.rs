//! A block of memory and the function that mixes two of them.
//!
//! Order of words: eight rows of sixteen. Rows are mixed, then columns of pairs of words. Four words are handled at a
//! time, which compilers turn into wide registers.
//! Source: RFC 9106 §3.5, §3.6.

use zeroize::Zeroize;

/// Words of a block.
pub(super) const WORDS: usize = 128;
/// Bytes of a block.
pub(super) const BYTES: usize = WORDS * 8;

/// 1 KiB as words.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Block(pub(super) [u64; WORDS]);

impl Zeroize for Block {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

/// Four words that are handled alike.
type Four = [u64; 4];

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
    #[inline(always)]
    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word ^= other);
    }

    /// What two blocks give.
    #[inline(always)]
    pub(super) fn mixed(left: &Self, right: &Self) -> Self {
        let mut sum = *left;
        sum.add(right);
        let mut out = sum;
        for row in 0..8 {
            out.permute(row * 16, |part| part);
        }
        for column in 0..8 {
            out.permute(column * 2, |part| (part / 2) * 16 + part % 2);
        }
        out.add(&sum);
        out
    }

    /// The permutation over sixteen words: the `n`th is at `start` and `place(n)` more.
    #[inline(always)]
    fn permute(&mut self, start: usize, place: impl Fn(usize) -> usize) {
        let four = |first: usize| -> Four { core::array::from_fn(|n| self.0[start + place(first + n)]) };
        let (mut a, mut b, mut c, mut d) = (four(0), four(4), four(8), four(12));
        quarter(&mut a, &mut b, &mut c, &mut d);
        (b, c, d) = (turned::<1>(b), turned::<2>(c), turned::<3>(d));
        quarter(&mut a, &mut b, &mut c, &mut d);
        (b, c, d) = (turned::<3>(b), turned::<2>(c), turned::<1>(d));
        for (part, words) in [a, b, c, d].into_iter().enumerate() {
            for (n, word) in words.into_iter().enumerate() {
                self.0[start + place(part * 4 + n)] = word;
            }
        }
    }
}

#[inline(always)]
fn quarter(a: &mut Four, b: &mut Four, c: &mut Four, d: &mut Four) {
    multiply_add(a, *b);
    rotate_add::<32>(d, *a);
    multiply_add(c, *d);
    rotate_add::<24>(b, *c);
    multiply_add(a, *b);
    rotate_add::<16>(d, *a);
    multiply_add(c, *d);
    rotate_add::<63>(b, *c);
}

/// x + y + 2 · low half of x · low half of y.
#[inline(always)]
fn multiply_add(x: &mut Four, y: Four) {
    const LOW: u64 = 0xffff_ffff;
    for n in 0..4 {
        let product = (x[n] & LOW).wrapping_mul(y[n] & LOW);
        x[n] = x[n].wrapping_add(y[n]).wrapping_add(product.wrapping_add(product));
    }
}

#[inline(always)]
fn rotate_add<const BITS: u32>(x: &mut Four, y: Four) {
    for n in 0..4 {
        x[n] = (x[n] ^ y[n]).rotate_right(BITS);
    }
}

/// The words moved so many places to the front.
#[inline(always)]
fn turned<const BY: usize>(x: Four) -> Four {
    core::array::from_fn(|n| x[(n + BY) % 4])
}
