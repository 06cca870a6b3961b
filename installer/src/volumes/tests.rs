use std::ops::Range;

use ondisk::ReadAt;
use ondisk::gpt::Geometry;

use super::*;
use crate::certify::{MemoryHost, boot_disk, boot_table, formatted};
use crate::device::{Memory, Recording};
use crate::meta;

const SEED: [u8; 32] = [1; 32];
const ROOMY: u64 = 2 << 30;

fn both(host: &mut MemoryHost) -> Result<[Ready; 2], Error> {
    Ok([provision(host, Volume::State, &SEED)?, provision(host, Volume::Ephemeral, &SEED)?])
}

fn start_of(host: &mut MemoryHost, name: &str) -> Vec<u8> {
    let table = read_table(host).unwrap().table;
    let partition = table.by_name(name).unwrap().clone();
    let mut start = vec![0; 16 << 10];
    host.open(&table, &partition).unwrap().read_at(0, &mut start).unwrap();
    start
}

fn write_into(host: &mut MemoryHost, name: &str, at: u64, bytes: &[u8]) {
    let table = read_table(host).unwrap().table;
    let partition = table.by_name(name).unwrap().clone();
    host.open(&table, &partition).unwrap().write_at(at, bytes).unwrap();
}

#[test]
fn both_are_made_behind_meta_and_found_again() {
    for sector_bytes in [512, 4096] {
        let mut host = MemoryHost::new(boot_disk(ROOMY, sector_bytes).unwrap());
        let [state, ephemeral] = both(&mut host).unwrap();
        assert_eq!((state.did, ephemeral.did), (Did::Made, Did::Made));
        let table = read_table(&mut host).unwrap().table;
        let names: Vec<&str> = table.partitions.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["EFI", "ROOT-A", "ROOT-B", "META", "STATE", "EPHEMERAL"]);
        assert_eq!(table.size_bytes(&state.partition), STATE_BYTES);
        assert_eq!(table.offset_bytes(&state.partition), 8 << 20);
        // Up to the last whole mebibyte before the backup table.
        let end = table.offset_bytes(&ephemeral.partition) + table.size_bytes(&ephemeral.partition);
        assert_eq!(end, ROOMY - (1 << 20));
        let again = both(&mut host).unwrap();
        assert!(again.iter().all(|ready| ready.did == Did::Nothing));
        assert_eq!(again[0].partition, state.partition);
        assert!(format_intents(&values(&mut host, &table).unwrap()).is_empty());
    }
}

#[test]
fn a_small_disk_is_left_as_it_is() {
    let disk = boot_disk(512 << 20, 512).unwrap();
    let mut host = MemoryHost::new(disk);
    let error = provision(&mut host, Volume::State, &SEED).unwrap_err();
    assert!(error.to_string().contains("no room for STATE"), "{error}");
    assert!(host.disk.finish().0.events.is_empty());
}

#[test]
fn what_nobody_of_us_wrote_is_left_alone() {
    let mut host = MemoryHost::new(boot_disk(ROOMY, 512).unwrap());
    both(&mut host).unwrap();
    write_into(&mut host, "STATE", 0, &[0; 16 << 10]);
    write_into(&mut host, "STATE", 70_000, b"somebody's");
    let error = provision(&mut host, Volume::State, &SEED).unwrap_err();
    assert!(error.to_string().contains("STATE holds data of an unknown kind"), "{error}");
    write_into(&mut host, "STATE", 70_000, &[0; 10]);
    assert_eq!(provision(&mut host, Volume::State, &SEED).unwrap().did, Did::Formatted);
    write_into(&mut host, "EPHEMERAL", 0, b"LUKS\xba\xbe\0\x02");
    let error = provision(&mut host, Volume::Ephemeral, &SEED).unwrap_err();
    assert!(
        error.to_string().starts_with("EPHEMERAL is encrypted, and the machine config has no"),
        "{error}"
    );
}

/// Also where only the end of a partition says whose it is.
#[test]
fn a_signature_at_the_end_or_a_second_one_is_somebodys() {
    let mut host = MemoryHost::new(boot_disk(ROOMY, 512).unwrap());
    let [state, _] = both(&mut host).unwrap();
    let bytes = state.table.size_bytes(&state.partition);
    let raid = |host: &mut MemoryHost| {
        let at = bytes - 8192;
        write_into(host, "STATE", at, b"\xfc\x4e\x2b\xa9\x01");
        write_into(host, "STATE", at + 144, &(at / 512).to_le_bytes());
        at
    };
    let at = raid(&mut host);
    let both_told = format!("STATE holds linux_raid_member at byte {at} and xfs at byte 0 at once");
    for error in
        [provision(&mut host, Volume::State, &SEED).unwrap_err(), holds(&mut host, STATE).unwrap_err()]
    {
        assert!(error.to_string().starts_with(&both_told), "{error}");
    }
    write_into(&mut host, "STATE", 0, &[0; 16 << 10]);
    let error = provision(&mut host, Volume::State, &SEED).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("STATE holds linux_raid_member at byte {at}, and no note says")),
        "{error}"
    );
    // What lies within the file system is a file's.
    write_into(&mut host, "STATE", 0, &formatted("STATE"));
    write_into(&mut host, "STATE", 4, &4096_u32.to_be_bytes());
    write_into(&mut host, "STATE", 8, &(bytes / 4096).to_be_bytes());
    assert_eq!(provision(&mut host, Volume::State, &SEED).unwrap().did, Did::Nothing);
}

#[test]
fn two_of_a_name_are_refused() {
    let mut host = MemoryHost::new(boot_disk(ROOMY, 512).unwrap());
    let [state, _] = both(&mut host).unwrap();
    let mut table = state.table;
    let mut second = state.partition.clone();
    (second.number, second.guid) = (9, ondisk::gpt::Guid::from_seed(b"second"));
    second.first_lba = state.partition.last_lba + 2049;
    second.last_lba = second.first_lba + 2048;
    table.partitions.push(second);
    write_table(&mut host, &table).unwrap();
    let error = provision(&mut host, Volume::State, &SEED).unwrap_err();
    assert!(error.to_string().contains("2 partitions are named STATE"), "{error}");
}

#[test]
fn ephemeral_follows_a_disk_that_became_larger() {
    let mut host = MemoryHost::new(boot_disk(ROOMY, 512).unwrap());
    let [_, before] = both(&mut host).unwrap();
    assert_eq!(grow(&mut host, Volume::Ephemeral).unwrap(), 0);
    let (_, old) = host.disk.finish();
    let mut host = MemoryHost::new(enlarged(&old, ROOMY + (1 << 30)));
    assert_eq!(grow(&mut host, Volume::Ephemeral).unwrap(), 1 << 30);
    let (recording, _) = host.disk.finish();
    let count = recording.each_state(&torn, |state| {
        let mut host = MemoryHost::new(state.disk);
        let now = provision(&mut host, Volume::Ephemeral, &SEED).unwrap();
        assert_eq!((now.did, now.partition.first_lba), (Did::Nothing, before.partition.first_lba));
        grow(&mut host, Volume::Ephemeral).unwrap();
        let table = read_table(&mut host).unwrap().table;
        let last = table.by_name("EPHEMERAL").unwrap().last_lba;
        assert_eq!(last, before.partition.last_lba + ((1 << 30) / 512), "{:?}", state.cut);
    });
    assert!(count > 60, "{count}");
}

/// The same content on a longer disk: tables, META and the starts of the volumes lie within these ranges.
fn enlarged(old: &Memory, bytes: u64) -> Memory {
    let mut new = Memory::new(bytes, 512);
    let mut piece = vec![0; 1 << 20];
    let mut old = old.clone();
    let mebibytes = (0..10).chain([344, old.bytes() / (1 << 20) - 1]);
    for at in mebibytes.map(|number| number << 20) {
        old.read_at(at, &mut piece).unwrap();
        new.write_at(at, &piece).unwrap();
    }
    new
}

#[test]
fn boot_code_in_the_first_sector_stays() {
    let mut disk = boot_disk(ROOMY, 512).unwrap();
    disk.write_at(0, b"boot code").unwrap();
    let mut host = MemoryHost::new(disk);
    both(&mut host).unwrap();
    let mut start = [0; 9];
    host.disk.read_at(0, &mut start).unwrap();
    assert_eq!(&start, b"boot code");
}

/// Tables, META and file systems are written sector by sector.
fn torn(_: &Range<u64>) -> bool {
    true
}

/// A first boot whose disk held an older installation: what lies where STATE comes is a file system.
fn first_boot() -> Recording {
    let mut disk = boot_disk(ROOMY, 512).unwrap();
    let old = formatted("OLD");
    disk.write_at(8 << 20, &old).unwrap();
    let mut host = MemoryHost::new(disk);
    both(&mut host).unwrap();
    host.disk.finish().0
}

/// The next boot after a cut: it must end with both volumes whole, and must not touch one that was promised.
fn next_boot(disk: Memory, promises: &[&str]) -> Result<(), String> {
    let mut host = MemoryHost::new(disk);
    let done = both(&mut host).map_err(|e| e.to_string())?;
    for (ready, volume) in done.iter().zip([Volume::State, Volume::Ephemeral]) {
        if start_of(&mut host, volume.name()) != formatted(volume.name()) {
            return Err(format!("{} is not whole", volume.name()));
        }
        if promises.contains(&volume.name()) && ready.did != Did::Nothing {
            return Err(format!("{} was made before, and was {:?} again", volume.name(), ready.did));
        }
    }
    let table = read_table(&mut host).map_err(|e| e.to_string())?.table;
    let expected = boot_table(ROOMY, 512).unwrap();
    if table.partitions[..4] != expected.partitions {
        return Err("other partitions changed".into());
    }
    Ok(())
}

#[test]
fn every_cut_of_the_first_boot_ends_with_both() {
    let recording = first_boot();
    let mut bad = Vec::new();
    let count = recording.each_state(&|range| range.end - range.start < 40_000, |state| {
        if let Err(error) = next_boot(state.disk, &state.promises) {
            bad.push(format!("{:?}: {error}", state.cut));
        }
    });
    assert!(bad.is_empty(), "{} of {count}: {:#?}", bad.len(), &bad[..bad.len().min(5)]);
    assert!(count > 200, "{count}");
}

#[test]
fn without_the_intents_the_same_test_finds_faults() {
    // The judge can fail: a format that is cut off without a note passes for a volume, or for foreign data.
    let mut host = MemoryHost::new(boot_disk(ROOMY, 512).unwrap());
    let [state, _] = both(&mut host).unwrap();
    let (_, disk) = host.disk.finish();
    let mut host = MemoryHost::new(disk);
    let half = &formatted("STATE")[..512];
    write_into(&mut host, "STATE", 0, &[0; 16 << 10]);
    write_into(&mut host, "STATE", 0, half);
    let (_, cut) = host.disk.finish();
    assert!(next_boot(cut.clone(), &[]).is_err());
    let mut host = MemoryHost::new(cut);
    let intent = FormatIntent::new("STATE", state.partition.guid);
    with_meta(&mut host, &state.table, |part| meta::begin_format(part, &intent)).unwrap();
    next_boot(host.disk.finish().1, &[]).unwrap();
}

#[test]
fn values_of_others_survive_an_intent() {
    let mut host = MemoryHost::new(boot_disk(ROOMY, 512).unwrap());
    let table = read_table(&mut host).unwrap().table;
    let set = |meta: &mut ondisk::meta::Meta| meta.set(12, b"mine");
    with_meta(&mut host, &table, |part| meta::update(part, set)).unwrap();
    both(&mut host).unwrap();
    let meta = values(&mut host, &table).unwrap();
    assert_eq!(meta.iter().collect::<Vec<_>>(), [(12, &b"mine"[..])]);
    assert_eq!(Geometry::new(512, ROOMY).unwrap(), table.geometry);
}
