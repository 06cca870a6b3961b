//! The checksum of GPT and of the flight recorder.
//!
//! Owns: CRC-32 with one table of a kilobyte. Nobody sums more than some kilobytes at a time here, and init has a limit: a
//! crate with a table for every sixteen bytes is 17 kB of it.
//! Source: UEFI specification, section 5.3 ("CCITT32 ANSI CRC"); ISO 3309.

/// The polynomial, its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The remainder of each byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    loop {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = (rest >> 1) ^ (POLYNOMIAL & (rest & 1).wrapping_neg());
            bit += 1;
        }
        table[byte as usize] = rest;
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

/// CRC-32 of the bytes.
pub(crate) fn hash(bytes: &[u8]) -> u32 {
    !seeded(!0, bytes)
}

/// The remainder as it is, from another start than usual.
pub(crate) fn seeded(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |rest: u32, byte| {
        let [lowest, ..] = rest.to_le_bytes();
        (rest >> 8) ^ TABLE[usize::from(lowest ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn the_check_value_is_that_of_the_catalogue() {
        assert_eq!(super::hash(b"123456789"), 0xcbf4_3926);
        assert_eq!(super::hash(b""), 0);
    }

    proptest! {
        #[test]
        fn others_compute_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(super::hash(&bytes), crc32fast::hash(&bytes));
        }
    }
}
