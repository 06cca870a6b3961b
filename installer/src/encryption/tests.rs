use ondisk::ReadAt as _;
use ondisk::luks2::{self, Copy};

use super::*;
use crate::device::{Memory, Recorder};

const BYTES: u64 = HEADER_BYTES + (1 << 20);
/// Cheap: what is tested is the order of things.
pub(super) const CHEAP: Cost = Cost::Pbkdf2(1000);

pub(super) fn key(slot: u8, secret: &str) -> Key {
    let secret = KeySecret::Known(Secret::new(secret.as_bytes().to_vec()));
    Key { slot, kind: KeyKind::Static, secret, cost: CHEAP }
}

fn all(keys: &[Key]) -> Wanted<'_> {
    Wanted { keys, ..Wanted::default() }
}

pub(super) fn protection(keys: &[Key]) -> Protection {
    Protection {
        cipher: Cipher::AesXts,
        key_bytes: 64,
        sector_bytes: None,
        flags: Vec::new(),
        keys: keys.to_vec(),
    }
}

/// Bytes that are never the same twice.
pub(super) fn random() -> impl FnMut(&mut [u8]) {
    let mut state = 1_u64;
    move |bytes| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = state.to_be_bytes()[0];
        }
    }
}

pub(super) fn made(keys: &[Key]) -> Memory {
    let mut disk = Memory::new(BYTES, 512);
    format(&mut disk, "STATE", &protection(keys), &mut random()).unwrap();
    disk
}

pub(super) fn slots(disk: &mut Memory) -> Vec<u8> {
    luks2::read(&mut &mut *disk).unwrap().header.metadata.keyslots.keys().map(|id| id.0).collect()
}

pub(super) fn opens(disk: &mut Memory, key: &Key) -> bool {
    try_all(disk, std::slice::from_ref(key)).is_ok()
}

pub(super) fn try_all(disk: &mut dyn BlockDevice, keys: &[Key]) -> Result<Opened, Error> {
    open(disk, "EPHEMERAL", keys.iter().cloned().map(Ok).collect())
}

#[test]
fn a_volume_opens_with_each_of_its_keys_on_its_own_slot() {
    let (first, second) = (key(0, "first"), key(5, "second"));
    let mut disk = made(&[second.clone(), first.clone()]);
    assert_eq!(slots(&mut disk), [0, 5]);
    let opened = try_all(&mut disk, &[second.clone(), first]).unwrap();
    assert_eq!((opened.unlocked.slot, opened.unlocked.mapping.offset), (0, HEADER_BYTES));
    let opened = try_all(&mut disk, &[key(0, "wrong"), second]).unwrap();
    assert_eq!(opened.unlocked.slot, 5);
    assert_eq!(opened.refused[0].to_string(), "static key for slot 0: the passphrase is not its own");
    let error = try_all(&mut disk, &[key(5, "first"), key(7, "x")]).unwrap_err().to_string();
    assert_eq!(
        error,
        "failed to open encrypted device EPHEMERAL, no key matched: static key for slot 5: the passphrase \
         is not its own; static key for slot 7: there is no such key slot"
    );
}

#[test]
fn uuids_are_of_version_4() {
    let text = uuid(&mut |bytes: &mut [u8]| bytes.fill(0xff));
    assert_eq!(text, "ffffffff-ffff-4fff-bfff-ffffffffffff");
}

#[test]
fn slots_follow_the_config() {
    let (old, new) = (key(0, "old"), key(1, "new"));
    let mut disk = made(&[old.clone(), key(2, "forgotten"), key(3, "other")]);
    let keys = [new.clone(), old.clone(), key(3, "changed"), key(3, "an older spelling")];
    let mut opened = try_all(&mut disk, &keys).unwrap();
    let done = synchronise(&mut disk, &mut opened, all(&keys), &mut random());
    let expected = Synchronised { added: vec![1], replaced: vec![3], removed: vec![2], problems: Vec::new() };
    assert_eq!(done, expected);
    assert_eq!(slots(&mut disk), [0, 1, 3]);
    assert!(
        opens(&mut disk, &new) && opens(&mut disk, &key(3, "changed")) && !opens(&mut disk, &key(3, "other"))
    );
    // The second half of a rotation: the old key goes.
    let keys = [new.clone()];
    let mut opened = try_all(&mut disk, &keys).unwrap();
    let done = synchronise(&mut disk, &mut opened, all(&keys), &mut random());
    assert_eq!(done.removed, [0, 3]);
    assert!(opens(&mut disk, &new) && !opens(&mut disk, &old));
    let done = synchronise(&mut disk, &mut opened, all(&keys), &mut random());
    assert_eq!(done, Synchronised::default());
}

#[test]
fn a_slot_that_cannot_be_tried_stays() {
    let first = key(0, "first");
    let huge = Key {
        cost: Cost::Argon2id(ondisk::luks2::Argon2Cost { memory_kib: 64, passes: 1, lanes: 1 }),
        ..key(1, "second")
    };
    let mut disk = made(&[first.clone(), huge]);
    // Its area is out of reach: a read error says nothing about the key.
    let mut opened = try_all(&mut disk, std::slice::from_ref(&first)).unwrap();
    let slot = opened.header.metadata.keyslots.get_mut(&Id(1)).unwrap();
    slot.area.as_mut().unwrap().offset = BYTES * 2;
    let before = slots(&mut disk);
    let done = synchronise(&mut disk, &mut opened, all(&[first, key(1, "other")]), &mut random());
    assert_eq!(done.problems.len(), 1, "{done:?}");
    assert!(done.problems[0].0 == 1 && done.problems[0].1.starts_with("key slot 1: "), "{done:?}");
    assert_eq!(slots(&mut disk), before);
}

#[test]
fn a_damaged_copy_is_mended() {
    let first = key(0, "first");
    for copy in [Copy::First, Copy::Second] {
        let mut disk = made(std::slice::from_ref(&first));
        let at = if copy == Copy::First { 5000 } else { (16 << 10) + 5000 };
        disk.write_at(at, b"damage").unwrap();
        let wrong = key(0, "wrong");
        assert!(try_all(&mut disk, std::slice::from_ref(&wrong)).is_err());
        let stale = luks2::read(&mut &mut disk).unwrap().stale;
        assert!(stale.is_some(), "what no key opens is not written to");
        let mut opened = try_all(&mut disk, std::slice::from_ref(&first)).unwrap();
        let said = mend(&mut disk, &mut opened).unwrap().unwrap();
        assert_eq!(mend(&mut disk, &mut opened).unwrap(), None);
        assert_eq!(said, format!("the {copy} of the LUKS2 header was written anew: checksum does not match"));
        assert_eq!(luks2::read(&mut &mut disk).unwrap().stale, None);
        assert!(opens(&mut disk, &first));
    }
}

/// At every moment of a rotation an old or a new key opens; what goes is gone once it is said.
#[test]
fn every_cut_of_a_rotation_leaves_a_key() {
    let (old, new) = (key(0, "old"), key(1, "new"));
    for keys in [[old.clone(), new.clone()], [old.clone(), key(1, "another")]] {
        let start = [old.clone(), key(1, "before")];
        let mut disk = Recorder::new(made(&start));
        let mut opened = try_all(&mut disk, &keys).unwrap();
        let done = synchronise(&mut disk, &mut opened, all(&keys), &mut random());
        assert_eq!(done.problems, []);
        disk.acknowledge("rotation");
        let count = disk.finish().0.each_state(&|_| true, |mut state| {
            let disk = &mut state.disk;
            assert!(opens(disk, &old), "{:?}", state.cut);
            let promised = !state.promises.is_empty();
            assert!(!promised || opens(disk, &keys[1]) && !opens(disk, &start[1]), "{:?}", state.cut);
        });
        assert!(count > 20, "{count}");
    }
}

#[test]
fn nothing_of_before_is_left_before_the_data() {
    let mut disk = Memory::new(BYTES, 4096);
    disk.write_at(HEADER_BYTES - 4096, &[0x5a; 4096]).unwrap();
    format(&mut disk, "STATE", &protection(&[key(0, "first")]), &mut random()).unwrap();
    let mut end = [1; 4096];
    disk.read_at(HEADER_BYTES - 4096, &mut end).unwrap();
    assert!(end.iter().all(|byte| *byte == 0));
    let opened = try_all(&mut disk, &[key(0, "first")]).unwrap();
    assert_eq!(opened.unlocked.mapping.sector_size, 4096);
}

/// A volume's own key must not open what has become an LVM physical volume since, with the second header left over.
#[test]
fn a_header_left_over_in_anothers_data_is_neither_opened_nor_mended() {
    let first = key(0, "first");
    let mut disk = made(std::slice::from_ref(&first));
    disk.zero(0, 4096).unwrap();
    assert!(
        try_all(&mut disk, std::slice::from_ref(&first)).unwrap().stale.is_some(),
        "the second opens it alone"
    );
    disk.write_at(512, b"LABELONE").unwrap();
    let mut disk = Recorder::new(disk);
    let error = try_all(&mut disk, &[first]).unwrap_err().to_string();
    let expected =
        "LVM2_member at byte 512 and crypto_LUKS at byte 16384 at once, and only one of them can be real";
    assert!(error.contains(expected), "{error}");
    assert!(disk.finish().0.events.is_empty());
}

#[test]
fn a_superblock_at_the_end_goes_with_what_was_there_before() {
    let mut disk = Memory::new(BYTES, 512);
    let at = BYTES - 8192;
    disk.write_at(at, b"\xfc\x4e\x2b\xa9\x01").unwrap();
    disk.write_at(at + 144, &(at / 512).to_le_bytes()).unwrap();
    format(&mut disk, "STATE", &protection(&[key(0, "first")]), &mut random()).unwrap();
    assert!(opens(&mut disk, &key(0, "first")));
}
