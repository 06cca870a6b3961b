//! Plans for disks of all kinds. That an installation survives every power cut is certified: [`crate::certify`].

use std::io::Cursor;

use ondisk::ReadAt as _;
use ondisk::gpt::{Request, Size};
use ondisk::manifest::Layer;

use super::*;
use crate::certify::{self, Judge, Numbers, System};
use crate::device::{Event, Memory, Recorder, Recording};
use crate::silent;

const MIB: u64 = 1 << 20;
const LOADER: [fat::File<'static>; 1] =
    [fat::File { path: "EFI/BOOT/BOOTX64.EFI", content: b"systemd-boot" }];

fn identity() -> Identity {
    Identity { path: "/dev/vda".into(), model: "TEST DISK".into(), serial: String::new() }
}

/// FAT32 has a least number of clusters.
fn efi_bytes(sector_bytes: u32) -> u64 {
    if sector_bytes == 512 { 34 * MIB } else { 260 * MIB }
}

fn spec(system: &System, sector_bytes: u32) -> Spec<'_> {
    let new = NewSystem { uki: &system.uki, manifest: &system.manifest };
    let efi_bytes = efi_bytes(sector_bytes);
    Spec { efi_bytes, root_bytes: 2 * MIB, ..Spec::new(new, &LOADER, [7; 32]) }
}

fn install(disk: &mut dyn BlockDevice, plan: &Plan, spec: &Spec<'_>, system: &System) -> Result<(), Error> {
    let mut source = |_: &Layer| Ok(Box::new(Cursor::new(system.layer.clone())) as Box<dyn std::io::Read>);
    apply(disk, plan, spec, &mut source, &mut silent)
}

fn record(disk: &Memory, change: impl FnOnce(&mut Recorder)) -> (Recording, Memory) {
    let mut recorder = Recorder::new(disk.clone());
    change(&mut recorder);
    recorder.finish()
}

/// The ranges that were written.
fn written(recording: &Recording) -> impl Iterator<Item = Range<u64>> {
    recording.events.iter().filter_map(|event| match event {
        Event::Write { offset, bytes } => Some(*offset..*offset + bytes.len() as u64),
        Event::Zero { range } => Some(range.clone()),
        Event::Flush | Event::Acknowledge(_) => None,
    })
}

#[test]
fn a_plan_names_everything() {
    let system = System::new("v1", 40_000);
    let plan = plan(&mut Memory::new(400 * MIB, 512), identity(), &spec(&system, 512)).unwrap();
    let text = plan.to_string();
    let expected = [
        "disk /dev/vda: model TEST DISK, serial -, 819200 sectors of 512 bytes",
        "holds: nothing",
        "system: Billet v1",
        "  1 EFI      1048576..36700160 ",
        "  4 META     40894464..41943040 ",
        "  zeros 0..1048576 old partition table",
        "  zeros 418381824..419430400 backup of the old partition table",
        "  zeros 41943040..42991616 start of what becomes STATE",
        "  zeros 394264576..395313152 start of what becomes EPHEMERAL",
        "  data  1048576..36700160 EFI: file system, boot loader, UKI",
        "  zeros 40894464..41943040 META",
        "  data  419413504..419430400 backup of the new partition table",
        "  data  0..17408 new partition table",
    ];
    for line in expected {
        assert!(text.lines().any(|found| found.starts_with(line)), "no {line:?} in\n{text}");
    }
    assert!(text.ends_with(&format!("plan {}", plan.hash())), "{text}");
}

#[test]
fn what_changed_since_the_plan_is_refused_before_anything_is_written() {
    let (system, other) = (System::new("v1", 40_000), System::new("v2", 40_000));
    let spec = spec(&system, 512);
    let blank = Memory::new(48 * MIB, 512);
    let plan = plan(&mut blank.clone(), identity(), &spec).unwrap();
    let refuse = |disk: &Memory, spec: &Spec<'_>| {
        let mut recorder = Recorder::new(disk.clone());
        let error = install(&mut recorder, &plan, spec, &system).unwrap_err().to_string();
        assert!(recorder.finish().0.events.is_empty(), "{error}");
        error
    };
    let mut touched = blank.clone();
    touched.write_at(47 * MIB + 5, b"x").unwrap();
    let error = refuse(&touched, &spec);
    assert!(error.starts_with("something was written to the disk since the plan for /dev/vda"), "{error}");
    let error = refuse(&Memory::new(49 * MIB, 512), &spec);
    assert!(error.starts_with("the disk has another size"), "{error}");
    for changed in [Spec { seed: [9; 32], ..spec }, super::tests::spec(&other, 512)] {
        let error = refuse(&blank, &changed);
        assert!(error.starts_with("another system or layout is to be installed"), "{error}");
    }
}

#[test]
fn a_disk_too_small_is_refused_by_the_partition_that_does_not_fit() {
    let system = System::new("v1", 40_000);
    let error = plan(&mut Memory::new(37 * MIB, 512), identity(), &spec(&system, 512)).unwrap_err();
    assert_eq!(error.to_string(), "partition table: no room on the disk for partition ROOT-A");
}

/// Somebody's disk, and a word of what the refusal must say; none if it may be taken.
fn topology(numbers: &mut Numbers, system: &System) -> (Memory, Option<&'static str>) {
    let sector_bytes = if numbers.below(4) == 0 { 4096 } else { 512 };
    let bytes = efi_bytes(sector_bytes) + (6 + numbers.below(420)) * MIB + numbers.below(2048) * 4096;
    let mut disk = Memory::new(bytes, sector_bytes);
    let mut put = |offset: u64, content: &[u8]| disk.write_at(offset, content).unwrap();
    let found = match numbers.below(12) {
        0 => None,
        1 => {
            let count = 1 + numbers.below(4);
            let requests: Vec<Request> = (0..count).map(|n| foreign_partition(n, numbers)).collect();
            let geometry = Geometry::new(sector_bytes, bytes).unwrap();
            let table = lay_out(geometry, Guid::from_seed(b"foreign"), &requests).unwrap();
            let damaged = numbers.below(3);
            if damaged != 1 {
                let primary = table.primary().unwrap();
                put(primary.offset, &primary.bytes);
            }
            if damaged != 2 {
                let backup = table.backup().unwrap();
                put(backup.offset, &backup.bytes);
            }
            Some("a GPT with partitions data0")
        }
        2 => {
            let spec = spec(system, sector_bytes);
            let plan = plan(&mut disk, identity(), &spec).unwrap();
            install(&mut disk, &plan, &spec, system).unwrap();
            Some("Billet, with partitions EFI")
        }
        3 => {
            put(446 + 4 + 16 * numbers.below(4), &[0x83]);
            put(510, &[0x55, 0xaa]);
            Some("an MBR partition table with 1 partitions")
        }
        4 => {
            put(512 * numbers.below(4), b"LABELONE");
            Some("an LVM physical volume")
        }
        5 => {
            let places = [0, 4096, (bytes / 512 - 16) / 8 * 4096, bytes / 65_536 * 65_536 - 65_536];
            let version = usize::try_from(numbers.below(4)).unwrap();
            let place = places[version];
            put(place, &0xa92b_4efc_u32.to_le_bytes());
            put(place + 4, &[u8::from(version < 3), 0, 0, 0]);
            put(place + 144, &(place / 512).to_le_bytes());
            Some("software RAID")
        }
        6 => {
            put(0, b"LUKS\xba\xbe\0\x02");
            Some("")
        }
        7 => {
            put(0, b"XFSB");
            Some("")
        }
        8 => {
            put(numbers.below(MIB), &[1]);
            Some("")
        }
        9 => {
            put(bytes - 1 - numbers.below(MIB), &[1]);
            Some("data of an unknown kind")
        }
        10 => {
            put(
                if numbers.below(2) == 0 { u64::from(sector_bytes) } else { bytes - u64::from(sector_bytes) },
                b"EFI PART",
            );
            Some("a damaged GPT")
        }
        // A table for the other sector size.
        _ => {
            let geometry =
                Geometry::new(if sector_bytes == 512 { 4096 } else { 512 }, bytes / 4096 * 4096).unwrap();
            let table =
                lay_out(geometry, Guid::from_seed(b"other"), &[foreign_partition(0, numbers)]).unwrap();
            let primary = table.primary().unwrap();
            put(primary.offset, &primary.bytes);
            Some("a GPT made for sectors of")
        }
    };
    (disk, found)
}

fn foreign_partition(number: u64, numbers: &mut Numbers) -> Request {
    Request {
        name: format!("data{number}"),
        type_guid: types::LINUX,
        guid: Guid::from_seed(&number.to_le_bytes()),
        attributes: 0,
        size: Size::Bytes((1 + numbers.below(8)) * MIB),
    }
}

#[test]
fn no_byte_outside_a_plan_is_written_on_a_thousand_disks() {
    let system = System::new("v1", 40_000);
    let mut numbers = Numbers::new(1);
    for round in 0..1000 {
        let (disk, occupied) = topology(&mut numbers, &system);
        let careful = spec(&system, disk.sector_bytes());
        let mut recorder = Recorder::new(disk.clone());
        match (plan(&mut recorder, identity(), &careful), occupied) {
            (Ok(_), None) => {}
            (Err(Error::Occupied { found, .. }), Some(word)) => {
                assert!(found.contains(word), "disk {round}: {found:?} instead of {word:?}");
            }
            (plan, occupied) => panic!("disk {round}: {plan:?} for {occupied:?}"),
        }
        assert!(recorder.finish().0.events.is_empty(), "disk {round}: a plan writes");

        let wipe = Spec { wipe: true, ..careful };
        let plan = plan(&mut disk.clone(), identity(), &wipe).unwrap();
        let (recording, mut after) = record(&disk, |disk| install(disk, &plan, &wipe, &system).unwrap());
        for range in written(&recording) {
            let named = plan
                .writes
                .iter()
                .any(|write| write.range.start <= range.start && range.end <= write.range.end);
            assert!(named && range.end <= disk.bytes(), "disk {round}: {range:?} is not in\n{plan}");
        }
        let started = Judge::new(&[&system]).start(&mut after).unwrap();
        assert_eq!(started.version, "v1", "disk {round}");
        let mut meta = vec![0; usize::try_from(MIB).unwrap()];
        let (start, _) = certify::place(&plan.table, "META").unwrap();
        after.read_at(start, &mut meta).unwrap();
        assert!(meta.iter().all(|byte| *byte == 0), "disk {round}: META is not empty");
    }
}

#[test]
fn the_fence_stops_what_a_plan_does_not_name() {
    let system = System::new("v1", 40_000);
    let mut disk = Memory::new(48 * MIB, 512);
    let plan = plan(&mut disk, identity(), &spec(&system, 512)).unwrap();
    let mut fenced = Fenced { disk: &mut disk, plan: &plan };
    let (other, _) = certify::place(&plan.table, "ROOT-B").unwrap();
    let error = fenced.write_at(other + MIB - 1, b"xx").unwrap_err();
    assert_eq!(error.to_string(), format!("write 2 bytes at {} of /dev/vda", other + MIB - 1));
    assert!(fenced.zero(other + MIB, 512).is_err());
    fenced.write_at(other, b"xx").unwrap();
}

/// An LVM physical volume with a second LUKS2 header of before, and an XFS in a RAID whose superblock is at the end.
#[test]
fn two_formats_at_once_are_refused_by_name_and_place() {
    let system = System::new("1.0.0", 20_000);
    let spec = spec(&system, 512);
    let bytes = efi_bytes(512) + 100 * MIB;
    let raid = bytes - 8192;
    let number = |value: u64| value.to_le_bytes();
    type Content<'c> = &'c [(u64, &'c [u8])];
    let cases: [(Content<'_>, String); 2] = [
        (
            &[(512, b"LABELONE"), (16 << 10, b"SKUL\xba\xbe\0\x02")],
            "holds LVM2_member at byte 512 and crypto_LUKS at byte 16384 at once: choose another disk"
                .to_owned(),
        ),
        (
            &[(0, b"XFSB"), (raid, b"\xfc\x4e\x2b\xa9\x01"), (raid + 144, &number(raid / 512))],
            format!("holds linux_raid_member at byte {raid} and xfs at byte 0 at once: choose another disk"),
        ),
    ];
    for (content, expected) in cases {
        let mut disk = Memory::new(bytes, 512);
        content.iter().for_each(|(at, bytes)| disk.write_at(*at, bytes).unwrap());
        let error = plan(&mut disk, identity(), &spec).unwrap_err().to_string();
        assert!(error.contains(&expected), "{error}");
    }
}
