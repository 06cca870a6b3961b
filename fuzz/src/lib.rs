//! Random inputs for everything that reads what somebody else wrote: a person, a disk, a TPM, a registry, a network, a client.
//!
//! Owns: the targets (what is called with an input, and what must hold whatever the input is), the mutations, the
//! corpus that grows by new behaviour, and the files of findings. The bounded run of CI (`tests/bounded.rs`) and
//! `cargo xtask fuzz` both come here.
//! Does not: compile anything; `xtask fuzz` does, with counters for coverage.
//! Fails by: [`Finding`]: a panic, a broken property or an input that takes too long, with the input.

mod check;
mod corpus;
mod input;
mod mutate;
mod random;
mod session;
mod shape;
mod target;
pub mod targets;

pub use random::Random;
pub use session::{Finding, Session, replay};

use std::path::{Path, PathBuf};

/// Targets say how much a call may hold.
#[global_allocator]
static HEAP: sys::heap::Counted = sys::heap::Counted;

/// The repository's root.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// FNV-1a: a number by which the file of an input is called.
pub fn name_of(input: &[u8]) -> u64 {
    input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Where findings are written when nothing else is said.
pub fn findings_directory() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    target.join("fuzz-findings")
}
