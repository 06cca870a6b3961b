//! Plans for disks of all kinds; installation judged in every state that a power cut can leave.

use std::io::Cursor;

use ondisk::ReadAt as _;
use ondisk::gpt::{self, Request, Size};
use ondisk::manifest::Layer;

use super::*;
use crate::device::{Event, Memory, Recorder, Recording};
use crate::model::{self, System, Verdicts, boot};
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
fn an_installation_on_a_blank_disk_survives_every_cut() {
    let system = model::system("v1");
    let blank = Memory::new(48 * MIB, 512);
    let spec = spec(&system, 512);
    let plan = plan(&mut blank.clone(), identity(), &spec).unwrap();
    let (recording, mut after) = record(&blank, |disk| install(disk, &plan, &spec, &system).unwrap());
    let mut verdicts = Verdicts::new();
    let (version, slot, entry) = boot(&mut after, &mut verdicts).unwrap();
    assert_eq!((version.as_str(), slot, entry.to_string().as_str()), ("v1", Slot::A, "billet-000001.efi"));

    let (mut bootable, mut installed_again) = (0, 0);
    let torn = |range: &Range<u64>| range.start < MIB || range.start >= 47 * MIB;
    let states = recording.each_state(&torn, |mut state| {
        let started = boot(&mut state.disk, &mut verdicts);
        match started {
            Ok((version, ..)) => {
                assert_eq!(version, "v1");
                bootable += 1;
            }
            Err(why) => {
                assert!(state.promises.is_empty(), "{:?}: {why}", state.cut);
                // Nothing starts from it: the medium does, and can do it all again.
                if state.cut.before % 7 == 0 && state.cut.damage.len() < 2 {
                    let wipe = Spec { wipe: true, ..spec };
                    let again = super::plan(&mut state.disk, identity(), &wipe).unwrap();
                    install(&mut state.disk, &again, &wipe, &system).unwrap();
                    assert!(boot(&mut state.disk, &mut verdicts).is_ok());
                    installed_again += 1;
                }
            }
        }
    });
    assert!(states > 200 && bootable > 0 && installed_again > 10, "{states} {bootable} {installed_again}");
}

/// The promise is a system that starts and a table with both copies. Without the last flush a power cut breaks it;
/// before the promise a disk that starts nothing is allowed. The others are kept: the first so that the old table never leads to new content,
/// those of ESP and slot so that what is read back is what the medium has, that of the backup so that one whole table
/// is there when the primary is torn.
#[test]
fn of_the_flushes_of_an_installation_the_last_one_keeps_the_promise() {
    let system = model::system("v1");
    let blank = Memory::new(48 * MIB, 512);
    let spec = spec(&system, 512);
    let plan = plan(&mut blank.clone(), identity(), &spec).unwrap();
    let (recording, _) = record(&blank, |disk| install(disk, &plan, &spec, &system).unwrap());
    let geometry = plan.table.geometry;
    let breaks_a_promise = |recording: &Recording| {
        let (mut broken, mut verdicts) = (false, Verdicts::new());
        recording.each_state(&|_| false, |mut state| {
            let kept = boot(&mut state.disk, &mut verdicts).is_ok()
                && gpt::read(&mut state.disk, geometry).is_ok_and(|found| found.copy == gpt::Copy::Primary);
            broken |= !state.promises.is_empty() && !kept;
        });
        broken
    };
    assert!(!breaks_a_promise(&recording));
    let needed: Vec<bool> = (0..)
        .map_while(|flush| recording.without_flush(flush))
        .map(|without| breaks_a_promise(&without))
        .collect();
    assert_eq!(needed, [false, false, false, false, true]);
}

#[test]
fn the_old_system_does_not_start_from_a_half_written_new_one() {
    let (old, new) = (model::system("v1"), model::system("v2"));
    let mut disk = Memory::new(48 * MIB, 512);
    let first = spec(&old, 512);
    let made = plan(&mut disk, identity(), &first).unwrap();
    install(&mut disk, &made, &first, &old).unwrap();
    let second = Spec { wipe: true, seed: [8; 32], ..spec(&new, 512) };
    let made = plan(&mut disk, identity(), &second).unwrap();
    assert!(made.to_string().contains("holds: Billet, with partitions EFI, ROOT-A, ROOT-B, META"), "{made}");
    let (recording, _) = record(&disk, |disk| install(disk, &made, &second, &new).unwrap());
    let mut verdicts = Verdicts::new();
    let mut seen = std::collections::BTreeSet::new();
    recording.each_state(&|_| false, |mut state| {
        let started = boot(&mut state.disk, &mut verdicts).map_or("nothing".into(), |(version, ..)| version);
        assert!(state.promises.is_empty() || started == "v2", "{:?}: {started}", state.cut);
        seen.insert(started);
    });
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["nothing", "v1", "v2"]);
}

#[test]
fn a_plan_names_everything() {
    let system = model::system("v1");
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
    let (system, other) = (model::system("v1"), model::system("v2"));
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
    let system = model::system("v1");
    let error = plan(&mut Memory::new(37 * MIB, 512), identity(), &spec(&system, 512)).unwrap_err();
    assert_eq!(error.to_string(), "partition table: no room on the disk for partition ROOT-A");
}

/// Numbers that a seed repeats.
struct Numbers {
    seed: u64,
    count: u64,
}

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.count += 1;
        let digest = Digest::sha256(&[&self.seed.to_le_bytes(), &self.count.to_le_bytes()]);
        let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h]) % end
    }
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
            let place = places[usize::try_from(numbers.below(4)).unwrap()];
            put(place, &0xa92b_4efc_u32.to_le_bytes());
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
    let system = model::system("v1");
    let mut numbers = Numbers { seed: 1, count: 0 };
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
        assert_eq!(boot(&mut after, &mut Verdicts::new()).unwrap().0, "v1", "disk {round}");
        let mut meta = vec![0; usize::try_from(MIB).unwrap()];
        let (start, _) = model::place(&plan.table, "META");
        after.read_at(start, &mut meta).unwrap();
        assert!(meta.iter().all(|byte| *byte == 0), "disk {round}: META is not empty");
    }
}

#[test]
fn the_fence_stops_what_a_plan_does_not_name() {
    let system = model::system("v1");
    let mut disk = Memory::new(48 * MIB, 512);
    let plan = plan(&mut disk, identity(), &spec(&system, 512)).unwrap();
    let mut fenced = Fenced { disk: &mut disk, plan: &plan };
    let (other, _) = model::place(&plan.table, "ROOT-B");
    let error = fenced.write_at(other + MIB - 1, b"xx").unwrap_err();
    assert_eq!(error.to_string(), format!("write 2 bytes at {} of /dev/vda", other + MIB - 1));
    assert!(fenced.zero(other + MIB, 512).is_err());
    fenced.write_at(other, b"xx").unwrap();
}
