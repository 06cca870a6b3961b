use alloc::format;

use proptest::prelude::*;

use super::*;

fn meta() -> Vec<u8> {
    vec![0xA5; 1 << 20]
}

fn line<'a>(number: u64, boot: u8, text: &'a str) -> Record<'a> {
    Record {
        number,
        boot: [boot; 16],
        time_us: number * 1000,
        origin: Origin::Init,
        continues: false,
        text: text.as_bytes(),
    }
}

/// Writes a line as a writer does; returns the next number.
fn write(meta: &mut [u8], first: Record<'_>) -> u64 {
    let mut next = first.number;
    for record in records(first) {
        put(meta, usize::try_from(slot_offset(record.number)).unwrap(), &record.encode());
        next = record.number + 1;
    }
    next
}

fn texts(boot: &Boot) -> Vec<&str> {
    boot.lines.iter().map(|line| line.text.as_str()).collect()
}

#[test]
fn the_ring_ends_before_the_last_kib() {
    assert_eq!(SLOTS, 1022);
    assert_eq!(slot_offset(SLOTS - 1) + SLOT_BYTES as u64, (1 << 20) - 1024);
    assert_eq!(slot_offset(SLOTS), RING_OFFSET_BYTES);
}

#[test]
fn lines_come_back_by_boot() {
    let mut disk = meta();
    assert_eq!(next_number(&mut disk.as_slice()), Ok(0));
    assert_eq!(boots(&mut disk.as_slice()), Ok(vec![]));
    let long = "x".repeat(TEXT_BYTES * 2 + 5);
    let mut next = write(&mut disk, line(0, 1, "first"));
    next = write(&mut disk, line(next, 1, &long));
    next = write(&mut disk, line(next, 2, ""));
    assert_eq!((next, next_number(&mut disk.as_slice())), (5, Ok(5)));
    let found = boots(&mut disk.as_slice()).unwrap();
    assert_eq!(found.iter().map(|boot| boot.id[0]).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(texts(&found[0]), ["first", &long]);
    assert_eq!(texts(&found[1]), [""]);
}

#[test]
fn a_full_ring_loses_the_oldest_slots_only() {
    let mut disk = meta();
    let mut next = 0;
    for n in 0..SLOTS + 10 {
        next = write(&mut disk, line(next, 1, &format!("line {n}")));
    }
    assert_eq!(next_number(&mut disk.as_slice()), Ok(SLOTS + 10));
    let found = boots(&mut disk.as_slice()).unwrap();
    assert_eq!((texts(&found[0]).len() as u64, texts(&found[0])[0]), (SLOTS, "line 10"));
}

/// A cut tears one slot, at any byte; every other line is still there and the next writer goes on.
#[test]
fn a_torn_slot_costs_its_own_line() {
    let mut disk = meta();
    write(&mut disk, line(0, 1, "before"));
    let torn = line(1, 1, "torn").encode();
    let place = usize::try_from(slot_offset(1)).unwrap();
    for cut in 0..SLOT_BYTES - 1 {
        let mut disk = disk.clone();
        put(&mut disk, place, &torn[..cut]);
        let next = next_number(&mut disk.as_slice()).unwrap();
        write(&mut disk, line(next, 1, "after"));
        assert_eq!(texts(&boots(&mut disk.as_slice()).unwrap()[0]), ["before", "after"], "cut at {cut}");
    }
}

/// The end of a long line without its beginning, or its beginning without the end, is shown as far as it goes.
#[test]
fn a_line_that_lost_a_slot_is_shown_in_part() {
    let mut disk = meta();
    let long = format!("{}{}{}", "a".repeat(TEXT_BYTES), "b".repeat(TEXT_BYTES), "c");
    write(&mut disk, line(0, 1, &long));
    let middle = usize::try_from(slot_offset(1)).unwrap();
    disk[middle] ^= 1;
    let found = boots(&mut disk.as_slice()).unwrap();
    assert_eq!(texts(&found[0]), [&"a".repeat(TEXT_BYTES), "c"]);
}

#[test]
fn a_slot_in_the_wrong_place_does_not_count() {
    let mut disk = meta();
    put(&mut disk, usize::try_from(slot_offset(7)).unwrap(), &line(8, 1, "moved").encode());
    assert_eq!(boots(&mut disk.as_slice()), Ok(vec![]));
}

proptest! {
    #[test]
    fn no_slot_makes_it_panic(slot in proptest::collection::vec(any::<u8>(), 0..600), seal: bool) {
        let mut slot = slot;
        if seal && slot.len() >= SLOT_BYTES {
            put(&mut slot, 0, MAGIC);
            let checksum = crc32fast::hash(&slot[SEALED..SLOT_BYTES]);
            put(&mut slot, CHECKSUM, &checksum.to_le_bytes());
        }
        if let Some(record) = Record::decode(&slot) {
            prop_assert!(record.text.len() <= TEXT_BYTES);
        }
    }

    #[test]
    fn a_slot_comes_back(number: u64, boot: [u8; 16], time_us: u64, continues: bool, text in proptest::collection::vec(any::<u8>(), 0..=TEXT_BYTES)) {
        let record = Record { number, boot, time_us, origin: Origin::Kernel, continues, text: &text };
        let slot = record.encode();
        prop_assert_eq!(Record::decode(&slot), Some(record));
    }
}
