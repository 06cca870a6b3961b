//! The hashes before and after the memory.
//!
//! Source: RFC 9106 §3.2 (first hash, tag), §3.3 (hash of variable length).

use blake2::{Blake2b256, Blake2b512, Digest};
use zeroize::Zeroizing;

use super::block::{BYTES, Block};
use super::{Inputs, Parameters};

/// The version that LUKS2 has, and that RFC 9106 describes.
const VERSION: u32 = 0x13;
/// Bytes of each step of a long hash but the last.
const STEP: usize = 32;

/// The hash of all inputs; `None` where a length does not fit its field.
pub(super) fn first(
    parameters: Parameters,
    inputs: &Inputs<'_>,
    tag_bytes: usize,
) -> Option<Zeroizing<[u8; 64]>> {
    let mut hash = Blake2b512::new();
    let Parameters { variant, memory_kib, passes, lanes } = parameters;
    for number in [lanes, u32::try_from(tag_bytes).ok()?, memory_kib, passes, VERSION, variant as u32] {
        hash.update(number.to_le_bytes());
    }
    for input in [inputs.passphrase, inputs.salt, inputs.secret, inputs.data] {
        hash.update(u32::try_from(input.len()).ok()?.to_le_bytes());
        hash.update(input);
    }
    Some(Zeroizing::new(hash.finalize().into()))
}

/// One of the two blocks that a lane begins with.
pub(super) fn opening_block(first: &[u8; 64], number: u32, lane: u32) -> Block {
    const LENGTH: u32 = 1024;
    let mut bytes = Zeroizing::new([0; BYTES]);
    let hash = Blake2b512::new().chain_update(LENGTH.to_le_bytes()).chain_update(first);
    let hash = hash.chain_update(number.to_le_bytes()).chain_update(lane.to_le_bytes());
    let mut last: [u8; 64] = hash.finalize().into();
    // Of every hash but the last the first half; 1024 bytes are 30 halves and one whole.
    let (halves, whole) = bytes.split_at_mut(BYTES - 2 * STEP);
    for half in halves.chunks_exact_mut(STEP) {
        half.copy_from_slice(last.get(..STEP).unwrap_or_default());
        last = Blake2b512::digest(last).into();
    }
    whole.copy_from_slice(&last);
    Block::from_bytes(&bytes)
}

/// The tag out of the sum of the last blocks; `None` for a length that is not known here.
pub(super) fn tag(last: &Block, tag: &mut [u8]) -> Option<()> {
    let bytes = Zeroizing::new(last.to_bytes());
    let length = u32::try_from(tag.len()).ok()?.to_le_bytes();
    match tag.len() {
        32 => {
            let hash = Blake2b256::new().chain_update(length).chain_update(*bytes);
            tag.copy_from_slice(&hash.finalize());
        }
        64 => {
            let hash = Blake2b512::new().chain_update(length).chain_update(*bytes);
            tag.copy_from_slice(&hash.finalize());
        }
        _ => return None,
    }
    Some(())
}
