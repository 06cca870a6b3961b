//! What a node notes in META about work that must not be left half done, as far as whoever only reads must know it.
//!
//! Owns: the tags, and whether a partition is half made or about to be wiped.
//! Does not: write notes; whoever does the work does, and knows what else they hold.
//! Fails by: taking a reset that cannot be read for one of the whole disk, and a list of formats that cannot be read
//! for none.
//! Source: docs/formats/meta.md.

use serde_json::Value;

use super::Meta;
use crate::gpt::Guid;

/// Partitions that are being formatted: a JSON list of `{"partition": …, "guid": …}`.
pub const FORMAT_TAG: u32 = 0x4249_0001;

/// A reset under way: JSON of `{"partitions": […], "then": …}`; no partitions: the whole disk.
pub const RESET_TAG: u32 = 0x4249_0002;

/// Whether making this partition's content has begun and has not ended.
#[must_use]
pub fn is_half_made(meta: &Meta, partition: &str, guid: Guid) -> bool {
    let Some(Value::Array(intents)) = meta.get(FORMAT_TAG).and_then(|json| serde_json::from_slice(json).ok())
    else {
        return false;
    };
    intents.iter().any(|intent| {
        let text = |field| intent.get(field).and_then(Value::as_str);
        text("partition") == Some(partition) && text("guid").and_then(Guid::parse) == Some(guid)
    })
}

/// Whether a reset that takes this partition with it has begun and has not ended.
#[must_use]
pub fn is_being_wiped(meta: &Meta, partition: &str) -> bool {
    let Some(json) = meta.get(RESET_TAG) else { return false };
    let intent: Option<Value> = serde_json::from_slice(json).ok();
    match intent.as_ref().and_then(|intent| intent.get("partitions")) {
        Some(Value::Array(names)) if !names.is_empty() => names.iter().any(|name| name == partition),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(tag: u32, json: &str) -> Meta {
        let mut meta = Meta::default();
        meta.set(tag, json.as_bytes()).unwrap();
        meta
    }

    #[test]
    fn a_format_counts_for_its_own_partition_alone() {
        let guid = Guid::from_seed(b"state");
        let json =
            alloc::format!(r#"[{{"partition":"X","guid":"?"}},{{"partition":"STATE","guid":"{guid}"}}]"#);
        let noted = meta(FORMAT_TAG, &json);
        assert!(is_half_made(&noted, "STATE", guid));
        assert!(!is_half_made(&noted, "EPHEMERAL", guid));
        assert!(!is_half_made(&noted, "STATE", Guid::from_seed(b"another")));
        for json in ["", "{}", "[7]", "[", "null"] {
            assert!(!is_half_made(&meta(FORMAT_TAG, json), "STATE", guid), "{json}");
        }
        assert!(!is_half_made(&Meta::default(), "STATE", guid));
    }

    #[test]
    fn a_reset_names_partitions_or_means_all() {
        let one = meta(RESET_TAG, r#"{"partitions":["STATE"],"then":"reboot"}"#);
        assert_eq!((is_being_wiped(&one, "STATE"), is_being_wiped(&one, "EPHEMERAL")), (true, false));
        for json in [r#"{"partitions":[]}"#, "{}", "[", ""] {
            assert!(is_being_wiped(&meta(RESET_TAG, json), "STATE"), "{json}");
        }
        assert!(!is_being_wiped(&Meta::default(), "STATE"));
    }
}
