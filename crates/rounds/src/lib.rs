//! Rounds of a test with random choices: how many, from which seed, and how a message is broken. For tests of every crate.
//!
//! Owns: `BILLET_LONG=1` (the counts of a long run), `BILLET_SEED` (the first seed), the line that names the seed of a round that
//! failed.
#![warn(missing_docs)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;

/// The long count with `BILLET_LONG=1`, else the short one.
#[must_use]
pub fn count(short: u64, long: u64) -> u64 {
    if std::env::var("BILLET_LONG").is_ok_and(|value| value == "1") { long } else { short }
}

/// `BILLET_SEED`, or another one in each process.
#[must_use]
pub fn first_seed() -> u64 {
    let given = std::env::var("BILLET_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(u64::from(std::process::id()) << 32)
}

/// Plays that many rounds, each with a seed of its own.
///
/// # Panics
/// When a round does; its seed is printed.
pub fn play(rounds: u64, round: impl Fn(u64)) {
    let first = first_seed();
    for seed in (0..rounds).map(|number| first.wrapping_add(number)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| round(seed))) {
            eprintln!("round of BILLET_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// Breaks a message in one to four places: bits, bytes, its length, parts that come twice. `telling`: bytes that mean something
/// in its format. It never gets empty.
pub fn mutate(message: &mut Vec<u8>, telling: &[u8], random: &mut Rng) {
    for _ in 0..random.u8(1..5) {
        if message.is_empty() {
            message.push(0);
        }
        let index = random.usize(..message.len());
        match random.u8(..6) {
            0 => message[index] ^= 1 << random.u8(..8),
            1 => message[index] = random.u8(..),
            2 => message[index] = *random.choice(telling).unwrap_or(&0),
            3 => message.truncate(index.max(1)),
            4 => message.extend_from_within(index..),
            _ => drop(message.remove(index)),
        }
    }
    if message.is_empty() {
        message.push(0);
    }
}
