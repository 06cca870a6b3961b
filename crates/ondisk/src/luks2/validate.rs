//! What must hold before any value of a header is used.
//!
//! Owns: the rules, each with the object it speaks of. Every offset and length that later code adds up passes here first.
//! Source: specification §3 and what cryptsetup refuses.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use super::binary::BINARY_BYTES;
use super::metadata::{Area, Digest, Id, Kdf, Keyslot, Metadata, Segment};
use super::{SLOTS, kdf};

/// Most bytes for all slots' areas together.
const MOST_AREA_BYTES: u64 = 128 << 20;
/// Areas begin and end at multiples of this.
pub(super) const AREA_STEP: u64 = 4096;
/// Most pieces that a key is split into: what every writer makes.
pub(super) const STRIPES: u32 = 4000;
/// The longest volume key, in bytes.
const MOST_KEY_BYTES: u32 = 512;

/// A rule that a header breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// `keyslot 3`, `config`, `JSON`, …
    pub object: String,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.problem)
    }
}

impl core::error::Error for Invalid {}

type Checked = Result<(), Invalid>;

fn rule(holds: bool, object: impl fmt::Display, problem: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Invalid { object: object.to_string(), problem: problem() }) }
}

/// The JSON area of a copy as checked values. Behind the text there are only zeros.
pub(super) fn metadata(area: &[u8], copy_bytes: u64) -> Result<Metadata, Invalid> {
    let json = |problem: String| Invalid { object: "JSON".into(), problem };
    let end = area.iter().position(|byte| *byte == 0).ok_or_else(|| json("its end is missing".into()))?;
    let (text, rest) = area.split_at(end);
    if let Some(at) = rest.iter().position(|byte| *byte != 0) {
        return Err(json(format!("byte {} behind its end is not zero", end + at)));
    }
    let metadata: Metadata = serde_json::from_slice(text).map_err(|error| json(error.to_string()))?;
    check(&metadata, copy_bytes)?;
    Ok(metadata)
}

/// All rules.
pub(super) fn check(metadata: &Metadata, copy_bytes: u64) -> Checked {
    config(metadata, copy_bytes)?;
    for (id, slot) in &metadata.keyslots {
        keyslot(metadata, *id, slot, copy_bytes)?;
    }
    overlaps(metadata)?;
    segments(metadata, copy_bytes)?;
    for (id, token) in &metadata.tokens {
        let object = format!("token {id}");
        rule(id.0 < SLOTS, &object, || format!("its number is not below {SLOTS}"))?;
        references(&object, "keyslot", &token.keyslots, |slot| metadata.keyslots.contains_key(slot))?;
    }
    metadata.digests.iter().try_for_each(|(id, digest)| self::digest(metadata, *id, digest))?;
    metadata.keyslots.iter().try_for_each(|(id, slot)| one_digest(metadata, *id, slot))
}

/// With none nothing says whether a slot's key is right, with two it is not clear of what it is the key.
fn one_digest(metadata: &Metadata, id: Id, slot: &Keyslot) -> Checked {
    let count = metadata.digests.values().filter(|digest| digest.keyslots.contains(&id)).count();
    rule(slot.kind != "luks2" || count == 1, format!("keyslot {id}"), || {
        format!("it has {count} digests, not one")
    })
}

fn config(metadata: &Metadata, copy_bytes: u64) -> Checked {
    let config = &metadata.config;
    let json = u64::try_from(BINARY_BYTES).ok().and_then(|binary| copy_bytes.checked_sub(binary));
    rule(Some(config.json_size) == json, "config", || {
        format!("json_size is {} in a copy of {copy_bytes} bytes", config.json_size)
    })?;
    let size = config.keyslots_size;
    rule(size.is_multiple_of(AREA_STEP) && size <= MOST_AREA_BYTES, "config", || {
        format!("keyslots_size is {size}: not a multiple of {AREA_STEP} up to {MOST_AREA_BYTES}")
    })
}

fn keyslot(metadata: &Metadata, id: Id, slot: &Keyslot, copy_bytes: u64) -> Checked {
    let object = format!("keyslot {id}");
    rule(id.0 < SLOTS, &object, || format!("its number is not below {SLOTS}"))?;
    rule((1..=MOST_KEY_BYTES).contains(&slot.key_size), &object, || {
        format!("a key of {} bytes", slot.key_size)
    })?;
    rule(slot.priority.is_none_or(|priority| priority <= 2), &object, || "unknown priority".into())?;
    if let Some(area) = &slot.area {
        self::area(&object, metadata, area, copy_bytes)?;
    }
    if slot.kind != "luks2" {
        return Ok(());
    }
    let missing = |what: &str| Invalid { object: object.clone(), problem: format!("{what} is missing") };
    let af = slot.af.as_ref().ok_or_else(|| missing("af"))?;
    rule(af.kind == "luks1", &object, || format!("unknown split {:?}", af.kind))?;
    rule(af.stripes == STRIPES, &object, || format!("{} stripes, not {STRIPES}", af.stripes))?;
    let area = slot.area.as_ref().ok_or_else(|| missing("area"))?;
    rule(area.kind == "raw", &object, || format!("unknown area {:?}", area.kind))?;
    rule(area.encryption.is_some(), &object, || "the area's encryption is missing".into())?;
    rule(area.key_size.is_some_and(|size| (1..=MOST_KEY_BYTES).contains(&size)), &object, || {
        "the area's key_size is missing or impossible".into()
    })?;
    let needed = u64::from(slot.key_size) * u64::from(af.stripes);
    rule(area.size >= needed, &object, || format!("its area has {} bytes of {needed}", area.size))?;
    kdf(&object, slot.kdf.as_ref().ok_or_else(|| missing("kdf"))?)
}

fn kdf(object: &str, kdf: &Kdf) -> Checked {
    kdf::Cost::of(kdf).map(drop).map_err(|problem| Invalid { object: object.into(), problem })
}

/// Areas lie behind both copies and within what the config keeps for them.
fn area(object: &str, metadata: &Metadata, area: &Area, copy_bytes: u64) -> Checked {
    let start = copy_bytes.saturating_mul(2);
    let end = start.saturating_add(metadata.config.keyslots_size);
    let fits = area.offset >= start && area.offset.checked_add(area.size).is_some_and(|last| last <= end);
    rule(fits && area.size > 0, object, || {
        format!("{} bytes at {} are not between {start} and {end}", area.size, area.offset)
    })
}

fn overlaps(metadata: &Metadata) -> Checked {
    let areas = metadata.keyslots.iter().filter_map(|(id, slot)| Some((slot.area.as_ref()?, *id)));
    let mut areas: Vec<(&Area, Id)> = areas.collect();
    areas.sort_unstable_by_key(|(area, _)| area.offset);
    areas.windows(2).try_for_each(|pair| match pair {
        [(one, first), (other, second)] => {
            rule(one.offset.saturating_add(one.size) <= other.offset, format!("keyslot {second}"), || {
                format!("its area overlaps that of keyslot {first}")
            })
        }
        _ => Ok(()),
    })
}

fn segments(metadata: &Metadata, copy_bytes: u64) -> Checked {
    let own_end = copy_bytes.saturating_mul(2).saturating_add(metadata.config.keyslots_size);
    for (place, (id, segment)) in metadata.segments.iter().enumerate() {
        let object = format!("segment {id}");
        rule(usize::from(id.0) == place, &object, || format!("segment {place} is missing"))?;
        self::segment(&object, segment)?;
        // Data of a header apart begins anywhere; on the same device it begins behind the areas.
        rule(segment.offset == 0 || segment.offset >= own_end, &object, || {
            format!("it begins at {}, inside the header that ends at {own_end}", segment.offset)
        })?;
    }
    Ok(())
}

fn segment(object: &str, segment: &Segment) -> Checked {
    let length = segment.size.parse::<u64>().ok();
    rule(segment.size == "dynamic" || length.is_some_and(|length| length > 0), object, || {
        format!("its size is {:?}", segment.size)
    })?;
    let ends = length.is_none_or(|length| segment.offset.checked_add(length).is_some());
    rule(ends && segment.offset.is_multiple_of(512), object, || format!("offset {}", segment.offset))?;
    if segment.kind != "crypt" {
        return Ok(());
    }
    let sector = segment.sector_size.unwrap_or_default();
    rule([512, 1024, 2048, 4096].contains(&sector), object, || format!("sectors of {sector} bytes"))?;
    let whole = |bytes: u64| bytes.is_multiple_of(u64::from(sector));
    rule(whole(segment.offset) && length.is_none_or(whole), object, || {
        format!("offset or size is no multiple of its sectors of {sector} bytes")
    })?;
    rule(segment.encryption.is_some() && segment.iv_tweak.is_some(), object, || {
        "encryption or iv_tweak is missing".into()
    })
}

fn digest(metadata: &Metadata, id: Id, digest: &Digest) -> Checked {
    let object = format!("digest {id}");
    references(&object, "keyslot", &digest.keyslots, |slot| metadata.keyslots.contains_key(slot))?;
    references(&object, "segment", &digest.segments, |segment| metadata.segments.contains_key(segment))?;
    if digest.kind != "pbkdf2" {
        return Ok(());
    }
    rule(digest.hash.is_some(), &object, || "hash is missing".into())?;
    rule(digest.iterations.is_some_and(|rounds| rounds > 0), &object, || {
        "iterations are missing or zero".into()
    })?;
    rule(!digest.digest.is_empty() && !digest.salt.is_empty(), &object, || "digest or salt is empty".into())
}

fn references(object: &str, kind: &str, ids: &[Id], there: impl Fn(&Id) -> bool) -> Checked {
    match ids.iter().find(|id| !there(id)) {
        Some(id) => rule(false, object, || format!("it names {kind} {id}, which is not there")),
        None => Ok(()),
    }
}

/// What a program that does not know these words must not touch.
pub(super) fn unknown_requirements(metadata: &Metadata) -> Option<String> {
    let requirements = metadata.config.requirements.as_ref()?;
    (!requirements.mandatory.is_empty()).then(|| requirements.mandatory.join(", "))
}
