//! Changes to a header, as steps of writes: format, add, replace and remove a slot, tokens, repair.
//!
//! Order: bytes that a header names are there before it names them; a passphrase that is taken away is first made useless,
//! then forgotten. The first copy before the second: a cut between them leaves the newer whole, a cut within leaves the older.
//! Does not: write. Every step must be durable before the next.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::binary::{BINARY_BYTES, Binary, COPY_LENGTHS, Copy};
use super::kdf::{self, Cost, KdfError};
use super::metadata::{Area, Config, Digest, Id, Metadata, Segment, Token};
use super::slot;
use super::validate;
use super::{Cipher, Header, Invalid, RandomBytes, SLOTS};
use crate::field::round_up;
use crate::{Extent, Step};

/// Rounds of the digest, as cryptsetup's least: the key it is made of has full entropy.
const DIGEST_ROUNDS: u32 = 1000;
const DIGEST_BYTES: usize = 32;
const DIGEST_SALT_BYTES: usize = 32;
/// Zeros are written in pieces of this.
const ZEROS: &[u8] = &[0; 64 << 10];

/// A slot to be made.
#[derive(Clone, Copy)]
pub struct NewSlot<'a> {
    /// Its number; `None` for the lowest free one.
    pub slot: Option<Id>,
    /// What will open it.
    pub passphrase: &'a [u8],
    /// What deriving its key costs.
    pub cost: Cost,
    /// What its owner keeps beside it: becomes the token of the slot's number, and names the slot.
    pub token: Option<&'a Token>,
}

/// A new header, and the writes that make it the device's.
#[derive(Debug)]
pub struct Change {
    /// The header once all is written.
    pub header: Header,
    /// The writes, in order.
    pub steps: Vec<Step<'static>>,
}

/// Why a header cannot be changed so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeError {
    /// The slot is in use.
    Taken(Id),
    /// There is no such slot.
    Missing(Id),
    /// All slots are in use.
    Full,
    /// It is the only one; without it nobody can open the volume.
    Last(Id),
    /// No gap between the areas has this many bytes.
    NoRoom(u64),
    /// The key is not the volume's.
    Key,
    /// The JSON has outgrown its area.
    Json,
    /// No key could be derived.
    Kdf(KdfError),
    /// The new header would break a rule.
    Invalid(Invalid),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(slot) => write!(f, "key slot {slot} is in use"),
            Self::Missing(slot) => write!(f, "there is no key slot {slot}"),
            Self::Full => write!(f, "all {SLOTS} key slots are in use: remove one first"),
            Self::Last(slot) => {
                write!(f, "key slot {slot} is the only one: without it nobody can open the volume")
            }
            Self::NoRoom(bytes) => {
                write!(f, "no gap of {bytes} bytes between the key slots' areas: remove one first")
            }
            Self::Key => f.write_str("the key is not this volume's"),
            Self::Json => f.write_str("the header's JSON area is full: remove a slot or token first"),
            Self::Kdf(error) => error.fmt(f),
            Self::Invalid(invalid) => write!(f, "the new header would be wrong: {invalid}"),
        }
    }
}

impl core::error::Error for ChangeError {}

/// What a new volume is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Identity, as text.
    pub uuid: String,
    /// A name for people; may be empty.
    pub label: String,
    /// A name for programs; may be empty.
    pub subsystem: String,
    /// Length of one copy of the header.
    pub copy_bytes: u64,
    /// Where the data begins; the slots' areas fill what is before it.
    pub data_offset: u64,
    /// What the data is encrypted with.
    pub cipher: Cipher,
    /// Bytes of data that are encrypted together: 512 to 4096.
    pub sector_size: u32,
    /// How the data is to be opened: `allow-discards`, `no-read-workqueue`, …
    pub flags: Vec<String>,
}

impl Format {
    /// As cryptsetup does without options: 16 KiB a copy, data at 16 MiB.
    pub fn new(uuid: &str, sector_size: u32) -> Self {
        Self {
            uuid: uuid.into(),
            label: String::new(),
            subsystem: String::new(),
            copy_bytes: COPY_LENGTHS[0],
            data_offset: 16 << 20,
            cipher: Cipher::AesXts,
            sector_size,
            flags: Vec::new(),
        }
    }

    /// A header for this volume key, as many random bytes as the cipher takes, with its first slots. Everything before the data is overwritten,
    /// so that no older key survives.
    pub fn make(
        &self,
        key: &[u8],
        slots: &[NewSlot<'_>],
        random: RandomBytes<'_>,
    ) -> Result<Change, ChangeError> {
        if !self.cipher.key_bytes().contains(&key.len()) {
            return Err(ChangeError::Key);
        }
        let mut salts = [[0; 64]; 2];
        salts.iter_mut().for_each(|salt| random(salt));
        let mut header = Header {
            uuid: self.uuid.clone(),
            label: self.label.clone(),
            subsystem: self.subsystem.clone(),
            epoch: 0,
            metadata: self.metadata(key, random)?,
            copy_bytes: self.copy_bytes,
            salts,
        };
        let mut areas = Vec::new();
        for slot in slots {
            areas.push(header.insert(key, slot, random)?);
        }
        let mut change = header.committed()?;
        change.steps.insert(0, areas);
        change.steps.insert(0, zeros(0, self.data_offset));
        Ok(change)
    }

    fn metadata(&self, key: &[u8], random: RandomBytes<'_>) -> Result<Metadata, ChangeError> {
        let copies = self.copy_bytes.saturating_mul(2);
        let unknown = serde_json::Map::new;
        let config = Config {
            json_size: self.copy_bytes.saturating_sub(BINARY_BYTES as u64),
            keyslots_size: self.data_offset.saturating_sub(copies),
            flags: self.flags.clone(),
            requirements: None,
            unknown: unknown(),
        };
        let segment = Segment {
            kind: "crypt".into(),
            offset: self.data_offset,
            size: "dynamic".into(),
            iv_tweak: Some(0),
            encryption: Some(self.cipher.name().into()),
            sector_size: Some(self.sector_size),
            integrity: None,
            flags: Vec::new(),
            unknown: unknown(),
        };
        let mut salt = alloc::vec![0; DIGEST_SALT_BYTES];
        random(&mut salt);
        let mut digest = alloc::vec![0; DIGEST_BYTES];
        kdf::pbkdf2("sha256", key, &salt, DIGEST_ROUNDS, &mut digest).map_err(ChangeError::Kdf)?;
        let digest = Digest {
            kind: "pbkdf2".into(),
            keyslots: Vec::new(),
            segments: alloc::vec![Id(0)],
            hash: Some("sha256".into()),
            iterations: Some(DIGEST_ROUNDS),
            salt,
            digest,
            unknown: unknown(),
        };
        Ok(Metadata::new(config, segment, digest))
    }
}

impl Header {
    /// One slot more.
    pub fn add(
        &self,
        key: &[u8],
        slot: &NewSlot<'_>,
        random: RandomBytes<'_>,
    ) -> Result<Change, ChangeError> {
        let mut header = self.clone();
        let area = header.insert(key, slot, random)?;
        let mut change = header.committed()?;
        change.steps.insert(0, alloc::vec![area]);
        Ok(change)
    }

    /// Another secret in a slot that is in use. The old one opens until the new one does. The token of its number goes with
    /// the old secret where it is for no other slot.
    pub fn replace(
        &self,
        key: &[u8],
        slot: Id,
        new: &NewSlot<'_>,
        random: RandomBytes<'_>,
    ) -> Result<Change, ChangeError> {
        let old = self.metadata.keyslots.get(&slot).ok_or(ChangeError::Missing(slot))?;
        let mut header = self.clone();
        // Its area is still taken while the new one is looked for: it moves to a number that no slot has.
        header.metadata.keyslots.remove(&slot);
        header.metadata.keyslots.insert(RESERVED, old.clone());
        header.forget_references(slot);
        header.forget_token(slot);
        let area = header.insert(key, &NewSlot { slot: Some(slot), ..*new }, random)?;
        header.metadata.keyslots.remove(&RESERVED);
        let mut change = header.committed()?;
        change.steps.insert(0, alloc::vec![area]);
        change.steps.extend(old.area.as_ref().map(wiped));
        Ok(change)
    }

    /// One slot less, and the token of its number where that is for no other slot. The last one stays.
    pub fn remove(&self, slot: Id) -> Result<Change, ChangeError> {
        let old = self.metadata.keyslots.get(&slot).ok_or(ChangeError::Missing(slot))?;
        if self.metadata.keyslots.len() == 1 {
            return Err(ChangeError::Last(slot));
        }
        let mut header = self.clone();
        header.metadata.keyslots.remove(&slot);
        header.forget_references(slot);
        header.forget_token(slot);
        for token in header.metadata.tokens.values_mut() {
            token.keyslots.retain(|id| *id != slot);
        }
        let mut change = header.committed()?;
        // Before the header forgets it: a cut in between leaves a slot that opens for nobody.
        change.steps.splice(0..0, old.area.as_ref().map(wiped));
        Ok(change)
    }

    /// Sets a token, or removes it.
    pub fn with_token(&self, id: Id, token: Option<Token>) -> Result<Change, ChangeError> {
        let mut header = self.clone();
        match token {
            Some(token) => drop(header.metadata.tokens.insert(id, token)),
            None => drop(header.metadata.tokens.remove(&id)),
        }
        header.committed()
    }

    /// The write that makes a copy say what this header says.
    pub fn repair(&self, copy: Copy) -> Result<Step<'static>, ChangeError> {
        let json = serde_json::to_vec(&self.metadata).map_err(|_| ChangeError::Json)?;
        let [first, second] = self.salts;
        let binary = Binary {
            copy_bytes: self.copy_bytes,
            epoch: self.epoch,
            label: self.label.clone(),
            salt: if copy == Copy::First { first } else { second },
            uuid: self.uuid.clone(),
            subsystem: self.subsystem.clone(),
        };
        let bytes = binary.copy(copy, &json).ok_or(ChangeError::Json)?;
        Ok(alloc::vec![Extent::new(copy.offset(self.copy_bytes), bytes)])
    }

    /// The next epoch, as writes of both copies.
    fn committed(mut self) -> Result<Change, ChangeError> {
        self.epoch = self.epoch.saturating_add(1);
        validate::check(&self.metadata, self.copy_bytes).map_err(ChangeError::Invalid)?;
        let steps = alloc::vec![self.repair(Copy::First)?, self.repair(Copy::Second)?];
        Ok(Change { header: self, steps })
    }

    /// Names a new slot and gives the bytes of its area.
    fn insert(
        &mut self,
        key: &[u8],
        new: &NewSlot<'_>,
        random: RandomBytes<'_>,
    ) -> Result<Extent<'static>, ChangeError> {
        let id = self.free_slot(new.slot)?;
        let digest = self.digest_of_key(key)?;
        let length = slot::area_bytes(key.len()).ok_or(ChangeError::Key)?;
        let offset = self.gap(length).ok_or(ChangeError::NoRoom(length))?;
        let place = slot::Place { offset, key_bytes: self.data_cipher().area_key_bytes(key.len()) };
        let (slot, bytes) =
            slot::make(key, new.passphrase, new.cost, place, random).map_err(ChangeError::Kdf)?;
        self.metadata.keyslots.insert(id, slot);
        if let Some(digest) = self.metadata.digests.get_mut(&digest) {
            digest.keyslots.push(id);
            digest.keyslots.sort();
        }
        if let Some(token) = new.token {
            let token = Token { keyslots: alloc::vec![id], ..token.clone() };
            self.metadata.tokens.insert(id, token);
        }
        Ok(Extent::new(offset, bytes))
    }

    /// What the data is encrypted with; the usual where it is not known, which no slot of ours is made for.
    fn data_cipher(&self) -> Cipher {
        let names = self.metadata.segments.values().filter_map(|segment| segment.encryption.as_deref());
        names.filter_map(Cipher::named).next().unwrap_or_default()
    }

    fn free_slot(&self, wanted: Option<Id>) -> Result<Id, ChangeError> {
        let taken = |id: &Id| self.metadata.keyslots.contains_key(id);
        match wanted {
            Some(id) if taken(&id) => Err(ChangeError::Taken(id)),
            Some(id) => Ok(id),
            None => (0..SLOTS).map(Id).find(|id| !taken(id)).ok_or(ChangeError::Full),
        }
    }

    /// The digest that this key has.
    fn digest_of_key(&self, key: &[u8]) -> Result<Id, ChangeError> {
        for (id, digest) in &self.metadata.digests {
            if kdf::matches(digest, key).map_err(ChangeError::Kdf)? {
                return Ok(*id);
            }
        }
        Err(ChangeError::Key)
    }

    /// Where the first gap of this length begins.
    fn gap(&self, length: u64) -> Option<u64> {
        let start = self.copy_bytes.checked_mul(2)?;
        let end = start.checked_add(self.metadata.config.keyslots_size)?;
        let mut areas: Vec<&Area> =
            self.metadata.keyslots.values().filter_map(|slot| slot.area.as_ref()).collect();
        areas.sort_by_key(|area| area.offset);
        let mut candidate = start;
        for area in areas {
            if candidate.checked_add(length)? <= area.offset {
                break;
            }
            candidate = round_up(area.offset.checked_add(area.size)?, validate::AREA_STEP)?;
        }
        (candidate.checked_add(length)? <= end).then_some(candidate)
    }

    fn forget_references(&mut self, slot: Id) {
        for digest in self.metadata.digests.values_mut() {
            digest.keyslots.retain(|id| *id != slot);
        }
    }

    /// A token of the slot's number is the slot's own, unless it names others.
    fn forget_token(&mut self, slot: Id) {
        let own = |token: &Token| token.keyslots.iter().all(|id| *id == slot);
        if self.metadata.tokens.get(&slot).is_some_and(own) {
            self.metadata.tokens.remove(&slot);
        }
    }
}

/// A number that no slot may have.
const RESERVED: Id = Id(u8::MAX);

fn wiped(area: &Area) -> Step<'static> {
    zeros(area.offset, area.size)
}

fn zeros(offset: u64, length: u64) -> Step<'static> {
    let mut step = Vec::new();
    let mut done = 0;
    while done < length {
        let piece = usize::try_from(length - done).unwrap_or(usize::MAX).min(ZEROS.len());
        step.push(Extent::new(offset.saturating_add(done), ZEROS.get(..piece).unwrap_or_default()));
        done = done.saturating_add(u64::try_from(piece).unwrap_or(u64::MAX));
    }
    step
}
