use ondisk::ReadAt;

use super::*;
use crate::certify::{MemoryHost, boot_disk};
use crate::device::Memory;
use crate::host::write_table;
use crate::install::{Contents, inspect};
use crate::silent;
use crate::volumes::{Did, Volume, provision};

const DISK_BYTES: u64 = 16 << 20;

/// A disk with small volumes, each with a superblock at its start and a secret near its end.
fn installed() -> Memory {
    let mut host = MemoryHost::new(boot_disk(DISK_BYTES, 512).unwrap());
    let mut table = read_table(&mut host).unwrap().table;
    for (number, name) in [(5, "STATE"), (6, "EPHEMERAL")] {
        let first_lba = table.partitions.last().unwrap().last_lba + 1;
        let guid = ondisk::gpt::Guid::from_seed(name.as_bytes());
        let last_lba = first_lba + 4095;
        let (type_guid, name) = (ondisk::gpt::types::LINUX, name.to_owned());
        table.partitions.push(Partition {
            number,
            type_guid,
            guid,
            first_lba,
            last_lba,
            attributes: 0,
            name,
        });
    }
    write_table(&mut host, &table).unwrap();
    for partition in &table.partitions {
        if partition.name == "META" {
            continue;
        }
        host.format(&table, partition).unwrap();
        let mut part = host.open(&table, partition).unwrap();
        let at = part.bytes() - 4096;
        part.write_at(at, format!("secret of {}", partition.name).as_bytes()).unwrap();
    }
    host.disk.finish().1
}

fn intent(partitions: &[&str]) -> ResetIntent {
    let partitions = partitions.iter().map(|name| (*name).to_owned()).collect();
    ResetIntent { partitions, then: "reboot".into() }
}

fn names(targets: &[Target]) -> Vec<&str> {
    targets.iter().map(Target::name).collect()
}

/// Whether a partition is all zeros; the places are those of the disk before.
fn is_zero(disk: &mut Memory, before: &Table, name: &str) -> bool {
    let partition = before.by_name(name).unwrap();
    let (start, length) = (before.offset_bytes(partition), before.size_bytes(partition));
    [0, length - 4096].iter().all(|at| {
        let mut bytes = vec![0; 4096];
        disk.read_at(start + at, &mut bytes).unwrap();
        bytes.iter().all(|byte| *byte == 0)
    })
}

#[test]
fn what_boots_goes_last() {
    let mut host = MemoryHost::new(installed());
    let table = read_table(&mut host).unwrap().table;
    let whole = plan(&table, &intent(&[]), Some(Slot::A)).unwrap();
    let expected = [
        "EPHEMERAL",
        "STATE",
        "ROOT-B",
        "the partition table",
        "the backup of the partition table",
        "EFI",
        "META",
        "ROOT-A",
    ];
    assert_eq!(names(&whole), expected);
    let some = plan(&table, &intent(&["META", "STATE", "EPHEMERAL", "STATE"]), Some(Slot::A)).unwrap();
    assert_eq!(names(&some), ["EPHEMERAL", "STATE", "META"]);
    let error = begin(&mut host, &intent(&["BIOS"])).unwrap_err();
    assert!(error.to_string().contains("failed location partition with label \"BIOS\""), "{error}");
    assert_eq!(pending(&mut host).unwrap(), None);
}

#[test]
fn named_partitions_become_empty_and_the_rest_stays() {
    let mut host = MemoryHost::new(installed());
    let table = read_table(&mut host).unwrap().table;
    begin(&mut host, &intent(&["STATE"])).unwrap();
    assert_eq!(pending(&mut host).unwrap(), Some(intent(&["STATE"])));
    let error = provision(&mut host, Volume::State, &[2; 32]).unwrap_err();
    assert_eq!(error.to_string(), "STATE is not used: a reset of its disk is not through");
    run(&mut host, &intent(&["STATE"]), Some(Slot::A), &mut |_, told| silent(told)).unwrap();
    assert_eq!(pending(&mut host).unwrap(), None);
    let (_, mut disk) = host.disk.finish();
    assert!(is_zero(&mut disk, &table, "STATE"));
    assert!(!is_zero(&mut disk, &table, "EPHEMERAL") && !is_zero(&mut disk, &table, "EFI"));
    let mut host = MemoryHost::new(disk);
    assert_eq!(provision(&mut host, Volume::State, &[2; 32]).unwrap().did, Did::Formatted);
    assert_eq!(provision(&mut host, Volume::Ephemeral, &[2; 32]).unwrap().did, Did::Nothing);
}

/// After a cut: the disk is as it was and nothing was promised, or the next boot finishes, or it starts nothing and no
/// secret is left.
fn judge(disk: Memory, before: &Table, wanted: &ResetIntent, promised: bool) -> Result<(), String> {
    let mut host = MemoryHost::new(disk);
    let gone = wanted.partitions.is_empty() && read_table(&mut host).is_err();
    if !gone {
        match pending(&mut host).map_err(|e| e.to_string())? {
            Some(found) => {
                run(&mut host, &found, None, &mut |_, told| silent(told)).map_err(|e| e.to_string())?;
            }
            None if !promised => return Ok(()),
            None => {}
        }
    }
    let (_, mut disk) = host.disk.finish();
    let secret = match wanted.partitions.is_empty() {
        true => vec!["STATE", "EPHEMERAL", "ROOT-B"],
        false => wanted.partitions.iter().map(String::as_str).collect(),
    };
    match secret.iter().find(|name| !is_zero(&mut disk, before, name)) {
        Some(name) => Err(format!("{name} is not empty")),
        None if wanted.partitions.is_empty() => {
            let found = inspect(&mut disk).map_err(|e| e.to_string())?.contents;
            (found == Contents::Nothing).then_some(()).ok_or_else(|| format!("the disk holds {found}"))
        }
        None => Ok(()),
    }
}

#[test]
fn every_cut_is_resumed_or_is_before_the_promise() {
    for wanted in [intent(&[]), intent(&["STATE"]), intent(&["EPHEMERAL", "META"])] {
        let disk = installed();
        let mut host = MemoryHost::new(disk);
        let table = read_table(&mut host).unwrap().table;
        begin(&mut host, &wanted).unwrap();
        run(&mut host, &wanted, Some(Slot::A), &mut |_, told| silent(told)).unwrap();
        let (recording, _) = host.disk.finish();
        let mut bad = Vec::new();
        let small = |range: &std::ops::Range<u64>| range.end - range.start < 1 << 20;
        let count = recording.each_state(&small, |state| {
            let promised = state.promises.contains(&"reset");
            if let Err(error) = judge(state.disk, &table, &wanted, promised) {
                bad.push(format!("{:?}: {error}", state.cut));
            }
        });
        assert!(bad.is_empty(), "{wanted:?}: {} of {count}: {:#?}", bad.len(), &bad[..bad.len().min(5)]);
        assert!(count > 10, "{count}");
    }
}

/// A disk that says yes and keeps what it had.
struct Deaf(Memory);

impl ReadAt for Deaf {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ondisk::ReadError> {
        self.0.read_at(offset, buffer)
    }
}

impl BlockDevice for Deaf {
    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<(), crate::device::DeviceError> {
        Ok(())
    }

    fn zero(&mut self, _: u64, _: u64) -> Result<(), crate::device::DeviceError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), crate::device::DeviceError> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn sector_bytes(&self) -> u32 {
        512
    }
}

#[test]
fn a_disk_that_keeps_its_bytes_is_named() {
    let mut disk = Memory::new(8 << 20, 512);
    disk.write_at(5 << 20, b"x").unwrap();
    let error = wipe(&mut Deaf(disk), "STATE", 0, None, &mut silent).unwrap_err();
    assert!(error.to_string().contains("STATE was wiped, but reads back other than zeros at byte 5242880"));
    let mut large = Memory::new(WHOLE_BYTES + (1 << 30), 512);
    large.write_at(WHOLE_BYTES + (1 << 30) - 1, b"x").unwrap();
    assert!(wipe(&mut Deaf(large), "EPHEMERAL", 0, None, &mut silent).is_err(), "the end is always read");
}

#[test]
fn a_table_that_was_cut_off_between_its_copies_still_resumes() {
    let mut host = MemoryHost::new(installed());
    begin(&mut host, &intent(&[])).unwrap();
    host.disk.zero(0, END_BYTES).unwrap();
    assert_eq!(pending(&mut host).unwrap(), Some(intent(&[])));
}
