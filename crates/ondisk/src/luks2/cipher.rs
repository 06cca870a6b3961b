//! AES in XTS mode with the sector's number as tweak: what areas and data are encrypted with.
//!
//! Source: IEEE 1619; `aes-xts-plain64` of dm-crypt.

use aes::cipher::KeyInit as _;
use aes::{Aes128, Aes256};
use xts_mode::{Xts128, get_tweak_default};

/// The only name that is known here.
pub(super) const NAME: &str = "aes-xts-plain64";

/// Areas of slots are encrypted in sectors of this, whatever the data's.
pub(super) const SECTOR_BYTES: usize = 512;

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Encrypt,
    Decrypt,
}

/// Whether the name and the key's length, for both halves together, are known.
pub(super) fn known(name: &str, key_bytes: usize) -> bool {
    name == NAME && matches!(key_bytes, 32 | 64)
}

/// Changes whole sectors in place, the first having the number 0. `None` for a key of another length or a broken sector.
pub(super) fn sectors(key: &[u8], area: &mut [u8], direction: Direction) -> Option<()> {
    if !area.len().is_multiple_of(SECTOR_BYTES) {
        return None;
    }
    let (data, tweak) = key.split_at_checked(key.len() / 2)?;
    match key.len() {
        32 => run(
            &Xts128::new(Aes128::new_from_slice(data).ok()?, Aes128::new_from_slice(tweak).ok()?),
            area,
            direction,
        ),
        64 => run(
            &Xts128::new(Aes256::new_from_slice(data).ok()?, Aes256::new_from_slice(tweak).ok()?),
            area,
            direction,
        ),
        _ => return None,
    }
    Some(())
}

fn run<C>(xts: &Xts128<C>, area: &mut [u8], direction: Direction)
where
    C: aes::cipher::BlockCipherEncrypt
        + aes::cipher::BlockCipherDecrypt
        + aes::cipher::BlockSizeUser<BlockSize = aes::cipher::consts::U16>,
{
    match direction {
        Direction::Encrypt => xts.encrypt_area(area, SECTOR_BYTES, 0, get_tweak_default),
        Direction::Decrypt => xts.decrypt_area(area, SECTOR_BYTES, 0, get_tweak_default),
    }
}
