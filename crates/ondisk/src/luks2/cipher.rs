//! What areas and data are encrypted with: areas by AES in XTS mode with the sector's number as tweak, which is done here;
//! data as the kernel does it.
//!
//! Source: IEEE 1619; `aes-xts-plain64` of dm-crypt; Crowley and Biggers, Adiantum (2018), for its key.

use aes::cipher::KeyInit as _;
use aes::{Aes128, Aes256};
use serde::{Deserialize, Serialize};
use xts_mode::{Xts128, get_tweak_default};

/// The only name of an area's cipher that is known here.
pub(super) const NAME: &str = "aes-xts-plain64";
/// Key of an area whose data has another cipher: as cryptsetup does where it cannot use the data's.
const AREA_KEY_BYTES: usize = 64;

/// What data is encrypted with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cipher {
    /// AES in XTS mode.
    #[default]
    AesXts,
    /// Adiantum with 12 rounds, for processors without AES.
    Adiantum12,
    /// Adiantum with 20 rounds.
    Adiantum20,
}

impl Cipher {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::AesXts, Self::Adiantum12, Self::Adiantum20];

    /// As headers and dm-crypt name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AesXts => NAME,
            Self::Adiantum12 => "xchacha12,aes-adiantum-plain64",
            Self::Adiantum20 => "xchacha20,aes-adiantum-plain64",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cipher| cipher.name() == name)
    }

    /// Lengths of its key in bytes, the usual one first.
    #[must_use]
    pub fn key_bytes(self) -> &'static [usize] {
        match self {
            Self::AesXts => &[64, 32],
            Self::Adiantum12 | Self::Adiantum20 => &[32],
        }
    }

    /// Length of the keys of its slots' areas.
    pub(super) fn area_key_bytes(self, key_bytes: usize) -> usize {
        match self {
            Self::AesXts => key_bytes,
            Self::Adiantum12 | Self::Adiantum20 => AREA_KEY_BYTES,
        }
    }
}

/// Whether data can be mapped that has this cipher and a key of this length.
pub(super) fn maps(name: &str, key_bytes: usize) -> bool {
    Cipher::named(name).is_some_and(|cipher| cipher.key_bytes().contains(&key_bytes))
}

/// Areas of slots are encrypted in sectors of this, whatever the data's.
pub(super) const SECTOR_BYTES: usize = 512;

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Encrypt,
    Decrypt,
}

/// Whether an area's cipher and the length of its key, both halves together, are known.
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
