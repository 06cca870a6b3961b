//! LUKS2 headers: the bytes of both copies, and JSON under a checksum that is right.
//!
//! What must hold: nothing panics; what is read is written and read back the same, with no copy stale; areas lie behind the
//! copies and none overlaps another; a description names every slot. No key is derived: a header may ask for hours.

use std::sync::OnceLock;

use ondisk::luks2::{Argon2Cost, Copy, Cost, Format, Header, Id, NewSlot, read};
use sha2::{Digest as _, Sha256};

use crate::target::{Outcome, Target};

pub(super) const HEADER: Target = Target {
    name: "luks2-header",
    about: "both copies of a LUKS2 header",
    seeds: header_seeds,
    words: &[],
    run: header,
};

pub(super) const JSON: Target = Target {
    name: "luks2-json",
    about: "the JSON of a LUKS2 header",
    seeds: json_seeds,
    words: WORDS,
    run: json,
};

const WORDS: &[&str] = &[
    "\"keyslots\":",
    "\"tokens\":",
    "\"segments\":",
    "\"digests\":",
    "\"offset\":\"32768\"",
    "\"size\":\"dynamic\"",
    "\"type\":\"luks2\"",
    "\"type\":\"reencrypt\"",
    "\"priority\":0",
    "\"flags\":[\"allow-discards\"]",
    "\"requirements\":{\"mandatory\":[\"online-reencrypt\"]}",
    "18446744073709551615",
    "\"0\"",
    "{}",
    "[]",
];

/// Bytes of a copy, and of its binary part.
const COPY: usize = 16 << 10;
const BINARY: usize = 4096;
/// Where a copy keeps its checksum.
const CHECKSUM: std::ops::Range<usize> = 448..512;

/// A header with two slots, and its copies.
fn sample(sector_size: u32) -> (Header, Vec<u8>) {
    let format = Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", sector_size);
    let argon2 = Cost::Argon2id(Argon2Cost { memory_kib: 32, passes: 1, lanes: 1 });
    let slot = |number, cost| NewSlot { slot: Some(Id(number)), passphrase: b"seed", cost, token: None };
    let slots = [slot(0, argon2), slot(9, Cost::Pbkdf2(1000))];
    let change = format.make(&[7; 64], &slots, &mut |bytes| bytes.fill(9)).expect("the sample fits");
    let mut device = vec![0; 2 * COPY];
    for copy in [Copy::First, Copy::Second] {
        write(&mut device, &change.header, copy);
    }
    (change.header, device)
}

/// Writes a copy where there is room for it.
fn write(device: &mut [u8], header: &Header, copy: Copy) {
    for extent in header.repair(copy).expect("a header that was read fits its copies") {
        let start = usize::try_from(extent.offset).expect("copies lie in the first megabytes");
        if let Some(place) = device.get_mut(start..start + extent.bytes.len()) {
            place.copy_from_slice(&extent.bytes);
        }
    }
}

fn header_seeds() -> Vec<Vec<u8>> {
    let (_, device) = sample(512);
    let second_alone = [vec![0; COPY], device[COPY..].to_vec()].concat();
    vec![device[..COPY].to_vec(), second_alone, device]
}

fn json_seeds() -> Vec<Vec<u8>> {
    let text = |sector_size| serde_json::to_vec(&sample(sector_size).0.metadata).expect("the sample is JSON");
    vec![text(512), text(4096), b"{\"keyslots\":{},\"tokens\":{},\"segments\":{},\"digests\":{},\"config\":{\"json_size\":\"12288\",\"keyslots_size\":\"0\"}}".to_vec()]
}

fn json(input: &[u8]) -> Outcome {
    // Making it takes longer than reading it a hundred times.
    static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
    let mut device = SAMPLE.get_or_init(|| sample(512).1).clone();
    for copy in device.chunks_mut(COPY) {
        let (binary, area) = copy.split_at_mut(BINARY);
        area.fill(0);
        let length = input.len().min(area.len());
        area[..length].copy_from_slice(&input[..length]);
        binary[CHECKSUM].fill(0);
        let sum = Sha256::new().chain_update(&*binary).chain_update(&*area).finalize();
        binary[CHECKSUM][..sum.len()].copy_from_slice(&sum);
    }
    header(&device)
}

fn header(input: &[u8]) -> Outcome {
    let found = match read(&mut &*input) {
        Ok(found) => found,
        Err(error) => return Outcome::refused(&error.to_string()),
    };
    let header = found.header;
    let mut device =
        vec![0; usize::try_from(2 * header.copy_bytes()).expect("copies have megabytes at most")];
    write(&mut device, &header, Copy::First);
    write(&mut device, &header, Copy::Second);
    let again =
        read(&mut device.as_slice()).unwrap_or_else(|error| panic!("what was written is refused: {error}"));
    assert!(again.header == header && again.stale.is_none(), "what was written is read as something else");
    check_areas(&header);
    let shown = header.to_string();
    let slots = header.metadata.keyslots.keys();
    for slot in slots.clone() {
        assert!(shown.contains(&format!("\n  {slot}: ")), "key slot {slot} is not shown");
        // Refused or not: it must not panic.
        let _ = header.remove(*slot);
    }
    let mapping = header.mapping().err().map_or("mapped".to_owned(), |error| error.to_string());
    Outcome { accepted: true, shapes: vec![mapping, format!("{} slots", slots.count())] }
}

fn check_areas(header: &Header) {
    let areas = header.metadata.keyslots.values().filter_map(|slot| slot.area.as_ref());
    let mut areas: Vec<_> = areas.map(|area| (area.offset, area.size)).collect();
    areas.sort_unstable();
    let mut end = 2 * header.copy_bytes();
    for (offset, size) in areas {
        assert!(offset >= end, "an area at {offset} begins before {end}");
        end = offset.checked_add(size).expect("an area ends on the device");
    }
}
