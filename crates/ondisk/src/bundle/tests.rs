use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::Digest;

const KEY: PublicKey = [7; KEY_BYTES];

fn entry<'t>(selectors: &[Selector], text: &'t str) -> Entry<'t> {
    Entry { selectors: selectors.to_vec(), payload: Payload::Plain(text.as_bytes()) }
}

fn mac(last: u8) -> Selector {
    Selector::Mac([0x52, 0x54, 0, 0, 0, last])
}

fn file(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut file = message(&KEY, entries).unwrap().to_vec();
    file.extend([9; SIGNATURE_BYTES]);
    file
}

fn sample() -> Vec<u8> {
    let serial = Selector::serial(" A-17 ").unwrap();
    let uuid = Selector::uuid("4C4C4544-0039-3510-8059-b7c04f333231").unwrap();
    file(&[entry(&[mac(1), serial], "one"), entry(&[uuid, mac(2)], "two")])
}

/// Why a file is refused, whichever step does.
fn refused(file: &[u8]) -> String {
    let read = Frame::read(file).and_then(|frame| frame.entries().map(drop));
    read.err().map(|error| alloc::format!("{error}")).unwrap_or_default()
}

#[test]
fn what_was_written_is_read() {
    let bytes = sample();
    let frame = Frame::read(&bytes).unwrap();
    assert_eq!((frame.key, frame.signature), (KEY, [9; SIGNATURE_BYTES]));
    assert_eq!(frame.message, &bytes[..bytes.len() - SIGNATURE_BYTES]);
    let entries = frame.entries().unwrap();
    assert!(entries.len() == 2 && entries[1].payload == Payload::Plain(b"two"));
    assert_eq!(entries[0].selectors[1], Selector::Serial("A-17".into()));
    assert!(message(&KEY, &entries).unwrap().as_slice() == frame.message && !frame.is_blank());
    let empty = blank(&KEY);
    let frame = Frame::read(&empty).unwrap();
    assert!(frame.is_blank() && frame.entries().unwrap().is_empty());
}

fn parts() -> Parts<'static> {
    Parts { device: Digest([8; 32]), public: b"public", private: b"private", seed: b"" }
}

#[test]
fn the_parts_of_a_sealed_config_are_found_again() {
    let mut payload = parts().head().unwrap();
    payload.extend([6; TAG_BYTES + 1]);
    let sealed = Sealed::read(&payload).unwrap();
    assert_eq!(sealed.parts, parts());
    assert_eq!((sealed.head, sealed.body), payload.split_at(40 + 13));
    let mine = Entry { selectors: vec![mac(1)], payload: Payload::Sealed(sealed) };
    let bytes = file(&[entry(&[mac(2)], "one"), mine]);
    let entries = Frame::read(&bytes).unwrap().entries().unwrap();
    assert!(entries[1].payload == Payload::Sealed(sealed));
    let long = vec![0; 1 << 16];
    assert!(Parts { seed: &long, ..parts() }.head().is_err());
}

#[test]
fn a_sealed_config_that_is_none_is_refused_with_its_place() {
    let mut payload = parts().head().unwrap();
    payload.extend([6; TAG_BYTES + 1]);
    let sealed = Sealed::read(&payload).unwrap();
    let good = file(&[Entry { selectors: vec![mac(1)], payload: Payload::Sealed(sealed) }]);
    // The payload of the only entry, behind the head of it and its selector.
    let start = HEADER_BYTES + ENTRY_HEAD_BYTES + 8;
    for (at, value, wanted) in [
        (start, 2, "byte 64, entry 1: its config is sealed in a way"),
        (start + 3, 1, "byte 64, entry 1: its sealed config is too short"),
        (start + 4, 30, "byte 64, entry 1: its sealed config is too short"),
        (start + 4, 8, "byte 64, entry 1: its sealed config is empty"),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        let error = refused(&bytes);
        assert!(error.contains(wanted), "{wanted:?} is not in {error:?}");
    }
    for end in 0..payload.len() {
        assert!(Sealed::read(&payload[..end]).is_err());
    }
}

#[test]
fn a_machine_gets_what_any_of_its_selectors_leads_to() {
    let bytes = sample();
    let entries = Frame::read(&bytes).unwrap().entries().unwrap();
    let found =
        |machine: &[Selector]| matching(&entries, machine).iter().map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!(found(&[mac(2)]), [1]);
    assert_eq!(found(&[mac(3), Selector::Serial("A-17".into())]), [0]);
    assert_eq!(found(&[mac(1), mac(2)]), [0, 1]);
    assert_eq!(found(&[mac(3)]), [0; 0]);
}

#[test]
fn damage_is_told_with_its_place() {
    let good = sample();
    let at = |offset: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[offset] = value;
        bytes
    };
    for (bytes, wanted) in [
        (Vec::new(), "byte 0: it does not begin"),
        (at(3, 0), "byte 0: it does not begin"),
        (at(8, 2), "byte 8: it is of version 2"),
        (good[..20].to_vec(), "byte 16: it should have"),
        (good[..10].to_vec(), "byte 16: it should have 128 bytes and has 10"),
        (good[..good.len() - 1].to_vec(), "it was cut off"),
        (at(13, 0xff), "byte 12: it has 65282 entries"),
        (at(12, 3), "entry 3: it is missing"),
        (at(12, 1), "something follows the last entry"),
        (at(64, 200), "byte 64, entry 1: it ends behind"),
        (at(64, 3), "byte 64, entry 1: it is too short"),
        (at(68, 7), "byte 64, entry 1: its config is of an unknown kind"),
        (at(70, 0), "byte 64, entry 1: it has no selector"),
        (at(72, 9), "byte 64, entry 1: it has a selector of an unknown kind"),
        (at(64, 22), "byte 64, entry 1: it has no config"),
        (vec![0; MAX_BYTES + 1], "are the most"),
    ] {
        let error = refused(&bytes);
        assert!(error.contains(wanted), "{wanted:?} is not in {error:?}");
    }
}

#[test]
fn impossible_bundles_are_not_made() {
    let refused = |entries: &[Entry<'_>]| alloc::format!("{}", message(&KEY, entries).err().unwrap());
    let twice = refused(&[entry(&[mac(1)], "a"), entry(&[mac(2)], "b"), entry(&[mac(3), mac(1)], "c")]);
    assert_eq!(twice, "MAC 52:54:00:00:00:01 is in entry 1 and in entry 3");
    assert!(refused(&[entry(&[], "a")]).contains("entry 1: it has no selector"));
    assert!(refused(&[entry(&[mac(1)], "")]).contains("entry 1: it has no config"));
    let long = "x".repeat(MAX_BYTES);
    assert!(refused(&[entry(&[mac(1)], &long)]).contains("are the most"));
    // The same twice in one entry is one machine all the same.
    assert!(message(&KEY, &[entry(&[mac(1), mac(1)], "a")]).is_ok());
}

#[test]
fn selectors_are_read_as_people_write_them() {
    assert_eq!(Selector::mac("52-54-00-AB-cd-01"), Ok(Selector::Mac([0x52, 0x54, 0, 0xab, 0xcd, 1])));
    for text in
        ["", "525400abcd01", "52:54:00:ab:cd", "52:54:00:ab:cd:0g", "01:00:5e:00:00:01", "00:00:00:00:00:00"]
    {
        assert!(Selector::mac(text).is_err(), "{text}");
    }
    for text in ["", " ", "a\nb"] {
        assert!(!Selector::serial(text).unwrap_err().is_of_many(), "{text}");
    }
    let text = "4c4c4544-0039-3510-8059-b7c04f333231";
    assert_eq!(alloc::format!("{}", Selector::uuid(text).unwrap()), alloc::format!("UUID {text}"));
    for text in ["", "4c4c4544003935108059b7c04f333231"] {
        assert!(!Selector::uuid(text).unwrap_err().is_of_many(), "{text}");
    }
    assert!(Selector::tpm_key(&"AB".repeat(32)).is_ok() && Selector::tpm_key("ab").is_err());
}

#[test]
fn what_many_machines_have_alike_is_no_selector() {
    for text in [
        "Default string",
        "Default_string",
        "To Be Filled By O.E.M.",
        "To be filled by O.E.M",
        "System Serial Number",
        "Not Specified",
        "N/A",
        "None",
        "0",
        "00000000",
        "........",
        "-",
        "XXXXXXX",
        "0123456789",
        "1234567890",
    ] {
        assert!(Selector::serial(text).is_err_and(|error| error.is_of_many()), "{text}");
    }
    for text in ["1", "11", "B", "A-17", "000001", "SN-123456789", "VMware-56 4d 00", "98765432", "Default 2"]
    {
        assert!(Selector::serial(text).is_ok(), "{text}");
    }
    for text in [
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "fefefefe-fefe-fefe-fefe-fefefefefefe",
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "03020100-0504-0706-0809-0a0b0c0d0e0f",
        "4c4c4544-0020-2010-8020-a0c04f202020",
    ] {
        assert!(Selector::uuid(text).is_err_and(|error| error.is_of_many()), "{text}");
    }
    for text in ["03000200-0400-0500-0006-00070008000a", "00000000-0000-0000-0000-ac1f6b123456"] {
        assert!(Selector::uuid(text).is_ok(), "{text}");
    }
}

/// A bundle that an older program made with one is as good as before: no machine names itself by it.
#[test]
fn what_many_machines_have_is_read_from_a_file() {
    let (serial, uuid) = (Selector::Serial("None".into()), Selector::Uuid([0; 16]));
    let bytes = file(&[entry(&[serial.clone(), uuid.clone()], "one"), entry(&[mac(1)], "two")]);
    let entries = Frame::read(&bytes).unwrap().entries().unwrap();
    assert_eq!((entries.len(), &entries[0].selectors), (2, &vec![serial, uuid]));
}

proptest! {
    #[test]
    fn no_change_of_a_byte_panics(at in 0_usize..220, value in any::<u8>(), length in 0_usize..260) {
        let mut bytes = sample();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        bytes.truncate(length);
        let _ = refused(&bytes);
    }
}
