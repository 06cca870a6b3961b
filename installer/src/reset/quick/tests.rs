use ondisk::ReadAt;
use ondisk::gpt::{Guid, Partition, Table, types};
use ondisk::luks2::{self, Cost, Format, Id, NewSlot};

use super::*;
use crate::certify::{MemoryHost, boot_disk};
use crate::device::{Disk, Memory, apply};
use crate::host::{Host, read_table, write_table};
use crate::meta::ResetIntent;
use crate::reset::{begin, pending, run};
use crate::silent;
use crate::upgrade::Slot;
use crate::volumes::{Did, EPHEMERAL, Volume, provision};

const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 128 * MIB;
const VOLUME_BYTES: u64 = 112 * MIB;
/// Between all places of the volumes below.
const FILE_AT: u64 = 60 * MIB;

/// Four groups of 27 MiB, each with a superblock.
fn xfs() -> Vec<(u64, Vec<u8>)> {
    let mut superblock = vec![0x5a; 512];
    superblock[..8].copy_from_slice(b"XFSB\0\0\x10\0");
    superblock[84..88].copy_from_slice(&(27_u32 << 8).to_be_bytes());
    superblock[88..92].copy_from_slice(&4_u32.to_be_bytes());
    superblock[108..120].fill(0);
    (0..4).map(|group| (group * 27 * MIB, superblock.clone())).collect()
}

/// Groups of 8 MiB, each with a superblock.
fn ext4() -> Vec<(u64, Vec<u8>)> {
    let mut superblock = vec![0; 1024];
    let mut put = |at: usize, value: u32| superblock[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(20, 1);
    put(32, 8192);
    put(56, 0xef53);
    put(0x5c, 4);
    put(0x60, 0x40);
    (0..14).map(|group| (group * 8 * MIB + 1024, superblock.clone())).collect()
}

fn luks2() -> Vec<(u64, Vec<u8>)> {
    let slot = NewSlot { slot: Some(Id(0)), passphrase: b"key", cost: Cost::Pbkdf2(1000), token: None };
    let format = Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", 512);
    let change = format.make(&[0x5a; 64], &[slot], &mut |bytes| bytes.fill(0x31)).unwrap();
    let blank = Memory::new(HEAD_BYTES, 512);
    let mut volume = blank.clone();
    apply(&mut volume, 0, &change.steps).unwrap();
    volume.blocks_unlike(&blank).map(|(at, block)| (at, block.to_vec())).collect()
}

/// A disk whose EPHEMERAL holds this, and a file.
fn disk(content: &[(u64, Vec<u8>)]) -> Memory {
    let mut host = MemoryHost::new(boot_disk(DISK_BYTES, 512).unwrap());
    let mut table = read_table(&mut host).unwrap().table;
    let first_lba = table.partitions.last().unwrap().last_lba + 1;
    table.partitions.push(Partition {
        number: 6,
        type_guid: types::LINUX,
        guid: Guid::from_seed(b"EPHEMERAL"),
        first_lba,
        last_lba: first_lba + VOLUME_BYTES / 512 - 1,
        attributes: 0,
        name: EPHEMERAL.to_owned(),
    });
    write_table(&mut host, &table).unwrap();
    let mut part = open(&mut host, &table);
    for (at, bytes) in content.iter().chain([&(FILE_AT, b"a file".to_vec())]) {
        part.write_at(*at, bytes).unwrap();
    }
    drop(part);
    host.disk.finish().1
}

fn open<'h>(host: &'h mut MemoryHost, table: &Table) -> Box<dyn BlockDevice + 'h> {
    host.open(table, table.by_name(EPHEMERAL).unwrap()).unwrap()
}

fn intent() -> ResetIntent {
    ResetIntent { partitions: vec![EPHEMERAL.to_owned()], then: "reboot".into() }
}

/// Whether anything of the content is left.
fn left(part: &mut dyn BlockDevice, content: &[(u64, Vec<u8>)]) -> Option<u64> {
    let found = |(at, bytes): &&(u64, Vec<u8>)| {
        let mut now = vec![0; bytes.len()];
        part.read_at(*at, &mut now).unwrap();
        now.iter().any(|byte| *byte != 0)
    };
    content.iter().find(found).map(|(at, _)| *at)
}

/// After a cut: nothing was promised and all is as it was; or the next boot, which reads the note, ends with a volume of
/// which no superblock, header or key slot is left.
fn judge(disk: Memory, content: &[(u64, Vec<u8>)], is_promised: bool) -> Result<(), String> {
    let mut host = MemoryHost::new(disk);
    let table = read_table(&mut host).map_err(|e| e.to_string())?.table;
    match pending(&mut host).map_err(|e| e.to_string())? {
        Some(found) => {
            run(&mut host, &found, None, &mut |_, told| silent(told)).map_err(|e| e.to_string())?;
        }
        None if !is_promised => {
            let mut part = open(&mut host, &table);
            let mut start = vec![0; content[0].1.len()];
            part.read_at(content[0].0, &mut start).unwrap();
            return (start == content[0].1).then_some(()).ok_or("changed without a note".into());
        }
        None => {}
    }
    match left(&mut *open(&mut host, &table), content) {
        Some(at) => Err(format!("byte {at} of the volume is left")),
        None => Ok(()),
    }
}

#[test]
fn every_cut_of_a_quick_reset_ends_without_headers_and_backups() {
    for (name, content) in [("xfs", xfs()), ("ext4", ext4()), ("luks2", luks2())] {
        let mut host = MemoryHost::new(disk(&content));
        begin(&mut host, &intent()).unwrap();
        run(&mut host, &intent(), Some(Slot::A), &mut |_, told| silent(told)).unwrap();
        let (recording, _) = host.disk.finish();
        let mut bad = Vec::new();
        let count = recording.each_state(&|_| false, |state| {
            if let Err(error) = judge(state.disk, &content, state.promises.contains(&"reset")) {
                bad.push(format!("{:?}: {error}", state.cut));
            }
        });
        assert!(bad.is_empty(), "{name}: {} of {count}: {:#?}", bad.len(), &bad[..bad.len().min(5)]);
        assert!(count > 20, "{name}: {count}");
    }
}

#[test]
fn a_disk_that_cannot_discard_keeps_files_without_a_way_to_them_and_says_so() {
    for content in [xfs(), ext4(), luks2()] {
        let mut host = MemoryHost::new(disk(&content));
        let table = read_table(&mut host).unwrap().table;
        begin(&mut host, &intent()).unwrap();
        let done = run(&mut host, &intent(), None, &mut |_, told| silent(told)).unwrap();
        let [(_, crate::reset::Wiped::Unreadable(how))] = &done[..] else { panic!("{done:?}") };
        assert_eq!((how.discarded_bytes, how.zeroed_bytes + how.kept_bytes), (0, VOLUME_BYTES));
        assert!(how.to_string().ends_with("left as they are (the disk cannot discard)"), "{how}");
        let mut part = open(&mut host, &table);
        let mut file = [0; 6];
        part.read_at(FILE_AT, &mut file).unwrap();
        assert_eq!(&file, b"a file");
        assert!(luks2::read(&mut &mut *part).unwrap_err().is_absence());
        drop(part);
        // Whatever is left does not count as somebody's.
        assert_eq!(provision(&mut host, Volume::Ephemeral, &[2; 32]).unwrap().did, Did::Formatted);
    }
}

#[test]
fn a_disk_that_discards_gives_up_the_rest() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(VOLUME_BYTES).unwrap();
    let mut device = Disk::open(file.path()).unwrap();
    for (at, bytes) in xfs().iter().chain([&(FILE_AT, b"a file".to_vec())]) {
        device.write_at(*at, bytes).unwrap();
    }
    let how = wipe(&mut device, EPHEMERAL, &mut silent).unwrap();
    assert_eq!((how.kept_bytes, how.zeroed_bytes + how.discarded_bytes), (0, VOLUME_BYTES));
    assert!(how.to_string().ends_with(" MiB discarded"), "{how}");
    let mut bytes = [1; 6];
    device.read_at(FILE_AT, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 6]);
}

/// A disk that says yes and keeps its first superblock.
struct Deaf(Memory);

impl ReadAt for Deaf {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ondisk::ReadError> {
        self.0.read_at(offset, buffer)
    }
}

impl BlockDevice for Deaf {
    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn zero(&mut self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
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
fn a_backup_that_stays_is_an_error() {
    let mut memory = Memory::new(VOLUME_BYTES, 512);
    for (at, bytes) in xfs() {
        memory.write_at(at, &bytes).unwrap();
    }
    let error = wipe(&mut Deaf(memory), EPHEMERAL, &mut silent).unwrap_err();
    assert!(error.to_string().contains("EPHEMERAL was wiped, but reads back other than zeros"), "{error}");
}
