use super::*;
use crate::certify::{MemoryHost, formatted};
use crate::device::{BlockDevice, Memory};

const BYTES: u64 = 64 << 20;
const SEED: [u8; 32] = [1; 32];
const DATA: Named<'_> =
    Named { name: "u-data", least_bytes: 8 << 20, most_bytes: Some(16 << 20), has_filesystem: true };
const RAW: Named<'_> = Named { name: "r-raw", least_bytes: 1 << 20, most_bytes: None, has_filesystem: false };

/// A disk whose volumes are to be encrypted, with a header in the place of an encryption.
struct Sealing(MemoryHost);

fn header() -> Vec<u8> {
    let mut bytes = b"LUKS\xba\xbe\0\x02".to_vec();
    bytes.resize(4096, 0);
    bytes
}

impl Host for Sealing {
    fn disk(&mut self) -> &mut dyn BlockDevice {
        self.0.disk()
    }

    fn open(&mut self, table: &Table, partition: &Partition) -> Result<Box<dyn BlockDevice + '_>, Error> {
        self.0.open(table, partition)
    }

    fn open_shared(
        &mut self,
        table: &Table,
        partition: &Partition,
    ) -> Result<Box<dyn BlockDevice + '_>, Error> {
        self.0.open(table, partition)
    }

    fn announce(&mut self, _table: &Table, _partition: &Partition) -> Result<(), Error> {
        Ok(())
    }

    fn encrypts(&self, _partition: &Partition) -> bool {
        true
    }

    fn encrypt(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        Ok(self.0.open(table, partition)?.write_at(0, &header())?)
    }

    fn format(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        Ok(self.0.open(table, partition)?.write_at(1 << 20, &formatted(&partition.name))?)
    }
}

fn start(host: &mut dyn Host, ready: &Ready) -> Vec<u8> {
    let mut start = vec![0; 16 << 10];
    host.open(&ready.table, &ready.partition).unwrap().read_at(0, &mut start).unwrap();
    start
}

fn empty() -> MemoryHost {
    MemoryHost::new(Memory::new(BYTES, 512))
}

fn made(host: &mut dyn Host, wanted: &Named<'_>) -> Ready {
    provision_named(host, "/dev/sdb", wanted, &SEED).unwrap()
}

fn refused(host: &mut dyn Host, wanted: &Named<'_>) -> String {
    provision_named(host, "/dev/sdb", wanted, &SEED).unwrap_err().to_string()
}

#[test]
fn volumes_are_made_once_beside_each_other() {
    for sector_bytes in [512, 4096] {
        let mut host = MemoryHost::new(Memory::new(BYTES, sector_bytes));
        assert_eq!(room_for(&mut host, "/dev/sdb", &DATA, &SEED).unwrap(), 16 << 20);
        let data = made(&mut host, &DATA);
        assert_eq!((data.did, data.table.size_bytes(&data.partition)), (Did::Made, 16 << 20));
        assert_eq!(data.table.offset_bytes(&data.partition), 1 << 20);
        assert_eq!(start(&mut host, &data), formatted("u-data"));
        let raw = made(&mut host, &RAW);
        assert_eq!((raw.did, raw.table.size_bytes(&raw.partition) >> 20), (Did::Made, 46));
        assert_eq!((data.partition.number, raw.partition.number), (1, 2));
        for (wanted, first) in [(&DATA, &data), (&RAW, &raw)] {
            let again = made(&mut host, wanted);
            assert_eq!((again.did, &again.partition), (Did::Nothing, &first.partition));
            let bytes = first.table.size_bytes(&first.partition);
            assert_eq!(room_for(&mut host, "/dev/sdb", wanted, &SEED).unwrap(), bytes);
        }
        let error = refused(&mut host, &Named { name: "u-more", ..DATA });
        assert!(error.contains("no room for u-more") && error.contains("0 bytes are free"), "{error}");
    }
}

#[test]
fn the_largest_room_is_taken_and_a_number_again() {
    let mut host = empty();
    for (name, mebibytes) in [("u-a", 4), ("u-b", 20), ("u-c", 4)] {
        made(&mut host, &Named { name, most_bytes: Some(mebibytes << 20), least_bytes: 1, ..DATA });
    }
    let mut table = read_table(&mut host).unwrap().table;
    table.partitions.retain(|partition| partition.name != "u-b");
    write_table(&mut host, &table).unwrap();
    // 20 MiB between the two, and 34 behind them.
    let next = made(&mut host, &Named { name: "u-d", most_bytes: None, ..DATA });
    assert_eq!((next.partition.number, next.table.size_bytes(&next.partition) >> 20), (2, 34));
    let last = made(&mut host, &Named { name: "u-e", most_bytes: None, ..DATA });
    assert_eq!((last.partition.number, last.table.size_bytes(&last.partition) >> 20), (4, 20));
}

#[test]
fn a_disk_that_holds_something_is_left_alone() {
    let mut disk = Memory::new(BYTES, 512);
    disk.write_at(4096, b"somebody's").unwrap();
    let mut host = MemoryHost::new(disk);
    let error = refused(&mut host, &DATA);
    assert!(error.starts_with("/dev/sdb holds data of an unknown kind"), "{error}");
    assert!(room_for(&mut host, "/dev/sdb", &DATA, &SEED).is_err());
    let mut host = MemoryHost::new(crate::certify::boot_disk(BYTES, 512).unwrap());
    let error = refused(&mut host, &DATA);
    assert!(error.starts_with("/dev/sdb holds the partition \"EFI\""), "{error}");
    assert!(host.disk.finish().0.events.is_empty());
    let mut host = empty();
    let error = refused(&mut host, &Named { least_bytes: 63 << 20, most_bytes: None, ..DATA });
    assert!(error.contains("no room for u-data"), "{error}");
    assert!(host.disk.finish().0.events.is_empty());
}

/// An LVM physical volume on a partition of the volume's name, with the second LUKS2 header of before.
#[test]
fn a_volume_that_became_anothers_is_left_alone() {
    let mut host = Sealing(empty());
    let data = made(&mut host, &DATA);
    let offset = data.table.offset_bytes(&data.partition);
    host.disk().write_at(offset, &[0; 4096]).unwrap();
    host.disk().write_at(offset + 512, b"LABELONE").unwrap();
    host.disk().write_at(offset + (16 << 10), b"SKUL\xba\xbe\0\x02").unwrap();
    let (_, disk) = host.0.disk.finish();
    let mut host = Sealing(MemoryHost::new(disk));
    let error = refused(&mut host, &DATA);
    assert!(
        error.starts_with("u-data holds LVM2_member at byte 512 and crypto_LUKS at byte 16384 at once"),
        "{error}"
    );
    assert!(host.0.disk.finish().0.events.is_empty());
}

#[test]
fn encrypted_and_plain_are_not_taken_for_each_other() {
    let mut host = Sealing(empty());
    let data = made(&mut host, &DATA);
    assert_eq!(start(&mut host, &data)[..4096], header());
    assert_eq!(made(&mut host, &DATA).did, Did::Nothing);
    let error = refused(&mut host.0, &DATA);
    assert!(error.starts_with("u-data on /dev/sdb holds ") && error.contains("not encrypted"), "{error}");
    let held = |host: &mut dyn Host, name| holds_named(host, name).unwrap().map(|(holds, _)| holds);
    assert_eq!(held(&mut host, "u-data"), Some(Holds::Encrypted));
    let mut plain = empty();
    made(&mut plain, &DATA);
    made(&mut plain, &RAW);
    let all = ["u-data", "r-raw", "u-none"].map(|name| held(&mut plain, name));
    assert_eq!(all, [Some(Holds::Other), Some(Holds::Nothing), None]);
    let mut host = Sealing(plain);
    let error = refused(&mut host, &DATA);
    assert!(error.contains("u-data") && error.contains("xfs"), "{error}");
    // A raw volume that nobody has used may become an encrypted one.
    let raw = made(&mut host, &RAW);
    assert_eq!((raw.did, &start(&mut host, &raw)[..4096]), (Did::Formatted, &header()[..]));
}

#[test]
fn what_lay_in_the_room_of_a_raw_volume_is_gone() {
    let mut host = empty();
    let old = made(&mut host, &Named { name: "u-old", most_bytes: None, ..DATA });
    let mut table = old.table.clone();
    table.partitions.clear();
    write_table(&mut host, &table).unwrap();
    let raw = made(&mut host, &RAW);
    assert_eq!(start(&mut host, &raw), vec![0; 16 << 10]);
    // What its user puts there stays.
    host.open(&raw.table, &raw.partition).unwrap().write_at(0, b"mine").unwrap();
    assert_eq!(made(&mut host, &RAW).did, Did::Nothing);
    assert_eq!(&start(&mut host, &raw)[..4], b"mine");
}

/// Every state that a power cut can leave while `act` works on `disk`.
fn each_cut(disk: Memory, act: impl Fn(&mut MemoryHost) -> Ready) {
    let mut host = MemoryHost::new(disk);
    act(&mut host);
    let (recording, _) = host.disk.finish();
    let count = recording.each_state(&|_| true, |state| {
        let promised = !state.promises.is_empty();
        let mut host = MemoryHost::new(state.disk);
        let done = act(&mut host);
        assert!(!promised || done.did == Did::Nothing, "{:?}", state.cut);
        assert_eq!(start(&mut host, &done), formatted("u-data"), "{:?}", state.cut);
        assert!(read_table(&mut host).unwrap().primary_fault.is_none(), "{:?}", state.cut);
    });
    assert!(count > 50, "{count}");
}

#[test]
fn every_cut_is_begun_again_or_is_whole() {
    let act = |host: &mut MemoryHost| made(host, &DATA);
    each_cut(Memory::new(BYTES, 512), act);
    // Beside another one, which stays as it is.
    let mut host = empty();
    let other = made(&mut host, &Named { name: "u-other", ..DATA });
    let (_, disk) = host.disk.finish();
    each_cut(disk.clone(), |host| {
        let done = act(host);
        let found = read_table(host).unwrap().table.by_name("u-other").cloned();
        assert_eq!(found.as_ref(), Some(&other.partition));
        assert_eq!(start(host, &other), formatted("u-other"));
        done
    });
    // One that somebody emptied.
    let mut host = MemoryHost::new(disk);
    let data = act(&mut host);
    host.open(&data.table, &data.partition).unwrap().zero(0, 16 << 20).unwrap();
    let (_, disk) = host.disk.finish();
    each_cut(disk, act);
}
