//! Changes: what they leave, and what is left of them when the power goes at any write.

use super::*;

/// Every device that a cut can leave: some steps whole, the next one with its writes there or not, one of them torn.
fn cuts(before: &[u8], steps: &[Step<'_>], mut judge: impl FnMut(&[u8], usize, &str)) {
    let mut device = before.to_vec();
    for (number, step) in steps.iter().enumerate() {
        judge(&device, number, "before");
        for (place, extent) in step.iter().enumerate() {
            let sectors = extent.bytes.len().div_ceil(512);
            // Wiping has hundreds of writes that are all alike.
            if place > 2 && place + 2 < step.len() {
                continue;
            }
            let torn =
                if sectors > 40 { vec![1, 7, sectors / 2, sectors - 1] } else { (1..sectors).collect() };
            for cut in torn {
                let mut device = device.clone();
                super::put(&mut device, extent.offset, &extent.bytes[..cut * 512]);
                judge(&device, number, "torn");
            }
            let mut alone = device.clone();
            super::put(&mut alone, extent.offset, &extent.bytes);
            judge(&alone, number, "alone");
        }
        apply(&mut device, std::slice::from_ref(step));
    }
    judge(&device, steps.len(), "done");
}

fn opens(device: &[u8], passphrase: &[u8]) -> bool {
    read(&mut &*device).is_ok_and(|found| found.header.unlock(&mut &*device, passphrase, None).is_ok())
}

#[test]
fn a_slot_is_added_whole_or_not_at_all() {
    let (header, device) = volume(&key(64));
    let change = header.add(&key(64), &slot(OTHER), &mut random()).unwrap();
    cuts(&device, &change.steps, |device, step, what| {
        assert!(opens(device, PASSPHRASE), "step {step} {what}: the old passphrase is lost");
        assert!(step < change.steps.len() || opens(device, OTHER), "the new passphrase does not open");
    });
}

#[test]
fn a_secret_is_replaced_without_a_moment_without_one() {
    let (header, device) = volume(&key(64));
    let change = header.replace(&key(64), Id(0), &slot(OTHER), &mut random()).unwrap();
    let old_area = header.metadata.keyslots[&Id(0)].area.clone().unwrap();
    cuts(&device, &change.steps, |device, step, what| {
        let (old, new) = (opens(device, PASSPHRASE), opens(device, OTHER));
        assert!(old || new, "step {step} {what}: nothing opens");
        assert!(step < change.steps.len() || (new && !old), "the old passphrase still opens");
    });
    let mut device = device;
    apply(&mut device, &change.steps);
    let start = usize::try_from(old_area.offset).unwrap();
    let end = start + usize::try_from(old_area.size).unwrap();
    assert!(device[start..end].iter().all(|byte| *byte == 0), "the old area is still there");
    assert_eq!(opened(&device, OTHER).unwrap().slot, Id(0));
}

#[test]
fn a_removed_slot_leaves_nothing_that_opens() {
    let (header, mut device) = volume(&key(32));
    let change = header.add(&key(32), &slot(OTHER), &mut random()).unwrap();
    apply(&mut device, &change.steps);
    let change = change.header.remove(Id(0)).unwrap();
    cuts(&device, &change.steps, |device, step, what| {
        assert!(opens(device, OTHER), "step {step} {what}: the other passphrase is lost");
        assert!(step == 0 || !opens(device, PASSPHRASE), "step {step} {what}: the removed one opens");
    });
    assert_eq!(change.header.remove(Id(1)).unwrap_err(), ChangeError::Last(Id(1)));
}

#[test]
fn a_format_that_was_cut_off_is_no_volume_or_a_whole_one() {
    // An older volume whose key must not survive.
    let (_, before) = volume(&key(32));
    let format =
        Format { data_offset: SMALL_BYTES, ..Format::new("11111111-2222-3333-4444-555555555555", 512) };
    let change = format.make(&key(64), &[slot(OTHER)], &mut random()).unwrap();
    cuts(&before, &change.steps, |device, step, what| {
        if step >= 2 {
            let there = read(&mut &*device).is_ok();
            assert!(!opens(device, PASSPHRASE), "step {step} {what}: the older volume opens");
            assert_eq!(there, opens(device, OTHER), "step {step} {what}: a volume that nobody opens");
        }
    });
}

#[test]
fn slots_and_room_run_out_with_an_error_that_says_so() {
    let key = key(64);
    let mut format = Format::new("11111111-2222-3333-4444-555555555555", 512);
    let fill = |format: &Format| {
        let mut header = format.make(&key, &[slot(PASSPHRASE)], &mut random()).unwrap().header;
        loop {
            match header.add(&key, &slot(OTHER), &mut random()) {
                Ok(change) => header = change.header,
                Err(error) => return (header.metadata.keyslots.len(), error),
            }
        }
    };
    assert_eq!(fill(&format), (32, ChangeError::Full));
    format.data_offset = 1 << 20;
    assert_eq!(fill(&format), (3, ChangeError::NoRoom(258_048)));
    let header = format.make(&key, &[slot(PASSPHRASE)], &mut random()).unwrap().header;
    let taken = NewSlot { slot: Some(Id(0)), ..slot(OTHER) };
    assert_eq!(header.add(&key, &taken, &mut random()).unwrap_err(), ChangeError::Taken(Id(0)));
    assert_eq!(header.add(&[7; 64], &slot(OTHER), &mut random()).unwrap_err(), ChangeError::Key);
    assert_eq!(header.remove(Id(5)).unwrap_err(), ChangeError::Missing(Id(5)));
}

#[test]
fn unknown_fields_tokens_and_flags_survive_a_change() {
    let (header, mut device) = volume(&key(64));
    let token: Token =
        serde_json::from_str(r#"{"type":"billet","keyslots":["0"],"blob":{"a":[1,2]}}"#).unwrap();
    let change = header.with_token(Id(7), Some(token.clone())).unwrap();
    apply(&mut device, &change.steps);
    let mut header = read(&mut device.as_slice()).unwrap().header;
    assert_eq!(header.metadata.tokens[&Id(7)], token);
    header.metadata.keyslots.get_mut(&Id(0)).unwrap().unknown.insert("later".into(), 5.into());
    let change = header.add(&key(64), &slot(OTHER), &mut random()).unwrap();
    apply(&mut device, &change.steps);
    let header = read(&mut device.as_slice()).unwrap().header;
    assert_eq!(header.metadata.keyslots[&Id(0)].unknown["later"], 5);
    // A removed slot is no longer the token's.
    let header = header.remove(Id(0)).unwrap().header;
    assert!(header.metadata.tokens[&Id(7)].keyslots.is_empty());
}

#[test]
fn a_slots_own_token_comes_and_goes_with_its_secret() {
    let token = |text: &str| -> Token { serde_json::from_str(text).unwrap() };
    let own = token(r#"{"type":"sealed","keyslots":[],"blob":"b25l"}"#);
    let new = NewSlot { slot: Some(Id(1)), token: Some(&own), ..slot(OTHER) };
    let (header, before) = volume(&key(64));
    let tokens = |device: &[u8]| read(&mut &*device).map(|found| found.header.metadata.tokens.len()).unwrap();
    // At every cut: a slot that opens has its token, and a token has a slot.
    let added = header.add(&key(64), &new, &mut random()).unwrap();
    cuts(&before, &added.steps, |device, step, what| {
        assert_eq!(tokens(device) == 1, opens(device, OTHER), "step {step} {what}");
    });
    assert_eq!(added.header.metadata.tokens[&Id(1)].keyslots, [Id(1)]);
    let mut device = before.clone();
    apply(&mut device, &added.steps);
    let another = token(r#"{"type":"sealed","keyslots":[],"blob":"dHdv"}"#);
    let with_another = NewSlot { token: Some(&another), ..new };
    let replaced = added.header.replace(&key(64), Id(1), &with_another, &mut random()).unwrap();
    assert_eq!(replaced.header.metadata.tokens[&Id(1)].fields["blob"], "dHdv");
    let plain =
        added.header.replace(&key(64), Id(1), &NewSlot { token: None, ..new }, &mut random()).unwrap();
    assert!(plain.header.metadata.tokens.is_empty());
    let removed = added.header.remove(Id(1)).unwrap();
    cuts(&device, &removed.steps, |device, step, what| {
        let useless = step > 0 && !opens(device, OTHER);
        assert!(opens(device, PASSPHRASE) && (tokens(device) == 1 || useless), "step {step} {what}");
    });
    assert!(removed.header.metadata.tokens.is_empty());
    // One that other slots need too stays.
    let shared = token(r#"{"type":"sealed","keyslots":["0","1"]}"#);
    let header = added.header.with_token(Id(1), Some(shared)).unwrap().header;
    assert_eq!(header.remove(Id(1)).unwrap().header.metadata.tokens[&Id(1)].keyslots, [Id(0)]);
}
