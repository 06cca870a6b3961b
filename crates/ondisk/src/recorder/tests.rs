use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use alloc::{format, string};
use core::convert::Infallible;

use proptest::prelude::*;

use super::*;
use crate::kmsg::Record;

fn meta() -> Vec<u8> {
    vec![0xA5; 1 << 20]
}

/// Writes in the order in which they are made.
#[derive(Debug, Default, Clone)]
struct Writes(Vec<(u64, [u8; SLOT_BYTES])>);

impl Writes {
    fn put(&mut self) -> impl FnMut(u64, &[u8; SLOT_BYTES]) -> Result<(), Infallible> + '_ {
        |offset, slot| {
            self.0.push((offset, *slot));
            Ok(())
        }
    }

    fn onto(&self, disk: &mut [u8]) {
        for (offset, slot) in &self.0 {
            put(disk, usize::try_from(*offset).unwrap(), slot);
        }
    }
}

fn record(sequence: u64, text: &str) -> Record<'_> {
    Record { prefix: 30, sequence, stamp_us: sequence * 1000, text }
}

/// What one writer records of a boot, in batches.
fn write(number: u64, boot: u8, batches: &[&[String]]) -> (u64, Writes) {
    let mut packer = Packer::new([boot; 16], Writer::Machined, number, 0);
    let mut writes = Writes::default();
    let mut sequence = 0;
    for batch in batches {
        for text in *batch {
            packer.line(&record(sequence, text), &mut writes.put()).unwrap();
            sequence += 1;
        }
        packer.finish(&mut writes.put()).unwrap();
    }
    (packer.number(), writes)
}

fn texts(boot: &Boot) -> Vec<&str> {
    boot.lines.iter().map(|line| line.text.as_str()).collect()
}

fn read(disk: &[u8]) -> Vec<Boot> {
    let mut disk = disk;
    boots(&mut disk).unwrap()
}

fn newest_of(mut disk: &[u8]) -> Option<u64> {
    let found = [1, 8 * SLOT_BYTES, 100_000]
        .map(|bytes| newest(&mut disk, &mut vec![0; bytes.max(SLOT_BYTES)]).unwrap().map(|head| head.number));
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
    found[0]
}

#[test]
fn the_ring_ends_before_the_last_kib() {
    assert_eq!((SLOTS, RING_BYTES), (1022, 511 << 10));
    assert_eq!(slot_offset(SLOTS - 1) + SLOT_BYTES as u64, (1 << 20) - 1024);
    assert_eq!(slot_offset(SLOTS), RING_OFFSET_BYTES);
    assert_eq!(PAYLOAD_BYTES, 452);
}

#[test]
fn boot_ids_are_the_kernel_s() {
    let id = parse_boot_id("00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
    assert_eq!((id[0], id[1], id[15]), (0, 0x11, 0xff));
    for wrong in ["", "0011", "00112233-4455-6677-8899-aabbccddeeff0", "x0112233-4455-6677-8899-aabbccddeeff"]
    {
        assert_eq!(parse_boot_id(wrong), None, "{wrong}");
    }
}

#[test]
fn lines_come_back_by_boot() {
    let mut disk = meta();
    assert_eq!((newest_of(&disk), read(&disk)), (None, vec![]));
    let long = "x".repeat(PAYLOAD_BYTES * 2);
    let (next, first) = write(0, 1, &[&["first".into(), long.clone(), "third".into()]]);
    let (_, second) = write(next, 2, &[&[string::String::new()]]);
    first.onto(&mut disk);
    second.onto(&mut disk);
    assert_eq!(newest_of(&disk), Some(next));
    let found = read(&disk);
    assert_eq!(found.iter().map(|boot| boot.id[0]).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(texts(&found[0]), ["first", &long, "third"]);
    assert_eq!(found[0].lines.iter().map(|line| line.time_us).collect::<Vec<_>>(), [0, 1000, 2000]);
    assert_eq!((found[0].last_us, found[0].lines[0].prefix), (2000, 30));
    assert_eq!(texts(&found[1]), [""]);
}

#[test]
fn short_lines_share_a_slot_and_a_batch_begins_a_new_one() {
    let lines: Vec<String> = (0..5).map(|n| format!("{n}{}", "x".repeat(79))).collect();
    let (next, writes) = write(7, 1, &[&lines, &lines]);
    assert_eq!((next, writes.0.len()), (9, 2));
    assert_eq!(writes.0[0].0, slot_offset(7));
}

#[test]
fn facts_stand_apart_from_lines() {
    let mut packer = Packer::new([3; 16], Writer::Init, 0, 0);
    packer.set_started_us(1_700_000_000_000_000);
    let mut writes = Writes::default();
    packer.facts(Kind::Begin, 5, "version=1.2\nslot=A\n", &mut writes.put()).unwrap();
    packer.line(&record(4, "a line"), &mut writes.put()).unwrap();
    packer.facts(Kind::End, 9000, "action=reboot\n", &mut writes.put()).unwrap();
    let mut disk = meta();
    writes.onto(&mut disk);
    let found = read(&disk).remove(0);
    let begin = found.begin.clone().unwrap();
    assert_eq!((begin.get("version"), begin.get("slot"), begin.get("ver")), (Some("1.2"), Some("A"), None));
    assert_eq!(found.end.as_ref().unwrap().get("action"), Some("reboot"));
    assert_eq!((texts(&found), found.last_us), (vec!["a line"], 9000));
    assert_eq!(found.started_us, 1_700_000_000_000_000);
    let head = newest(&mut disk.as_slice(), &mut [0; SLOT_BYTES]).unwrap().unwrap();
    assert_eq!((head.kind, head.sequence), (Kind::End, 5), "the next writer goes on behind line 4");
}

#[test]
fn what_was_recorded_is_not_recorded_again() {
    let mut packer = Packer::new([1; 16], Writer::Machined, 0, 2);
    let mut writes = Writes::default();
    for sequence in 0..4 {
        packer.line(&record(sequence, &format!("line {sequence}")), &mut writes.put()).unwrap();
    }
    packer.finish(&mut writes.put()).unwrap();
    let mut disk = meta();
    writes.onto(&mut disk);
    assert_eq!(texts(&read(&disk)[0]), ["line 2", "line 3"]);
    assert_eq!(packer.sequence(), 4);
}

#[test]
fn times_that_go_back_or_far_ahead_begin_a_slot() {
    let mut packer = Packer::new([1; 16], Writer::Machined, 0, 0);
    let mut writes = Writes::default();
    let times = [5000, 4000, 4000 + u64::from(u32::MAX), 4001 + u64::from(u32::MAX)];
    for (sequence, stamp_us) in (0..).zip(times) {
        packer.line(&Record { stamp_us, ..record(sequence, "x") }, &mut writes.put()).unwrap();
    }
    packer.finish(&mut writes.put()).unwrap();
    let mut disk = meta();
    writes.onto(&mut disk);
    assert_eq!(read(&disk)[0].lines.iter().map(|line| line.time_us).collect::<Vec<_>>(), times);
    assert_eq!(writes.0.len(), 3);
}

#[test]
fn a_full_ring_loses_the_oldest_slots_only() {
    let lines: Vec<[String; 1]> = (0..SLOTS + 10).map(|n| [format!("line {n}")]).collect();
    let batches: Vec<&[String]> = lines.iter().map(<[String; 1]>::as_slice).collect();
    let mut disk = meta();
    write(0, 1, &batches).1.onto(&mut disk);
    assert_eq!(newest_of(&disk), Some(SLOTS + 9));
    let found = read(&disk);
    assert_eq!((texts(&found[0]).len() as u64, texts(&found[0])[0]), (SLOTS, "line 10"));
}

/// The end of a long line without its beginning, or its beginning without the end, is shown as far as it goes.
#[test]
fn a_line_that_lost_a_slot_is_shown_in_part() {
    let mut disk = meta();
    let part = PAYLOAD_BYTES - LINE_HEAD;
    let long = format!("{}{}{}", "a".repeat(part), "b".repeat(part), "c");
    write(0, 1, &[&[long]]).1.onto(&mut disk);
    disk[usize::try_from(slot_offset(1)).unwrap()] ^= 1;
    assert_eq!(texts(&read(&disk)[0]), [&"a".repeat(part), "c"]);
}

#[test]
fn a_slot_in_the_wrong_place_does_not_count() {
    let mut disk = meta();
    let (_, writes) = write(8, 1, &[&["moved".to_string()]]);
    put(&mut disk, usize::try_from(slot_offset(7)).unwrap(), &writes.0[0].1);
    assert_eq!((newest_of(&disk), read(&disk)), (None, vec![]));
}

/// A disk with a bad sector in the middle of the ring.
struct BadSector<'a>(&'a [u8], u64);

impl crate::ReadAt for BadSector<'_> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), crate::ReadError> {
        if (offset..offset + buffer.len() as u64).contains(&self.1) {
            return Err(crate::ReadError { offset, length: buffer.len(), errno: 5 });
        }
        self.0.read_at(offset, buffer)
    }
}

#[test]
fn a_bad_sector_costs_its_neighbours_and_no_more() {
    let lines: Vec<[String; 1]> = (0..24).map(|n| [format!("line {n}")]).collect();
    let batches: Vec<&[String]> = lines.iter().map(<[String; 1]>::as_slice).collect();
    let mut disk = meta();
    write(0, 1, &batches).1.onto(&mut disk);
    let found = boots(&mut BadSector(&disk, slot_offset(10))).unwrap();
    assert_eq!(texts(&found[0]).len(), 16);
    assert!(boots(&mut BadSector(&disk[..1], 0)).is_err());
}

/// The newest slot is found beside it, and writing goes on behind it: nothing of what was to be recorded is lost.
#[test]
fn a_writer_goes_on_behind_a_bad_sector() {
    let mut disk = meta();
    let first: Vec<String> = (0..5).map(|n| format!("{n} {}", "x".repeat(300))).collect();
    write(0, 1, &[&first]).1.onto(&mut disk);
    let bad = slot_offset(8)..slot_offset(16);
    let mut buffer = [0; 20 * SLOT_BYTES];
    let found = newest(&mut BadSector(&disk, bad.start), &mut buffer).unwrap().unwrap();
    assert_eq!(found.number, 4);
    let mut packer = Packer::new([2; 16], Writer::Init, found.number + 1, 0);
    let mut put_slot = |offset: u64, slot: &[u8; SLOT_BYTES]| {
        if bad.contains(&offset) {
            return Err("input/output error");
        }
        put(&mut disk, usize::try_from(offset).unwrap(), slot);
        Ok(())
    };
    for (sequence, text) in (0..).zip(&first) {
        packer.line(&record(sequence, text), &mut put_slot).unwrap();
    }
    packer.facts(Kind::End, 9, "end=reboot", &mut put_slot).unwrap();
    assert_eq!(packer.number(), 5 + 6 + 8);
    let found = boots(&mut BadSector(&disk, bad.start)).unwrap();
    assert_eq!(texts(&found[0]), first);
    assert_eq!(texts(&found[1]), first);
    assert_eq!(found[1].end.as_ref().unwrap().get("end"), Some("reboot"));
    // A disk that takes nothing is told.
    let mut tries = 0;
    let gone = packer.facts(Kind::End, 9, "", &mut |_, _| {
        tries += 1;
        Err(())
    });
    assert_eq!((gone, tries), (Err(()), MOST_SKIPPED + 1));
    assert!(newest(&mut BadSector(&disk[..1], 0), &mut buffer).is_err());
}

fn batches() -> impl Strategy<Value = Vec<Vec<String>>> {
    let line = prop_oneof![4 => "[a-z ]{0,90}", 1 => "[a-z]{400,1000}"];
    proptest::collection::vec(proptest::collection::vec(line, 1..12), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The power goes at any write, whose sector is torn at any byte: every line of the slots before is there, and
    /// the next writer goes on. Wherever the ring is: also where it begins anew.
    #[test]
    fn a_cut_at_any_write_costs_that_slot(batches in batches(), start in 0..SLOTS * 2, tear in 0..SLOT_BYTES) {
        let parts: Vec<&[String]> = batches.iter().map(Vec::as_slice).collect();
        let (_, writes) = write(start, 1, &parts);
        let mut disk = meta();
        let mut before: Vec<String> = Vec::new();
        for (cut, (offset, slot)) in writes.0.iter().enumerate() {
            let mut torn = disk.clone();
            put(&mut torn, usize::try_from(*offset).unwrap(), &slot[..tear]);
            let found = read(&torn);
            let kept: Vec<&str> = found.iter().flat_map(texts).collect();
            let whole = read(&disk);
            let wanted: Vec<&str> = whole.iter().flat_map(texts).collect();
            // A tear in the zeros at the end is none.
            if Slot::decode(&torn[usize::try_from(*offset).unwrap()..][..SLOT_BYTES]).is_none() {
                prop_assert_eq!(&kept, &wanted, "cut at write {}", cut);
                let next = newest_of(&torn).map_or(0, |number| number + 1);
                prop_assert_eq!(next, if cut == 0 { 0 } else { start + cut as u64 });
            }
            put(&mut disk, usize::try_from(*offset).unwrap(), slot);
            let now = read(&disk);
            let now: Vec<String> = now.iter().flat_map(texts).map(ToString::to_string).collect();
            // Only the last line may have grown.
            let settled = before.len().saturating_sub(1);
            prop_assert_eq!(&now[..settled], &before[..settled]);
            before = now;
        }
        let all: Vec<String> = batches.concat();
        prop_assert_eq!(before, all);
    }

    /// Of the writes since the last flush any may be missing: what was flushed is there, in order.
    #[test]
    fn lost_writes_of_the_last_batch_cost_nothing_flushed(batches in batches(), lost: u64, start in 0..SLOTS * 2) {
        let parts: Vec<&[String]> = batches.iter().map(Vec::as_slice).collect();
        let flushed = write(start, 1, &parts[..parts.len() - 1]).1;
        let all = write(start, 1, &parts).1;
        let mut disk = meta();
        flushed.onto(&mut disk);
        for (at, (offset, slot)) in all.0[flushed.0.len()..].iter().enumerate() {
            if lost >> (at % 64) & 1 == 0 {
                put(&mut disk, usize::try_from(*offset).unwrap(), slot);
            }
        }
        let found = read(&disk);
        let kept: Vec<&str> = found.iter().flat_map(texts).collect();
        let wanted: Vec<String> = batches[..batches.len() - 1].concat();
        prop_assert!(kept.len() >= wanted.len());
        prop_assert_eq!(&kept[..wanted.len()], wanted.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn no_slot_makes_it_panic(slot in proptest::collection::vec(any::<u8>(), 0..600), seal: bool) {
        let mut slot = slot;
        if seal && slot.len() >= SLOT_BYTES {
            put(&mut slot, 0, MAGIC);
            slot[56] = 1 + (slot[56] & 1);
            slot[57] %= 3;
            slot[59] &= 1;
            let checksum = crc32fast::hash(&slot[SEALED..SLOT_BYTES]);
            put(&mut slot, CHECKSUM, &checksum.to_le_bytes());
        }
        if let Some(found) = Slot::decode(&slot) {
            prop_assert!(found.pieces().map(|piece| piece.text.len()).sum::<usize>() <= PAYLOAD_BYTES);
        }
    }

    #[test]
    fn a_slot_comes_back(number: u64, boot: [u8; 16], sequence: u64, time_us: u64, started_us: u64,
                         payload in proptest::collection::vec(any::<u8>(), 0..=PAYLOAD_BYTES)) {
        let head = Head { number, boot, sequence, time_us, started_us, writer: Writer::Init, kind: Kind::End };
        let slot = encode(&head, &payload);
        prop_assert_eq!(Slot::decode(&slot), Some(Slot { head, payload: &payload }));
    }
}
