use ondisk::bundle::{PATH, Payload, blank};

use super::*;
use crate::boot_volume::tests::{DISK_BYTES, disk_of};
use crate::device::{BlockDevice, Memory, Recorder};
use crate::error::in_full;

/// PKCS #8 of an Ed25519 key (RFC 8410 §7) whose seed is this byte.
fn key(seed: u8) -> SigningKey {
    let prefix =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    SigningKey::from_pkcs8(&[&prefix[..], &[seed; 32]].concat()).unwrap()
}

fn mac(last: u8) -> Selector {
    Selector::Mac([0x52, 0x54, 0, 0, 0, last])
}

/// A disk whose EFI system partition has a bundle without entries.
fn disk(public: &PublicKey) -> Memory {
    disk_of(&[fat::File { path: PATH, content: &blank(public) }])
}

fn file(disk: &mut Memory) -> Zeroizing<Vec<u8>> {
    let bytes = disk.bytes();
    find(disk, bytes).unwrap().unwrap()
}

fn add(
    disk: &mut dyn BlockDevice,
    key: &SigningKey,
    selectors: &[Selector],
    config: &[u8],
    replace: bool,
) -> Result<usize, Error> {
    super::add(disk, key, &New { selectors, config, seal_for: None, replace }).map(|added| added.count)
}

/// Configs in their order.
fn configs(disk: &mut Memory, key: &PublicKey) -> Result<Vec<String>, Error> {
    let file = file(disk);
    let text = |entry: &Entry<'_>| match entry.payload {
        Payload::Plain(text) => String::from_utf8(text.to_vec()).unwrap(),
        Payload::Sealed(sealed) => format!("for {}", sealed.parts.device),
    };
    Ok(entries(&file, key)?.iter().map(text).collect())
}

#[test]
fn configs_are_added_listed_and_replaced() {
    let (key, public) = (key(1), key(1).public());
    let mut disk = disk(&public);
    assert!(configs(&mut disk, &public).unwrap().is_empty());
    for (number, text) in [(1, "one"), (2, "two"), (3, "three")] {
        let count = add(&mut disk, &key, &[mac(number)], text.as_bytes(), false).unwrap();
        assert_eq!(count, usize::from(number));
    }
    assert_eq!(add(&mut disk, &key, &[mac(9), mac(2)], b"new", true).unwrap(), 3);
    assert_eq!(configs(&mut disk, &public).unwrap(), ["one", "three", "new"]);
    let (own, listed) = list(&mut disk, None).unwrap();
    assert_eq!((own, listed.len()), (public, 3));
    assert_eq!(listed[2].selectors, ["MAC 52:54:00:00:00:09", "MAC 52:54:00:00:00:02"]);
    assert_eq!((listed[2].bytes, listed[2].sealed_for.as_deref()), (3, None));
}

#[test]
fn what_cannot_be_added_is_told() {
    let (key, public) = (key(1), key(1).public());
    let mut with_key = disk(&public);
    let error = add(&mut with_key, &key, &[], b"x", false).unwrap_err().to_string();
    assert!(error.contains("name the machine"), "{error}");
    let other = self::key(2);
    let keys = [name_of(&public), name_of(&other.public())];
    let error = add(&mut with_key, &other, &[mac(1)], b"x", false).unwrap_err().to_string();
    let wanted =
        format!("this image takes configs of key {}, and the signing key is key {}: give", keys[0], keys[1]);
    assert!(error.starts_with(&wanted), "{error}");
    let error = list(&mut with_key, Some(&other.public())).unwrap_err().to_string();
    let wanted =
        format!("this image takes configs of key {}, and the public key is key {}: give", keys[0], keys[1]);
    assert!(error.starts_with(&wanted), "{error}");
    let error = add(&mut Memory::new(DISK_BYTES, 512), &key, &[mac(1)], b"x", false).unwrap_err().to_string();
    assert!(error.contains("no GUID partition table"), "{error}");
    let huge = vec![b'x'; bundle::MAX_BYTES];
    let error = in_full(&add(&mut with_key, &key, &[mac(1)], &huge, false).unwrap_err());
    assert_eq!(
        error,
        "the image's config bundle cannot take it: it has 8388752 bytes, and 8388608 are the most"
    );
    assert!(SigningKey::from_pkcs8(b"no key").is_err());
    assert!(public_key_from_pem("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n").is_err());
}

#[test]
fn what_a_config_replaces_is_told() {
    let (key, public) = (key(1), key(1).public());
    let mut disk = disk(&public);
    add(&mut disk, &key, &[mac(1), mac(2), mac(3)], b"one", false).unwrap();
    add(&mut disk, &key, &[mac(4)], b"two", false).unwrap();
    let mut both = |replace| {
        let selectors = [mac(3), mac(4), mac(5)];
        super::add(&mut disk, &key, &New { selectors: &selectors, config: b"new", seal_for: None, replace })
    };
    let [one, two, three, four] = [1, 2, 3, 4].map(|last| mac(last).to_string());
    assert_eq!(
        both(false).unwrap_err().to_string(),
        format!(
            "{three} has a config already, entry 1 ({one}, {two}, {three}); {four} has a config already, entry 2 \
             ({four}): `--replace` puts the new config in the place of all of them; nothing was changed"
        )
    );
    let first =
        Replaced { number: 1, selectors: vec![one.clone(), two.clone(), three], lost: vec![one, two] };
    let second = Replaced { number: 2, selectors: vec![four], lost: Vec::new() };
    assert_eq!(both(true).unwrap(), Added { count: 1, replaced: vec![first, second] });
    assert_eq!(configs(&mut disk, &public).unwrap(), ["new"]);
    let error = add(&mut disk, &key, &[mac(5)], b"x", false).unwrap_err().to_string();
    assert!(error.ends_with("`--replace` puts the new config in its place; nothing was changed"), "{error}");
}

/// The whole texts, each cause once.
#[test]
fn causes_are_told_once() {
    let public = key(1).public();
    let mut disk = disk(&public);
    let bytes = disk.bytes();
    let (start, _) = boot_volume::place(&mut disk, bytes).unwrap();
    let error = entries(b"BILLET", &public).err().unwrap();
    assert_eq!(
        in_full(&error),
        "the config bundle is not used: byte 0: it does not begin as a config bundle"
    );
    disk.write_at(start, &[0; 512]).unwrap();
    let error = list(&mut disk, None).unwrap_err();
    assert_eq!(in_full(&error), "the volume of partition EFI: fat32: no FAT32 boot sector");
}

#[test]
fn a_changed_bundle_is_not_used() {
    let (key, public) = (key(1), key(1).public());
    let mut disk = disk(&public);
    add(&mut disk, &key, &[mac(1)], b"config of the one", false).unwrap();
    let mut bytes = file(&mut disk).to_vec();
    assert!(matches!(entries(&bytes, &self::key(2).public()), Err(Error::OtherKey { .. })));
    for at in (32..bytes.len()).step_by(7) {
        bytes[at] ^= 1;
        let error = entries(&bytes, &public).err();
        assert!(matches!(error, Some(Error::Signature | Error::OtherKey { .. })), "byte {at}: {error:?}");
        bytes[at] ^= 1;
    }
    // Neither is one whose signature was taken away.
    let end = bytes.len() - bundle::SIGNATURE_BYTES;
    bytes[end..].fill(0);
    assert!(matches!(entries(&bytes, &public), Err(Error::Signature)));
    assert!(matches!(entries(&bytes[..end], &public), Err(Error::Damaged(_))));
}

#[test]
fn a_cut_at_any_write_leaves_the_old_bundle_or_the_new_one() {
    let (key, public) = (key(1), key(1).public());
    let mut before = disk(&public);
    add(&mut before, &key, &[mac(1)], b"one", false).unwrap();
    let mut recorder = Recorder::new(before);
    add(&mut recorder, &key, &[mac(2)], b"two", false).unwrap();
    recorder.finish().0.each_state(&|_| false, |mut state| {
        let found = configs(&mut state.disk, &public).unwrap();
        assert!(found == ["one"] || found == ["one", "two"], "{found:?} after {:?}", state.cut);
        // Adding goes on from there.
        add(&mut state.disk, &key, &[mac(3)], b"three", false).unwrap();
        assert_eq!(configs(&mut state.disk, &public).unwrap().last().map(String::as_str), Some("three"));
    });
}

#[test]
fn a_medium_of_others_has_none() {
    let mut empty = Memory::new(DISK_BYTES, 512);
    assert!(find(&mut empty, DISK_BYTES).unwrap().is_none());
}
