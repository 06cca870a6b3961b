//! What the log hears of the keys of a volume.

use unlock::{Kind, Record};

use super::handle::Volumes;
use super::opening::Done;

/// Tells what was done to a header.
pub(super) fn header(volumes: &Volumes, name: &str, done: &Done) {
    if let Some(mended) = &done.mended {
        volumes.runtime.journal.warn(&format!("{name}: {mended}"));
    }
    for reason in &done.refused {
        volumes.runtime.journal.warn(&format!("{name}: {reason}"));
    }
    for (slots, what) in [(&done.added, "added"), (&done.replaced, "replaced"), (&done.removed, "removed")] {
        for slot in slots {
            volumes.runtime.journal.say(&format!("{name}: the key in slot {slot} was {what}"));
        }
    }
    for (_, binding) in &done.bindings {
        volumes.runtime.journal.say(&format!("{name}: {binding}"));
    }
    for (_, reason) in done.failed.iter().filter(|(_, reason)| !done.refused.contains(reason)) {
        volumes.runtime.journal.warn(&format!("{name} is not in step with the machine config: {reason}"));
    }
}

/// Says where a recovery key that was just made is.
pub(super) fn recovery_key(volumes: &Volumes, name: &str, wanted: &Record, done: &Done, is_new: bool) {
    for slot in new_keys(wanted, done, is_new) {
        volumes.runtime.journal.say(&format!(
            "{name}: a new recovery key is in slot {slot}; keep it: billetctl disk recovery-key {name}"
        ));
    }
}

pub(super) fn new_keys(wanted: &Record, done: &Done, is_new: bool) -> Vec<u8> {
    let keys = wanted.keys.iter().filter(|key| matches!(key.kind, Kind::Recovery { .. }));
    let is_made = |slot: &u8| match is_new {
        true => done.failed.iter().all(|(failed, _)| failed != slot),
        false => done.added.contains(slot) || done.replaced.contains(slot),
    };
    keys.map(|key| key.slot).filter(is_made).collect()
}
