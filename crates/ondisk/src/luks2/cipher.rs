//! What areas and data are encrypted with, the sector's number as tweak: areas here, data by the kernel.
//!
//! Does not: make areas with anything but AES in XTS mode, which every cryptsetup opens.
//! Source: IEEE 1619; `aes-xts-plain64` of dm-crypt; see `adiantum` for that.

use aes::cipher::KeyInit as _;
use aes::{Aes128, Aes256};
use serde::{Deserialize, Serialize};
use xts_mode::{Xts128, get_tweak_default};

use super::adiantum::Adiantum;

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
            Self::AesXts => "aes-xts-plain64",
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

    /// Length of the keys of the areas of new slots.
    pub(super) fn area_key_bytes(self, key_bytes: usize) -> usize {
        match self {
            Self::AesXts => key_bytes,
            Self::Adiantum12 | Self::Adiantum20 => AREA_KEY_BYTES,
        }
    }
}

/// Areas of slots are encrypted in sectors of this, whatever the data's.
pub(super) const SECTOR_BYTES: usize = 512;

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Encrypt,
    Decrypt,
}

/// The cipher of this name, if it takes a key of this length.
pub(super) fn known(name: &str, key_bytes: usize) -> Option<Cipher> {
    Cipher::named(name).filter(|cipher| cipher.key_bytes().contains(&key_bytes))
}

/// Changes whole sectors in place, the first having the number 0. `None` for a key of another length or a broken sector.
pub(super) fn sectors(cipher: Cipher, key: &[u8], area: &mut [u8], direction: Direction) -> Option<()> {
    if !area.len().is_multiple_of(SECTOR_BYTES) {
        return None;
    }
    match cipher {
        Cipher::AesXts => aes_xts(key, area, direction),
        Cipher::Adiantum12 => adiantum(&Adiantum::new(key, 12)?, area, direction),
        Cipher::Adiantum20 => adiantum(&Adiantum::new(key, 20)?, area, direction),
    }
}

fn adiantum(cipher: &Adiantum, area: &mut [u8], direction: Direction) -> Option<()> {
    (0_u64..).zip(area.chunks_mut(SECTOR_BYTES)).try_for_each(|(number, sector)| {
        let mut tweak = [0; 32];
        tweak[..8].copy_from_slice(&number.to_le_bytes());
        cipher.apply(&tweak, sector, direction)
    })
}

fn aes_xts(key: &[u8], area: &mut [u8], direction: Direction) -> Option<()> {
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
