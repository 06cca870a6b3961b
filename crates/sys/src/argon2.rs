//! Argon2's mixing of two blocks in wide registers.
//!
//! Owns: the function for processors with AVX2, and the question whether this is one.
//! Does not: derive keys, or keep anything of a block: what it has to put down goes to room of the caller's.
//! Order: all rows, two at a time, then all columns, two at a time; a register holds four words of one row. Every function
//! is `inline`, so that it is compiled with the crate that asks for it: for speed, as the profile has `unlock`, where this
//! crate is compiled for size.
//! Fails by: `None` where the processor has no such registers or the system does not save them.
//! Source: RFC 9106 §3.5, §3.6; Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.

/// A block: 1 KiB.
pub type Words = [u64; 128];

/// Adds (without carry) to the first what the next two give; the last is room for steps between, and keeps them.
pub type Mixing = fn(&mut Words, &Words, &Words, &mut Words);

/// The fastest mixing that this processor has registers for; `None` if that is one word at a time.
#[inline]
#[must_use]
pub fn mixing() -> Option<Mixing> {
    #[cfg(target_arch = "x86_64")]
    {
        avx2::mixing()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        None
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_alignr_epi8, _mm256_loadu_si256, _mm256_mul_epu32, _mm256_or_si256,
        _mm256_permute4x64_epi64, _mm256_setr_epi64x, _mm256_shuffle_epi8, _mm256_srli_epi64,
        _mm256_storeu_si256, _mm256_xor_si256,
    };
    use core::hint::black_box;

    use super::{Mixing, Words};

    cpufeatures::new!(processor, "avx2");

    #[inline]
    pub(super) fn mixing() -> Option<Mixing> {
        if !processor::get() {
            return None;
        }
        // SAFETY: 1. The processor has AVX2, and the system saves its registers: both were asked just now, and this is
        //    the only way to the function.
        Some(|into, left, right, room| unsafe { mix(into, left, right, room) })
    }

    /// Four words, as a register has them in memory.
    type Four = [u64; 4];

    /// The same registers of two permutations, or the halves of one row of two: what is handled alike, one beside the other.
    type Pair = [__m256i; 2];

    #[inline]
    #[target_feature(enable = "avx2")]
    fn mix(into: &mut Words, left: &Words, right: &Words, room: &mut Words) {
        let (into, _) = into.as_chunks_mut::<4>();
        let (left, _) = left.as_chunks::<4>();
        let (right, _) = right.as_chunks::<4>();
        let (room, _) = room.as_chunks_mut::<4>();
        let orders = Orders::of_bytes();
        let sum = |at: usize| _mm256_xor_si256(load(&left[at]), load(&right[at]));
        for rows in (0..32).step_by(8) {
            let pair = |n: usize| [sum(rows + n), sum(rows + n + 4)];
            let squares = permuted_rows(&orders, [pair(0), pair(1), pair(2), pair(3)]);
            for (n, [one, other]) in squares.into_iter().enumerate() {
                store(&mut room[rows + n], one);
                store(&mut room[rows + n + 4], other);
            }
        }
        for columns in 0..4 {
            let pair = |row: usize| [load(&room[row * 4 + columns]), load(&room[row * 4 + 4 + columns])];
            let squares = permuted_columns(&orders, [pair(0), pair(2), pair(4), pair(6)]);
            for (n, [one, other]) in squares.into_iter().enumerate() {
                add(&mut into[n * 8 + columns], one, sum(n * 8 + columns));
                add(&mut into[n * 8 + columns + 4], other, sum(n * 8 + columns + 4));
            }
        }
    }

    /// The permutation of two rows: a register holds a row of the square that sixteen words are.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn permuted_rows(orders: &Orders, square: [Pair; 4]) -> [Pair; 4] {
        const FIRST_LAST: i32 = 0b00_11_10_01;
        const HALVES: i32 = 0b01_00_11_10;
        const LAST_FIRST: i32 = 0b10_01_00_11;
        let [a, b, c, d] = quarter(orders, square);
        let diagonals = [a, turned::<FIRST_LAST>(b), turned::<HALVES>(c), turned::<LAST_FIRST>(d)];
        let [a, b, c, d] = quarter(orders, diagonals);
        [a, turned::<LAST_FIRST>(b), turned::<HALVES>(c), turned::<FIRST_LAST>(d)]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn turned<const ORDER: i32>(x: Pair) -> Pair {
        [_mm256_permute4x64_epi64::<ORDER>(x[0]), _mm256_permute4x64_epi64::<ORDER>(x[1])]
    }

    /// The permutation of two columns: a register holds half a row of the square of each.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn permuted_columns(orders: &Orders, square: [Pair; 4]) -> [Pair; 4] {
        let [a, b, [c0, c1], [d0, d1]] = quarter(orders, square);
        let diagonals = [a, shifted(b), [c1, c0], shifted([d1, d0])];
        let [a, [b0, b1], [c1, c0], d] = quarter(orders, diagonals);
        [a, shifted([b1, b0]), [c0, c1], shifted(d)]
    }

    /// The words of two halves moved one place to the front; the first word becomes the last.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn shifted([first, last]: Pair) -> Pair {
        [_mm256_alignr_epi8::<8>(last, first), _mm256_alignr_epi8::<8>(first, last)]
    }

    /// The columns of the squares.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn quarter(orders: &Orders, [mut a, mut b, mut c, mut d]: [Pair; 4]) -> [Pair; 4] {
        for n in 0..2 {
            a[n] = multiply_add(a[n], b[n]);
            d[n] = _mm256_shuffle_epi8(_mm256_xor_si256(d[n], a[n]), orders.by_32);
            c[n] = multiply_add(c[n], d[n]);
            b[n] = _mm256_shuffle_epi8(_mm256_xor_si256(b[n], c[n]), orders.by_24);
            a[n] = multiply_add(a[n], b[n]);
            d[n] = _mm256_shuffle_epi8(_mm256_xor_si256(d[n], a[n]), orders.by_16);
            c[n] = multiply_add(c[n], d[n]);
            b[n] = rotated_63(_mm256_xor_si256(b[n], c[n]));
        }
        [a, b, c, d]
    }

    /// x + y + 2 · low half of x · low half of y.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn multiply_add(x: __m256i, y: __m256i) -> __m256i {
        let product = _mm256_mul_epu32(x, y);
        _mm256_add_epi64(_mm256_add_epi64(x, y), _mm256_add_epi64(product, product))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn rotated_63(x: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_add_epi64(x, x), _mm256_srli_epi64::<63>(x))
    }

    /// Orders of bytes that rotate each word to the right by so many bits.
    struct Orders {
        by_32: __m256i,
        by_24: __m256i,
        by_16: __m256i,
    }

    impl Orders {
        /// Hidden from the compiler, which would make two and more instructions of one that it knows the order of.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn of_bytes() -> Self {
            Self {
                by_32: black_box(order(0x0302_0100_0706_0504)),
                by_24: black_box(order(0x0201_0007_0605_0403)),
                by_16: black_box(order(0x0100_0706_0504_0302)),
            }
        }
    }

    /// For each byte the number of the one that takes its place: `even` for a word, eight more for the word after it.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn order(even: i64) -> __m256i {
        let odd = even + 0x0808_0808_0808_0808;
        _mm256_setr_epi64x(even, odd, even, odd)
    }

    /// Adds both to what stands there.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(words: &mut Four, one: __m256i, other: __m256i) {
        let sum = _mm256_xor_si256(one, other);
        store(words, _mm256_xor_si256(load(words), sum));
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(words: &Four) -> __m256i {
        // SAFETY: 1. The reference is to 32 bytes that may be read, as many as the instruction reads; it asks for no
        //    alignment.
        unsafe { _mm256_loadu_si256(core::ptr::from_ref(words).cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(words: &mut Four, register: __m256i) {
        // SAFETY:
        // 1. The reference is to 32 bytes that may be written, as many as the instruction writes; it asks for no alignment.
        // 2. Any bits are words.
        unsafe { _mm256_storeu_si256(core::ptr::from_mut(words).cast(), register) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That it mixes as the standard says is told by ondisk's tests, whose own mixing it is compared with there.
    #[test]
    fn equal_blocks_add_nothing() {
        let Some(mixing) = mixing() else { return };
        let (block, old) = ([0x0123_4567_89ab_cdef; 128], core::array::from_fn(|n| n as u64));
        let (mut into, mut room) = (old, [1; 128]);
        mixing(&mut into, &block, &block, &mut room);
        assert_eq!((into, room), (old, [0; 128]));
    }
}
