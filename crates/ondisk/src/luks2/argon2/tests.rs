//! Against the vectors of RFC 9106 §5 and against the crate `argon2`; word by word, and with the registers of the
//! processor that runs the tests.

use std::thread;

use ::argon2::{Algorithm, Argon2, Block as Theirs, Params, Version};

use super::*;

/// Every task in a thread of its own, with the widest registers.
struct Threads;

impl Workers for Threads {
    fn mixing(&self) -> Option<Mixing> {
        sys::argon2::mixing()
    }

    fn run<F: FnMut() + Send>(&self, tasks: &mut [F]) {
        thread::scope(|scope| {
            for task in tasks {
                scope.spawn(task);
            }
        });
    }
}

fn own(parameters: Parameters, inputs: &Inputs<'_>, tag_bytes: usize) -> Vec<u8> {
    let mut alone = vec![0; tag_bytes];
    derive(parameters, inputs, &Alone, &mut alone).unwrap();
    let mut threads = vec![0; tag_bytes];
    derive(parameters, inputs, &Threads, &mut threads).unwrap();
    assert_eq!(alone, threads, "{parameters:?}");
    alone
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_vectors_of_the_standard_hold() {
    let inputs = Inputs { passphrase: &[1; 32], salt: &[2; 16], secret: &[3; 8], data: &[4; 12] };
    for (variant, tag) in [
        (Variant::I, "c814d9d1dc7f37aa13f0d77f2494bda1c8de6b016dd388d29952a4c4672b6ce8"),
        (Variant::Id, "0d640df58d78766c08c037a34a8b53c9d01ef0452d75b65eb52520e96b01e659"),
    ] {
        let parameters = Parameters { variant, memory_kib: 32, passes: 3, lanes: 4 };
        assert_eq!(hex(&own(parameters, &inputs, 32)), tag, "{variant:?}");
    }
}

#[test]
fn every_cost_gives_what_the_crate_gives() {
    let inputs = Inputs { passphrase: b"correct horse", salt: b"sixteen bytes...", secret: &[], data: &[] };
    let mut compared = 0;
    for (variant, algorithm) in [(Variant::I, Algorithm::Argon2i), (Variant::Id, Algorithm::Argon2id)] {
        for lanes in [1, 2, 3, 4, 7] {
            // Odd amounts, whose rest is left out; segments beyond the 128 addresses of a block.
            for memory_kib in [8 * lanes, 8 * lanes + 5, 64 * lanes + 3, 1200 * lanes] {
                for (passes, tag_bytes) in [(1, 64), (2, 32), (4, 64)] {
                    let parameters = Parameters { variant, memory_kib, passes, lanes };
                    let params = Params::new(memory_kib, passes, lanes, Some(tag_bytes)).unwrap();
                    let mut theirs = vec![0; tag_bytes];
                    let mut memory = vec![Theirs::default(); params.block_count()];
                    Argon2::new(algorithm, Version::V0x13, params)
                        .hash_password_into_with_memory(
                            inputs.passphrase,
                            inputs.salt,
                            &mut theirs,
                            &mut memory,
                        )
                        .unwrap();
                    assert_eq!(hex(&own(parameters, &inputs, tag_bytes)), hex(&theirs), "{parameters:?}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 120);
}

#[test]
fn wide_registers_mix_as_single_words_do() {
    let Some(wide) = sys::argon2::mixing() else {
        eprintln!("this processor has none");
        return;
    };
    let mut state = 9_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The upper half of such a number is the random one.
        state.rotate_right(32) ^ state
    };
    for round in 0..1000 {
        let [old, left, right, mut room] = [(); 4].map(|()| core::array::from_fn(|_| random()));
        let (mut one, mut other) = (old, old);
        block::mix(&mut one, &left, &right, &mut room);
        wide(&mut other, &left, &right, &mut room);
        assert!(one == other && one != old, "round {round}");
    }
    // Words whose sums and products carry as far as they can.
    for (left, right) in [([u64::MAX; 128], [0; 128]), ([0; 128], [0xffff_ffff; 128])] {
        let (mut one, mut other, mut room) = ([0; 128], [0; 128], [0; 128]);
        block::mix(&mut one, &left, &right, &mut room);
        wide(&mut other, &left, &right, &mut room);
        assert_eq!(one, other);
    }
}

#[test]
fn costs_that_make_no_sense_are_refused() {
    let inputs = Inputs { passphrase: b"x", salt: b"8 bytes.", secret: &[], data: &[] };
    let good = Parameters { variant: Variant::Id, memory_kib: 64, passes: 1, lanes: 1 };
    let refused = |parameters: Parameters, inputs: &Inputs<'_>, tag: &mut [u8]| {
        matches!(derive(parameters, inputs, &Alone, tag), Err(Failure::Parameters(_)))
    };
    assert!(!refused(good, &inputs, &mut [0; 32]));
    assert!(refused(Parameters { lanes: 0, ..good }, &inputs, &mut [0; 32]));
    assert!(refused(Parameters { lanes: 9, ..good }, &inputs, &mut [0; 32]));
    assert!(refused(Parameters { lanes: u32::MAX, ..good }, &inputs, &mut [0; 32]));
    assert!(refused(Parameters { passes: 0, ..good }, &inputs, &mut [0; 32]));
    assert!(refused(Parameters { memory_kib: 7, ..good }, &inputs, &mut [0; 32]));
    assert!(refused(good, &Inputs { salt: b"short", ..inputs }, &mut [0; 32]));
    assert!(refused(good, &inputs, &mut [0; 33]));
}
