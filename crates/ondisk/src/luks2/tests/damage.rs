//! Damaged headers: no panic, no false open, and the same verdict as cryptsetup.

use super::*;

#[test]
fn every_single_flipped_byte_is_found_and_the_other_copy_counts() {
    let (header, device) = volume(&key(64));
    let copy = usize::try_from(header.copy_bytes()).unwrap();
    let small = &device[..2 * copy];
    let step = if long() { 1 } else { 13 };
    // The field of the checksum is longer than the checksum: nobody looks at the rest.
    let unused = |place: usize| (480..512).contains(&(place % copy));
    for place in (0..2 * copy).step_by(step).filter(|place| !unused(*place)) {
        let mut bad = small.to_vec();
        bad[place] ^= 0x20;
        let found = read(&mut bad.as_slice()).unwrap_or_else(|e| panic!("byte {place}: {e}"));
        assert_eq!(found.header.metadata, header.metadata, "byte {place}");
        let hit = if place < copy { Copy::First } else { Copy::Second };
        assert!(
            matches!(found.stale, Some((stale, Some(_))) if stale == hit),
            "byte {place}: {:?}",
            found.stale
        );
        apply(&mut bad, &[found.header.repair(hit).unwrap()]);
        assert_eq!(read(&mut bad.as_slice()).unwrap().stale, None, "byte {place}");
    }
}

#[test]
fn the_newer_copy_counts() {
    let (header, device) = volume(&key(64));
    let change =
        header.with_token(Id(1), serde_json::from_str(r#"{"type":"x","keyslots":[]}"#).unwrap()).unwrap();
    for (number, older) in [(0, Copy::Second), (1, Copy::First)] {
        let mut device = device.clone();
        // Only one of the two copies was written.
        apply(&mut device, std::slice::from_ref(&change.steps[number]));
        let found = read(&mut device.as_slice()).unwrap();
        assert_eq!((found.header, found.stale), (change.header.clone(), Some((older, None))));
    }
}

#[test]
fn both_copies_lost_is_an_error_that_says_what_of_each() {
    let (header, mut device) = volume(&key(64));
    let copy = usize::try_from(header.copy_bytes()).unwrap();
    assert!(read(&mut new_device().as_slice()).unwrap_err().is_absence());
    device[5000] ^= 1;
    device[copy + 5000] ^= 1;
    let error = read(&mut device.as_slice()).unwrap_err().to_string();
    assert_eq!(
        error,
        "read LUKS2 header: first copy: checksum does not match; second copy: checksum does not match"
    );
}

/// A header whose JSON was changed and whose checksums are right.
fn with_json(change: impl FnOnce(&str) -> String) -> Vec<u8> {
    let (header, mut device) = volume(&key(64));
    let json = serde_json::to_string(&header.metadata).unwrap();
    let json = change(&json);
    for copy in [Copy::First, Copy::Second] {
        let binary = binary::Binary {
            copy_bytes: header.copy_bytes,
            epoch: header.epoch,
            label: header.label.clone(),
            salt: header.salts[usize::from(copy == Copy::Second)],
            uuid: header.uuid.clone(),
            subsystem: header.subsystem.clone(),
        };
        let bytes = binary.copy(copy, json.as_bytes()).unwrap();
        super::put(&mut device, copy.offset(header.copy_bytes), &bytes);
    }
    device
}

#[test]
fn broken_rules_are_refused_by_name_and_by_cryptsetup() {
    let bench = Bench::new();
    let rules = [
        ("\"offset\":\"32768\"", "\"offset\":\"4096\"", "keyslot 0: 258048 bytes at 4096 are not between"),
        ("\"size\":\"258048\"", "\"size\":\"1015809\"", "keyslot 0: 1015809 bytes at 32768 are not between"),
        ("\"size\":\"258048\"", "\"size\":\"18446744073709551615\"", "are not between"),
        ("\"json_size\":\"12288\"", "\"json_size\":\"12287\"", "config: json_size is 12287"),
        (
            "\"keyslots_size\":\"1015808\"",
            "\"keyslots_size\":\"1015809\"",
            "config: keyslots_size is 1015809",
        ),
        ("\"sector_size\":4096", "\"sector_size\":4095", "segment 0: sectors of 4095 bytes"),
        ("\"keyslots\":[\"0\"]", "\"keyslots\":[\"1\"]", "digest 0: it names keyslot 1, which is not there"),
        ("\"keyslots\":[\"0\"]", "\"keyslots\":[]", "keyslot 0: it has 0 digests, not one"),
        ("\"segments\":[\"0\"]", "\"segments\":[\"4\"]", "digest 0: it names segment 4, which is not there"),
        ("\"keyslots\":{\"0\":", "\"keyslots\":{\"32\":", "keyslot 32: its number is not below 32"),
        ("\"keyslots\":{\"0\":", "\"keyslots\":{\"00\":", "\"00\" is no object number"),
        ("\"time\":4", "\"time\":0", "keyslot 0: time is missing or zero"),
        ("argon2id", "scrypt99", "keyslot 0: unknown key derivation \"scrypt99\""),
        ("\"offset\":\"1048576\"", "\"offset\":\"1048577\"", "segment 0: offset 1048577"),
        ("\"tokens\":{}", "\"tokens\":[]", "JSON: "),
    ];
    let mut opened = Vec::new();
    for (from, to, why) in rules {
        let device = with_json(|json| {
            assert!(json.contains(from), "{from} is not in {json}");
            json.replacen(from, to, 1)
        });
        let error = read(&mut device.as_slice()).unwrap_err().to_string();
        assert!(error.contains(why), "{to}: {error}");
        bench.write(&device);
        if bench.opens("key") {
            opened.push(to);
        }
    }
    assert!(opened.is_empty(), "cryptsetup opens with {opened:?}");
}

#[test]
fn a_slot_with_two_digests_is_refused_here_and_by_cryptsetup() {
    let bench = Bench::new();
    let device = with_json(|json| {
        let mut metadata: serde_json::Value = serde_json::from_str(json).unwrap();
        metadata["digests"]["1"] = metadata["digests"]["0"].clone();
        metadata.to_string()
    });
    let error = read(&mut device.as_slice()).unwrap_err().to_string();
    assert!(error.contains("keyslot 0: it has 2 digests, not one"), "{error}");
    bench.write(&device);
    assert!(!bench.opens("key"), "cryptsetup opens it");
}

/// cryptsetup takes 4000 stripes and the room they need, whatever stands there. A header that says otherwise is none that
/// anybody wrote, and its areas could overlap.
#[test]
fn stripes_and_room_that_do_not_fit_are_refused_here_alone() {
    let rules = [
        ("\"stripes\":4000", "\"stripes\":3999", "keyslot 0: 3999 stripes, not 4000"),
        ("\"size\":\"258048\"", "\"size\":\"4096\"", "keyslot 0: its area has 4096 bytes of 256000"),
    ];
    for (from, to, why) in rules {
        let device = with_json(|json| json.replace(from, to));
        let error = read(&mut device.as_slice()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn what_is_not_for_us_is_said_before_a_key_is_derived() {
    let refused = |from: &str, to: &str| {
        let device = with_json(|json| json.replacen(from, to, 1));
        opened(&device, PASSPHRASE).unwrap_err().to_string()
    };
    let requirement = r#"{"requirements":{"mandatory":["online-reencrypt"]},"json_size""#;
    assert!(refused(r#"{"json_size""#, requirement).contains("demands online-reencrypt"));
    let opal = refused(r#""type":"crypt""#, r#""type":"hw-opal-crypt""#);
    assert!(opal.contains("the drive encrypts it itself (OPAL)"), "{opal}");
    let integrity = r#""type":"crypt","integrity":{"type":"hmac(sha256)"}"#;
    assert!(refused(r#""type":"crypt""#, integrity).contains("protected by integrity (dm-integrity)"));
    assert!(refused("aes-xts-plain64", "aes-cbc-essiv:sha256").contains("aes-cbc-essiv:sha256"));
    assert!(refused(r#""hash":"sha256""#, r#""hash":"whirlpool""#).contains("unknown hash \"whirlpool\""));
}

/// Random damage, and whether the passphrase still opens.
#[test]
fn random_damage_has_cryptsetups_verdict() {
    let bench = Bench::new();
    let (header, device) = volume(&key(64));
    let span = usize::try_from(header.copy_bytes()).unwrap() * 2 + 258_048;
    let mut random = random();
    let mut number = move |below: usize| {
        let mut bytes = [0; 8];
        random(&mut bytes);
        usize::try_from(u64::from_be_bytes(bytes) >> 1).unwrap() % below
    };
    for round in 0..if long() { 400 } else { 24 } {
        let mut bad = device.clone();
        for _ in 0..1 + number(6) {
            // Mostly where the texts are, which is little of the whole.
            let place = if number(4) == 0 { number(span) } else { number(2) * 16384 + number(5200) };
            bad[place] = u8::try_from(number(256)).unwrap();
        }
        let ours = read(&mut bad.as_slice());
        let opens =
            ours.is_ok_and(|found| found.header.unlock(&mut bad.as_slice(), PASSPHRASE, None).is_ok());
        bench.write(&bad);
        assert_eq!(opens, bench.opens("key"), "round {round}");
    }
}
