//! The slots of a header made to hold the keys of the config, no more and no others.
//!
//! Order: the keys of the config first, then the slots that the config does not name go: at any moment there is a key of the
//! old and the new config that opens. The key that opened the volume is left alone, unless it is sealed under settings that
//! are not the config's any more: then the new one takes its slot in one commit of the header, after it was unsealed once.
//! Fails by: collecting: what could be done is done, the rest is told and tried again at the next opening.
//! Source: docs/users/encryption.md.

use ondisk::luks2::{Change, ChangeError, Header, Id, RandomBytes};
use unlock::{SealedKey, Threads};

use super::vault::mint;
use super::{Key, KeySecret, Opened, is_other_key, new_slot, one_a_slot};
use crate::device::BlockDevice;

/// What the slots are to hold.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'k> {
    /// The keys of the config, which the opening one is of.
    pub keys: &'k [Key],
    /// Slots of keys that the config names and that cannot be had now.
    pub kept: &'k [u8],
    /// Slots whose sealed key is of no use any more and is made anew.
    pub sealed_anew: &'k [u8],
}

/// What was done to the slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Synchronised {
    /// Slots that got their key.
    pub added: Vec<u8>,
    /// Slots that held another key.
    pub replaced: Vec<u8>,
    /// Slots that the config does not name any more.
    pub removed: Vec<u8>,
    /// What could not be done, by slot.
    pub problems: Vec<(u8, String)>,
}

/// Makes the slots of an opened volume those of the config.
pub fn synchronise(
    part: &mut dyn BlockDevice,
    opened: &mut Opened,
    wanted: Wanted<'_>,
    random: RandomBytes<'_>,
) -> Synchronised {
    let mut done = Synchronised::default();
    let own = opened.unlocked.slot;
    for key in one_a_slot(wanted.keys) {
        if key.slot == own && !key.is_bound_otherwise(&opened.header) {
            continue;
        }
        let anew = wanted.sealed_anew.contains(&key.slot);
        match bring(part, opened, key, anew, random) {
            Ok(Brought::Nothing) => {}
            Ok(Brought::Added) => done.added.push(key.slot),
            Ok(Brought::Replaced) => done.replaced.push(key.slot),
            Err(reason) => done.problems.push((key.slot, format!("key slot {}: {reason}", key.slot))),
        }
    }
    let is_wanted = |id: &Id| {
        id.0 == own || wanted.kept.contains(&id.0) || wanted.keys.iter().any(|key| key.slot == id.0)
    };
    let slots = opened.header.metadata.keyslots.keys();
    let surplus: Vec<Id> = slots.filter(|id| !is_wanted(id)).copied().collect();
    for id in surplus {
        let change = opened.header.remove(id);
        match self::change(part, &mut opened.header, change) {
            Ok(()) => done.removed.push(id.0),
            Err(error) => done.problems.push((id.0, format!("remove key slot {id}: {error}"))),
        }
    }
    done
}

enum Brought {
    Nothing,
    Added,
    Replaced,
}

/// What a slot holds, measured by a key of the config.
enum Holds {
    /// That key.
    It,
    /// That key, sealed under settings that are not these, or by another system.
    Renamed(SealedKey),
    /// Something else.
    Other,
}

/// Sees to it that a key opens its slot.
fn bring(
    part: &mut dyn BlockDevice,
    opened: &mut Opened,
    key: &Key,
    anew: bool,
    random: RandomBytes<'_>,
) -> Result<Brought, String> {
    let slot = Id(key.slot);
    let is_there = opened.header.metadata.keyslots.contains_key(&slot);
    if is_there {
        match holds(part, opened, key, anew)? {
            Holds::It => return Ok(Brought::Nothing),
            Holds::Renamed(sealed) => {
                let settings = key.settings(Some(&sealed));
                let change = opened.header.with_token(slot, SealedKey { settings, ..sealed }.token_of(slot));
                return self::change(part, &mut opened.header, change).map(|()| Brought::Nothing);
            }
            Holds::Other => {}
        }
    }
    let minted = mint(&[key], Some(&opened.header), random)
        .pop()
        .ok_or("no key was made")?
        .map_err(|refused| refused.why)?;
    let new = new_slot(&minted);
    let volume_key = &opened.unlocked.key;
    let (change, brought) = match is_there {
        true => (opened.header.replace(volume_key, slot, &new, random), Brought::Replaced),
        false => (opened.header.add(volume_key, &new, random), Brought::Added),
    };
    self::change(part, &mut opened.header, change).map(|()| brought)
}

/// A sealed key whose settings are the config's is not unsealed: the server may be down, and the slot stays all the same.
fn holds(part: &mut dyn BlockDevice, opened: &Opened, key: &Key, anew: bool) -> Result<Holds, String> {
    let slot = Id(key.slot);
    let (secret, sealed) = match &key.secret {
        KeySecret::Known(secret) => (secret.clone(), None),
        KeySecret::Sealed(_) if anew => return Ok(Holds::Other),
        KeySecret::Sealed(_) => {
            let Some(sealed) = key.held(&opened.header) else { return Ok(Holds::Other) };
            if sealed.settings == key.settings(Some(&sealed)) {
                return Ok(Holds::It);
            }
            if key.is_bound_otherwise(&opened.header) {
                return Ok(Holds::Other);
            }
            match key.unseal(Some(&sealed)) {
                Ok(secret) => (secret, Some(sealed)),
                Err(_) => return Ok(Holds::Other),
            }
        }
    };
    match opened.header.unlock_with(&mut &mut *part, &secret, Some(slot), &Threads) {
        Ok(_) => Ok(sealed.map_or(Holds::It, Holds::Renamed)),
        Err(error) if is_other_key(&error) => Ok(Holds::Other),
        // Too little memory, say: what the slot holds is not known, so it stays.
        Err(error) => Err(error.to_string()),
    }
}

fn change(
    part: &mut dyn BlockDevice,
    header: &mut Header,
    change: Result<Change, ChangeError>,
) -> Result<(), String> {
    let change = change.map_err(|error| error.to_string())?;
    for step in &change.steps {
        super::write(part, step).map_err(|error| error.to_string())?;
    }
    *header = change.header;
    Ok(())
}
