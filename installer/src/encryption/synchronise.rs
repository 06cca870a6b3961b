//! The slots of a header made to hold the keys of the config, no more and no others.
//!
//! Order: the key that opened the volume is never touched. The other keys of the config first, then the slots that the
//! config does not name go: at any moment there is a key of the old and the new config that opens.
//! Fails by: collecting: what could be done is done, the rest is told and tried again at the next opening.
//! Source: spec/machine-facts.md §3.5 ("Key sync after open").

use ondisk::luks2::{Chance, Change, ChangeError, Header, Id};
use unlock::Threads;

use super::{Key, Opened, is_other_key, new_slot, one_a_slot};
use crate::device::BlockDevice;

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

/// Makes the slots of an opened volume those of `keys`, which the opening key is one of, and `kept`: slots of keys that
/// the config names and that cannot be had now.
pub fn synchronise(
    part: &mut dyn BlockDevice,
    opened: &mut Opened,
    keys: &[Key],
    kept: &[u8],
    chance: Chance<'_>,
) -> Synchronised {
    let mut done = Synchronised::default();
    let own = opened.unlocked.slot;
    for key in one_a_slot(keys).into_iter().filter(|key| key.slot != own) {
        match bring(part, opened, key, chance) {
            Ok(Brought::Nothing) => {}
            Ok(Brought::Added) => done.added.push(key.slot),
            Ok(Brought::Replaced) => done.replaced.push(key.slot),
            Err(reason) => done.problems.push((key.slot, format!("key slot {}: {reason}", key.slot))),
        }
    }
    let wanted = |id: &Id| id.0 == own || kept.contains(&id.0) || keys.iter().any(|key| key.slot == id.0);
    let surplus: Vec<Id> = opened.header.metadata.keyslots.keys().filter(|id| !wanted(id)).copied().collect();
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

/// Sees to it that a key opens its slot.
fn bring(
    part: &mut dyn BlockDevice,
    opened: &mut Opened,
    key: &Key,
    chance: Chance<'_>,
) -> Result<Brought, String> {
    let slot = Id(key.slot);
    if !opened.header.metadata.keyslots.contains_key(&slot) {
        let change = opened.header.add(&opened.unlocked.key, &new_slot(key), chance);
        return self::change(part, &mut opened.header, change).map(|()| Brought::Added);
    }
    match opened.header.unlock_with(&mut &mut *part, &key.secret, Some(slot), &Threads) {
        Ok(_) => Ok(Brought::Nothing),
        Err(error) if is_other_key(&error) => {
            let change = opened.header.replace(&opened.unlocked.key, slot, &new_slot(key), chance);
            self::change(part, &mut opened.header, change).map(|()| Brought::Replaced)
        }
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
