//! Adiantum: a whole sector as one block, for areas of slots that cryptsetup made for a volume with this cipher.
//!
//! | part | made of |
//! |---|---|
//! | the last 16 bytes, and with them all others | two hashes modulo 2^130 - 5, one block of AES-256 |
//! | the rest | the stream of XChaCha, whose nonce is that block |
//!
//! Does not: encrypt data, which the kernel does; take part in what we write.
//! Source: P. Crowley and E. Biggers, "Adiantum: length-preserving encryption for entry-level processors", 2018; RFC 8439
//! for ChaCha and Poly1305; `adiantum(xchacha12,aes)` of the kernel, whose numbers of sectors take 32 bytes.

use aes::Aes256;
use aes::cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};
use alloc::vec::Vec;
use zeroize::{Zeroize as _, Zeroizing};

use super::cipher::Direction;

/// Bytes of the one block, of a number modulo 2^128, and of what Poly1305 takes at a time.
const BLOCK: usize = 16;
/// Words of the key of NH: for a kibibyte and the three passes that are moved on.
const NH_WORDS: usize = 256 + 3 * 4;
/// Bytes that NH hashes at once.
const NH_BYTES: usize = 1024;
/// Bytes of its hash: four sums of 64 bits.
const SUMS: usize = 4;
const KEY_BYTES: usize = 32;

/// The cipher with a key.
pub(super) struct Adiantum {
    double_rounds: usize,
    stream: [u32; 8],
    block: Aes256,
    /// Of the length and the number of the sector.
    tweak: Poly1305,
    /// Of the hashes of the message.
    message: Poly1305,
    nh: Zeroizing<Vec<u32>>,
}

impl Adiantum {
    /// With so many rounds of ChaCha, 12 or 20. `None` for a key of another length.
    pub(super) fn new(key: &[u8], rounds: usize) -> Option<Self> {
        let key: &[u8; KEY_BYTES] = key.try_into().ok()?;
        let (stream, double_rounds) = (words(key), rounds / 2);
        // All other keys are the stream for the nonce 1.
        let mut keys = Zeroizing::new(alloc::vec![0; KEY_BYTES + 2 * BLOCK + NH_WORDS * 4]);
        let mut nonce = [0; 32];
        nonce[0] = 1;
        add_stream(&stream, double_rounds, &nonce, &mut keys);
        let (block, rest) = keys.split_first_chunk::<KEY_BYTES>()?;
        let (tweak, rest) = rest.split_first_chunk()?;
        let (message, nh) = rest.split_first_chunk()?;
        Some(Self {
            double_rounds,
            stream,
            block: Aes256::new(block.into()),
            tweak: Poly1305::new(tweak),
            message: Poly1305::new(message),
            nh: Zeroizing::new(nh.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()),
        })
    }

    /// Changes a sector, or anything of at least 16 bytes. `tweak`: its number, from the lowest byte.
    pub(super) fn apply(&self, tweak: &[u8; 32], sector: &mut [u8], direction: Direction) -> Option<()> {
        let (rest, last) = sector.split_last_chunk_mut::<BLOCK>()?;
        let number = u128::from_le_bytes(*last).wrapping_add(self.hash(tweak, rest));
        let mut block = number.to_le_bytes();
        // What is between the two hashes is AES's answer either way: the nonce.
        let nonce = match direction {
            Direction::Encrypt => {
                self.block.encrypt_block((&mut block).into());
                block
            }
            Direction::Decrypt => {
                let nonce = block;
                self.block.decrypt_block((&mut block).into());
                nonce
            }
        };
        let mut long = [0; 32];
        long[..BLOCK].copy_from_slice(&nonce);
        long[BLOCK] = 1;
        add_stream(&self.stream, self.double_rounds, &long, rest);
        let number = u128::from_le_bytes(block).wrapping_sub(self.hash(tweak, rest));
        *last = number.to_le_bytes();
        Some(())
    }

    /// The sum of both hashes.
    fn hash(&self, tweak: &[u8; 32], message: &[u8]) -> u128 {
        let bits = (message.len() as u128).wrapping_mul(8);
        let mut header = self.tweak.begin();
        header.add(&bits.to_le_bytes());
        tweak.as_chunks().0.iter().for_each(|block| header.add(block));
        let mut hashes = self.message.begin();
        for piece in message.chunks(NH_BYTES) {
            nh(&self.nh, piece).as_chunks().0.iter().for_each(|block| hashes.add(block));
        }
        header.end().wrapping_add(hashes.end())
    }
}

impl Drop for Adiantum {
    fn drop(&mut self) {
        self.stream.zeroize();
    }
}

/// NH: products of sums of message and key, four times with the key moved on by four words. The end of a message is filled
/// up with zeros.
fn nh(key: &[u32], message: &[u8]) -> [u8; SUMS * 8] {
    let mut sums = [0_u64; SUMS];
    for (unit, bytes) in message.chunks(BLOCK).enumerate() {
        let mut whole = [0; BLOCK];
        whole[..bytes.len()].copy_from_slice(bytes);
        let message: [u32; 4] = words(&whole);
        for (pass, sum) in sums.iter_mut().enumerate() {
            let key = &key[(unit + pass) * 4..];
            let added = |n: usize| u64::from(message[n].wrapping_add(key[n]));
            *sum = sum.wrapping_add(added(0).wrapping_mul(added(2)));
            *sum = sum.wrapping_add(added(1).wrapping_mul(added(3)));
        }
    }
    let mut bytes = [0; SUMS * 8];
    for (place, sum) in bytes.as_chunks_mut().0.iter_mut().zip(sums) {
        *place = sum.to_le_bytes();
    }
    bytes
}

/// Limbs of 26 bits: the products of two of them, summed up, fit into 64 bits.
const LIMBS: usize = 5;
const LIMB: u64 = (1 << 26) - 1;

/// The key of a Poly1305 to which nothing is added at the end.
struct Poly1305 {
    r: Zeroizing<[u64; LIMBS]>,
}

/// A hash under way.
struct Hashing<'k> {
    key: &'k Poly1305,
    h: [u64; LIMBS],
}

impl Poly1305 {
    fn new(key: &[u8; BLOCK]) -> Self {
        /// RFC 8439 §2.5: bits that are zero.
        const CLAMP: u128 = 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
        Self { r: Zeroizing::new(limbs(u128::from_le_bytes(*key) & CLAMP)) }
    }

    fn begin(&self) -> Hashing<'_> {
        Hashing { key: self, h: [0; LIMBS] }
    }
}

impl Hashing<'_> {
    /// h = (h + block + 2^128) · r
    fn add(&mut self, block: &[u8; BLOCK]) {
        let added = limbs(u128::from_le_bytes(*block));
        self.h.iter_mut().zip(added).for_each(|(h, limb)| *h += limb);
        self.h[LIMBS - 1] += 1 << 24;
        let mut product = [0_u64; LIMBS];
        for (i, h) in self.h.iter().enumerate() {
            for (j, r) in self.key.r.iter().enumerate() {
                // 2^130 is 5.
                let (place, times) = if i + j < LIMBS { (i + j, 1) } else { (i + j - LIMBS, 5) };
                product[place] += h * r * times;
            }
        }
        self.h = carried(product);
    }

    /// The lowest 128 bits of the remainder.
    fn end(self) -> u128 {
        let h = carried(carried(self.h));
        // At least 2^130 - 5 is that with the carry of 5 more; and then it is less by that.
        let mut carry = 5;
        for limb in h {
            carry = (limb + carry) >> 26;
        }
        let mut left = h;
        left[0] += 5 * carry;
        let mut number = 0_u128;
        for (n, limb) in left.into_iter().enumerate() {
            number = number.wrapping_add(u128::from(limb) << (26 * n));
        }
        number
    }
}

/// Each limb below 2^26 but the second, which may be a little more.
fn carried(mut h: [u64; LIMBS]) -> [u64; LIMBS] {
    let mut carry = 0;
    for limb in &mut h {
        *limb += carry;
        carry = *limb >> 26;
        *limb &= LIMB;
    }
    h[0] += carry * 5;
    h[1] += h[0] >> 26;
    h[0] &= LIMB;
    h
}

fn limbs(number: u128) -> [u64; LIMBS] {
    core::array::from_fn(|n| u64::try_from(number >> (26 * n) & u128::from(LIMB)).unwrap_or(LIMB))
}

/// Adds XChaCha's stream: 24 bytes of nonce, then the number of the first block.
fn add_stream(key: &[u32; 8], double_rounds: usize, nonce: &[u8; 32], data: &mut [u8]) {
    let nonce: [u32; 8] = words(nonce);
    let mut state = state(key, &nonce[..4]);
    permute(&mut state, double_rounds);
    let mut own: [u32; 8] = core::array::from_fn(|n| if n < 4 { state[n] } else { state[n + 8] });
    let mut count = u64::from(nonce[6]) | u64::from(nonce[7]) << 32;
    for piece in data.chunks_mut(64) {
        let [low, high] =
            [count & u64::from(u32::MAX), count >> 32].map(|half| u32::try_from(half).unwrap_or(0));
        let first = self::state(&own, &[low, high, nonce[4], nonce[5]]);
        let mut state = first;
        permute(&mut state, double_rounds);
        let stream = state.iter().zip(first).flat_map(|(word, first)| word.wrapping_add(first).to_le_bytes());
        piece.iter_mut().zip(stream).for_each(|(byte, other)| *byte ^= other);
        state.zeroize();
        count = count.wrapping_add(1);
    }
    state.zeroize();
    own.zeroize();
}

/// ChaCha's state: "expand 32-byte k", the key, and what is counted and used once.
fn state(key: &[u32; 8], rest: &[u32]) -> [u32; 16] {
    let mut state = [0; 16];
    state[..4].copy_from_slice(&words::<4>(b"expand 32-byte k"));
    state[4..12].copy_from_slice(key);
    state[12..].copy_from_slice(rest);
    state
}

fn permute(state: &mut [u32; 16], double_rounds: usize) {
    /// Columns, then diagonals.
    const QUARTERS: [[usize; 4]; 8] = [
        [0, 4, 8, 12],
        [1, 5, 9, 13],
        [2, 6, 10, 14],
        [3, 7, 11, 15],
        [0, 5, 10, 15],
        [1, 6, 11, 12],
        [2, 7, 8, 13],
        [3, 4, 9, 14],
    ];
    for _ in 0..double_rounds {
        for [a, b, c, d] in QUARTERS {
            for (a, b, d, turn) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
                state[a] = state[a].wrapping_add(state[b]);
                state[d] = (state[d] ^ state[a]).rotate_left(turn);
            }
        }
    }
}

fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: String = hex.split_whitespace().collect();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    /// testdata/adiantum.txt: key, number, plain, encrypted, one a line.
    #[test]
    fn it_does_what_its_authors_say() {
        let text = include_str!("../../testdata/adiantum.txt");
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len() % 5, 0);
        for case in lines.chunks(5) {
            let [rounds, key, tweak, plain, encrypted] = case else { panic!("five lines") };
            let cipher = Adiantum::new(&bytes(key), rounds.parse().unwrap()).unwrap();
            let tweak: [u8; 32] = bytes(tweak).try_into().unwrap();
            let mut sector = bytes(plain);
            cipher.apply(&tweak, &mut sector, Direction::Encrypt).unwrap();
            assert_eq!(sector, bytes(encrypted), "{} bytes", sector.len());
            cipher.apply(&tweak, &mut sector, Direction::Decrypt).unwrap();
            assert_eq!(sector, bytes(plain));
        }
        assert!(Adiantum::new(&[0; 16], 12).is_none());
        let cipher = Adiantum::new(&[0; 32], 12).unwrap();
        assert!(cipher.apply(&[0; 32], &mut [0; 15], Direction::Encrypt).is_none());
    }
}
