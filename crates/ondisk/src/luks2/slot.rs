//! One slot: its area, opened with a passphrase and made for one.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use zeroize::Zeroizing;

use super::argon2::{Alone, Workers};
use super::cipher::{self, Cipher, Direction, SECTOR_BYTES};
use super::kdf::{self, Cost, KdfError};
use super::metadata::{Area, Id, Keyslot, Metadata, Split};
use super::split::{self, Hash};
use super::validate::{AREA_STEP, STRIPES};
use super::{RandomBytes, Secret};
use crate::field::round_up;
use crate::{ReadAt, ReadError};

/// Why a slot gave no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotError {
    /// There is no such slot.
    Missing,
    /// It holds no key for us: a step of a re-encryption, or a key of nothing.
    Kind(String),
    /// Its area is encrypted in a way that is not known here.
    Cipher {
        /// The cipher's name.
        name: String,
        /// Its key's length.
        key_bytes: u32,
    },
    /// No key could be derived.
    Kdf(KdfError),
    /// Its area could not be read.
    Read(ReadError),
    /// The passphrase is not this slot's.
    Passphrase,
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no such key slot"),
            Self::Kind(kind) => write!(f, "it is of type {kind:?} and holds no key of the volume"),
            Self::Cipher { name, key_bytes } => {
                write!(
                    f,
                    "its area is encrypted with {name} and {key_bytes} bytes of key, which is not known here"
                )
            }
            Self::Kdf(error) => error.fmt(f),
            Self::Read(error) => error.fmt(f),
            Self::Passphrase => f.write_str("the passphrase is not its own"),
        }
    }
}

impl core::error::Error for SlotError {}

/// The volume key out of a slot; only a key that its digest knows.
pub(super) fn open<W: Workers>(
    metadata: &Metadata,
    id: Id,
    device: &mut impl ReadAt,
    passphrase: &[u8],
    workers: &W,
) -> Result<Secret, SlotError> {
    let slot = metadata.keyslots.get(&id).ok_or(SlotError::Missing)?;
    let kind = || SlotError::Kind(slot.kind.clone());
    let (Some(af), Some(area), Some(kdf), "luks2") = (&slot.af, &slot.area, &slot.kdf, slot.kind.as_str())
    else {
        return Err(kind());
    };
    let (_, digest) = metadata.digest_of(id).ok_or_else(kind)?;
    let derive = |key_bytes| kdf::derive(kdf, passphrase, key_bytes, workers);
    let key = merged(device, area, af, slot.key_size, derive)?;
    if kdf::matches(digest, &key).map_err(SlotError::Kdf)? { Ok(key) } else { Err(SlotError::Passphrase) }
}

/// What the passphrase makes of the area. It may be anything.
fn merged(
    device: &mut impl ReadAt,
    area: &Area,
    af: &Split,
    key_size: u32,
    derive: impl FnOnce(usize) -> Result<Secret, KdfError>,
) -> Result<Secret, SlotError> {
    let (name, key_bytes) = (area.encryption.clone().unwrap_or_default(), area.key_size.unwrap_or_default());
    let unknown = || SlotError::Cipher { name: name.clone(), key_bytes };
    let area_key_bytes = usize::try_from(key_bytes).map_err(|_| unknown())?;
    // Before the derivation, which may take seconds and a gigabyte.
    let cipher = cipher::known(&name, area_key_bytes).ok_or_else(unknown)?;
    let hash = Hash::of(&af.hash).ok_or_else(|| SlotError::Kdf(KdfError::Hash(af.hash.clone())))?;
    let key_bytes = usize::try_from(key_size).map_err(|_| unknown())?;
    let (spread, stored) = lengths(key_bytes).ok_or_else(unknown)?;
    let area_key = derive(area_key_bytes).map_err(SlotError::Kdf)?;
    let mut pieces = Zeroizing::new(alloc::vec![0; stored]);
    device.read_at(area.offset, &mut pieces).map_err(SlotError::Read)?;
    cipher::sectors(cipher, &area_key, &mut pieces, Direction::Decrypt).ok_or_else(unknown)?;
    split::merge(pieces.get(..spread).unwrap_or_default(), key_bytes, hash).ok_or_else(unknown)
}

/// Bytes of a key that is split, and of the whole sectors that hold them.
fn lengths(key_bytes: usize) -> Option<(usize, usize)> {
    let spread = key_bytes.checked_mul(usize::try_from(STRIPES).ok()?)?;
    Some((spread, spread.checked_next_multiple_of(SECTOR_BYTES)?))
}

/// Bytes of the area that a key of this length gets.
pub(super) fn area_bytes(key_bytes: usize) -> Option<u64> {
    round_up(u64::try_from(lengths(key_bytes)?.0).ok()?, AREA_STEP)
}

/// Where the area of a new slot is, and how long the key that it is encrypted with.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) key_bytes: usize,
}

/// A slot for a volume key, and the bytes of its area, which has room for them at its place.
pub(super) fn make(
    key: &[u8],
    passphrase: &[u8],
    cost: Cost,
    place: Place,
    random: RandomBytes<'_>,
) -> Result<(Keyslot, Vec<u8>), KdfError> {
    let impossible = || KdfError::Parameters("a volume key has 32 or 64 bytes".into());
    let kdf = cost.stated(random);
    let area_key = kdf::derive(&kdf, passphrase, place.key_bytes, &Alone)?;
    let (spread, stored) = lengths(key.len()).ok_or_else(impossible)?;
    let mut pieces = Zeroizing::new(alloc::vec![0; stored]);
    let own = pieces.get_mut(..spread).ok_or_else(impossible)?;
    split::split(key, own, Hash::Sha256, random).ok_or_else(impossible)?;
    cipher::sectors(Cipher::AesXts, &area_key, &mut pieces, Direction::Encrypt).ok_or_else(impossible)?;
    let length = |bytes: usize| u32::try_from(bytes).map_err(|_| impossible());
    let unknown = serde_json::Map::new;
    let slot = Keyslot {
        kind: "luks2".into(),
        key_size: length(key.len())?,
        af: Some(Split { kind: "luks1".into(), stripes: STRIPES, hash: "sha256".into(), unknown: unknown() }),
        area: Some(Area {
            kind: "raw".into(),
            offset: place.offset,
            size: area_bytes(key.len()).ok_or_else(impossible)?,
            encryption: Some(Cipher::AesXts.name().into()),
            key_size: Some(length(place.key_bytes)?),
            unknown: unknown(),
        }),
        kdf: Some(kdf),
        priority: None,
        unknown: unknown(),
    };
    Ok((slot, pieces.to_vec()))
}
