//! META: both copies of its values, and the ring of the flight recorder.
//!
//! An input is a kind, flags, and either the records of two copies, whose checksums may be right, or slots of the ring, or
//! lines of the kernel's log.
//! What must hold: nothing panics; a copy that does not count says why; what is read is written and read back the same, and
//! every step on that way leaves the old or the new values; the newest slot is the one with the highest number; a line that
//! was recorded is read back; reading takes no longer and no more memory than the ring is worth.

use ondisk::kmsg::{MAX_RECORD_BYTES, Record};
use ondisk::meta::{self, COPY_BYTES, Found, Meta, intents};
use ondisk::recorder::{
    self, Head, Kind, PAYLOAD_BYTES, Packer, RING_BYTES, RING_OFFSET_BYTES, SLOT_BYTES, SLOTS, Slot, Writer,
    slot_offset,
};
use ondisk::{ReadAt, ReadError, Step, gpt::Guid};
use sha2::{Digest as _, Sha256};

use crate::check;
use crate::input::{Fields, sized};
use crate::target::{Outcome, Target};

pub(super) const TARGET: Target =
    Target { name: "meta", about: "META's values and its flight recorder", seeds, words: WORDS, run };

const WORDS: &[&str] = &[
    "\u{0}\u{0}\u{0}\u{7}",
    "BI\u{0}\u{1}",
    "[{\"partition\":\"STATE\",\"guid\":\"",
    "{\"partitions\":[\"STATE\"],\"then\":\"reboot\"}",
    "6,1,1000,-;",
    "\\x1b",
];

const COPY: usize = 256 << 10;
const RECORDS: usize = 4;
const CHECKSUM: usize = COPY - 36;
const END_MAGIC: usize = COPY - 4;
const MAGICS: [u32; 2] = [0x5A4B_3C2D, 0xA5B4_C3D2];
const BOOT: [u8; 16] = [7; 16];

/// Kinds of inputs.
const VALUES: u8 = 0;
const SLOTS_OF_RING: u8 = 1;

/// Flags: which of the copies has its checksum.
const FIRST_COUNTS: u8 = 1;
const SECOND_COUNTS: u8 = 2;
const FIRST_ENDS: u8 = 4;

/// Two copies and their values, and as much once more to write them; of a ring the text, three times as long where bytes
/// are replaced, with a line's own.
const MOST_BYTES: usize = 8 << 20;

/// A partition of which only a part is there; the rest reads as zeros.
struct Partition {
    offset: u64,
    bytes: Vec<u8>,
}

impl ReadAt for Partition {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let failed = ReadError { offset, length: buffer.len(), errno: 5 };
        let start = usize::try_from(offset.checked_sub(self.offset).ok_or(failed)?).map_err(|_| failed)?;
        let there = self.bytes.get(start..start + buffer.len()).ok_or(failed)?;
        buffer.copy_from_slice(there);
        Ok(())
    }
}

impl Partition {
    fn write(&mut self, step: &Step<'_>) {
        for extent in step {
            let start = usize::try_from(extent.offset - self.offset).expect("META is small");
            self.bytes[start..start + extent.bytes.len()].copy_from_slice(&extent.bytes);
        }
    }
}

fn record(tag: u32, value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).expect("a short value");
    [&tag.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
}

fn slot_of(number: u16, repeat: u8, kind: u8, payload: &[u8]) -> Vec<u8> {
    let head = [&number.to_be_bytes()[..], &[repeat, kind, 1], &[0; 8]].concat();
    [head, sized(payload)].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let guid = Guid::from_seed(b"state");
    let format = format!("[{{\"partition\":\"STATE\",\"guid\":\"{guid}\"}}]");
    let records = [
        record(meta::tags::USER_1, b"mine"),
        record(intents::FORMAT_TAG, format.as_bytes()),
        record(intents::RESET_TAG, b"{\"partitions\":[\"STATE\"],\"then\":\"reboot\"}"),
        record(meta::tags::METAL_NETWORK, &[b'a'; 3000]),
    ]
    .concat();
    let values = |flags: u8, first: &[u8]| [&[VALUES, flags], &sized(first)[..], &record(9, b"{}")].concat();
    let line = |text: &[u8], goes_on: u16| {
        let length = u16::try_from(text.len()).expect("a short line") | goes_on;
        [&6_u16.to_le_bytes()[..], &length.to_le_bytes(), &[1, 0, 0, 0], text].concat()
    };
    let begin = slot_of(1020, 0, 1, b"version=1.0.0\nslot=ROOT-A\nkernel=6.12\n");
    let lines = slot_of(1021, 0, 0, &[line(b"one", 0), line(b"half a ", 1 << 15)].concat());
    let more = slot_of(1022, 0, 0, &[line(b"line", 0), line(&[0xff; 40], 0)].concat());
    let end = slot_of(1023, 0, 2, b"action=Reboot\n");
    let long = slot_of(3, 255, 0, &line(&[b'x'; PAYLOAD_BYTES - 8], 1 << 15));
    let ring = |slots: &[Vec<u8>]| [vec![SLOTS_OF_RING, 0], slots.concat()].concat();
    let log =
        b"6,100,5000,-;Linux version 6.12\n SUBSYSTEM=x\n\x003,101,5000001,-;a fault\x0030,102,9,c;\xff\n";
    vec![
        values(FIRST_COUNTS | SECOND_COUNTS, &records),
        values(FIRST_COUNTS | SECOND_COUNTS | FIRST_ENDS, &records),
        values(SECOND_COUNTS, &records[..20]),
        values(0, &records),
        ring(&[begin, lines, more, end]),
        ring(&[long.clone(), long.clone(), long.clone(), long]),
        [&[2, 0], &log[..]].concat(),
        [&[2, 9], &b"4,1,1,-;"[..], &[b'y'; 3000]].concat(),
    ]
}

fn run(input: &[u8]) -> Outcome {
    let mut fields = Fields::of(input);
    let (kind, flags) = (fields.u8() % 3, fields.u8());
    match kind {
        VALUES => values(flags, fields),
        SLOTS_OF_RING => ring(flags, fields),
        _ => log(flags, fields.rest()),
    }
}

fn copy_of(records: &[u8], counts: bool, ends: bool) -> Vec<u8> {
    let mut copy = vec![0; COPY];
    copy[..RECORDS].copy_from_slice(&MAGICS[0].to_be_bytes());
    // Records may lie at the end of the area, behind one that fills it up to there.
    let area = CHECKSUM - RECORDS;
    let length = records.len().min(area);
    let filler = if ends { area.saturating_sub(length + 8) } else { 0 };
    if filler > 0 {
        let head = record(0xff, &[]);
        copy[RECORDS..RECORDS + 4].copy_from_slice(&head[..4]);
        let value = u32::try_from(filler).expect("an area has 256 KiB");
        copy[RECORDS + 4..RECORDS + 8].copy_from_slice(&value.to_be_bytes());
    }
    let start = if filler > 0 { RECORDS + 8 + filler } else { RECORDS };
    copy[start..start + length].copy_from_slice(&records[..length]);
    copy[END_MAGIC..].copy_from_slice(&MAGICS[1].to_be_bytes());
    if counts {
        let sum = Sha256::digest(&copy);
        copy[CHECKSUM..END_MAGIC].copy_from_slice(&sum);
    }
    copy
}

fn values(flags: u8, mut fields: Fields<'_>) -> Outcome {
    let first = copy_of(fields.sized(), flags & FIRST_COUNTS != 0, flags & FIRST_ENDS != 0);
    let second = copy_of(fields.rest(), flags & SECOND_COUNTS != 0, false);
    let mut partition = Partition { offset: 0, bytes: [first, second].concat() };
    let found = check::within(MOST_BYTES, || meta::read(&mut partition));
    for fault in found.faults.iter().flatten() {
        check::shown(&fault.to_string());
    }
    let guid = Guid::from_seed(b"state");
    let noted =
        (intents::is_half_made(&found.meta, "STATE", guid), intents::is_being_wiped(&found.meta, "STATE"));
    let mut new = found.meta.clone();
    let set = new.set(meta::tags::USER_2, &[b'z'; 2000]).err().map(|error| error.to_string());
    // What does not fit changes nothing.
    assert!(set.is_none() || new == found.meta, "{set:?} changed something");
    assert!(new.set(0, b"x").is_err() && !new.remove(0), "tag 0 has no value");
    changed(&mut partition, &found, &new);
    let faults =
        found.faults.iter().map(|fault| fault.as_ref().map_or_else(String::new, ToString::to_string));
    let shape = format!("{} values, {noted:?}, {set:?}, {:?}", found.meta.iter().count().min(9), {
        faults.map(|fault| crate::shape::of(&fault)).collect::<Vec<_>>()
    });
    Outcome { accepted: found.faults.iter().any(Option::is_none), shapes: vec![shape] }
}

/// The way from what was found to `new`: behind each step the old or the new values are there.
fn changed(partition: &mut Partition, found: &Found, new: &Meta) {
    let steps = found.change_to(new);
    let count = steps.len();
    for (index, step) in steps.iter().enumerate() {
        for extent in step {
            assert!(extent.offset + extent.bytes.len() as u64 <= 2 * COPY_BYTES, "a write behind the copies");
        }
        partition.write(step);
        let now = meta::read(partition);
        let is_last = index + 1 == count;
        assert!(now.meta == *new || !is_last && now.meta == found.meta, "a step lost values");
        assert!(
            !is_last || now.faults == [None, None],
            "a copy that was written is damaged: {:?}",
            now.faults
        );
    }
}

/// Slots as an input has them: number, how many more of the kind follow, kind, writer, time, payload.
fn ring(flags: u8, mut fields: Fields<'_>) -> Outcome {
    let length = usize::try_from(RING_BYTES).expect("a ring has half a megabyte");
    let mut partition = Partition { offset: RING_OFFSET_BYTES, bytes: vec![0; length] };
    let mut highest = None;
    while !fields.is_empty() {
        let number = u64::from(fields.u16());
        // Numbers at their end are as good as others.
        let number = if flags & 1 == 0 { number } else { u64::MAX - 70_000 + number };
        let repeat = u64::from(fields.u8());
        let kind = [Kind::Lines, Kind::Begin, Kind::End, Kind::Lines][usize::from(fields.u8() % 4)];
        let writer = if fields.u8() & 1 == 0 { Writer::Init } else { Writer::Machined };
        let time_us = fields.u64();
        let payload = fields.sized();
        for number in number..=number + repeat {
            let head = Head { number, boot: BOOT, sequence: number, time_us, started_us: 5, writer, kind };
            let slot = recorder::encode(&head, payload);
            let read = Slot::decode(&slot).expect("what was written is a slot");
            let kept = &payload[..payload.len().min(PAYLOAD_BYTES)];
            assert!(read.head == head && read.payload == kept, "a slot is read as something else");
            let at = usize::try_from(slot_offset(number) - RING_OFFSET_BYTES).expect("it is in the ring");
            partition.bytes[at..at + SLOT_BYTES].copy_from_slice(&slot);
        }
    }
    for (place, slot) in (0..SLOTS).zip(partition.bytes.chunks_mut(SLOT_BYTES)) {
        // A bad byte here and there.
        if flags & 2 != 0 && place % 7 == 3 {
            slot[9] ^= flags;
        }
        let number = Slot::decode(slot).map(|slot| slot.head.number).filter(|number| number % SLOTS == place);
        highest = highest.max(number);
    }
    let mut buffer = vec![0; SLOT_BYTES * (1 + usize::from(flags >> 4))];
    let newest = recorder::newest(&mut partition, &mut buffer).expect("the ring can be read");
    assert!(newest.map(|head| head.number) == highest, "{newest:?} is not slot {highest:?}");
    let boots = check::within(MOST_BYTES, || recorder::boots(&mut partition)).expect("the ring can be read");
    let lines: usize = boots.iter().map(|boot| boot.lines.len()).sum();
    let ends = boots.iter().map(|boot| (boot.begin.is_some(), boot.end.is_some())).next();
    let shape = format!("{} boots, {ends:?}, {} lines", boots.len(), lines.min(9));
    Outcome { accepted: highest.is_some(), shapes: vec![shape] }
}

/// Records of the kernel's log, each up to a zero byte, into an empty ring and out of it.
fn log(flags: u8, text: &[u8]) -> Outcome {
    let length = usize::try_from(RING_BYTES).expect("a ring has half a megabyte");
    let mut partition = Partition { offset: RING_OFFSET_BYTES, bytes: vec![0; length] };
    let mut packer = Packer::new(BOOT, Writer::Init, u64::from(flags) * 5, 0);
    let mut wanted = Vec::new();
    let mut next = 0;
    let mut slots = 0;
    let mut put = |offset: u64, slot: &[u8; SLOT_BYTES]| {
        let at = usize::try_from(offset - RING_OFFSET_BYTES).expect("it is in the ring");
        partition.bytes[at..at + SLOT_BYTES].copy_from_slice(slot);
        slots += 1;
        Ok::<(), ()>(())
    };
    for line in text.split(|byte| *byte == 0) {
        let Some(record) = Record::parse(&line[..line.len().min(MAX_RECORD_BYTES)]) else { continue };
        packer.line(&record, &mut put).expect("a ring in memory takes every slot");
        if record.sequence >= next {
            wanted.push((record.prefix, record.text.to_owned()));
        }
        next = packer.sequence();
    }
    packer.finish(&mut put).expect("a ring in memory takes every slot");
    let boots = check::within(MOST_BYTES, || recorder::boots(&mut partition)).expect("the ring can be read");
    if slots <= SLOTS {
        let found = boots.iter().flat_map(|boot| &boot.lines);
        let found: Vec<_> = found.map(|line| (line.prefix, line.text.clone())).collect();
        assert!(found == wanted, "{wanted:?} is read as {found:?}");
    }
    let shape = format!("{} records, {} slots", wanted.len().min(9), slots.min(9));
    Outcome { accepted: !wanted.is_empty(), shapes: vec![shape] }
}
