//! Upgrade, blessing and rollback on disks that fail: a clear error, and the system that ran starts.

use std::io;

use ondisk::{ReadAt, ReadError, fat};

use super::tests::{VARIANT, upgrade};
use super::*;
use crate::certify::{Judge, Node, System};
use crate::device::{DeviceError, Memory, apply};
use crate::entries::DIRECTORY;

/// A disk whose write or flush number `good` and all later ones fail, as on a bad sector or a disk that became read-only;
/// of the write that fails only the first sector arrives.
struct Failing {
    disk: Memory,
    good: usize,
}

impl Failing {
    fn failed(operation: &'static str, offset: u64, length: u64) -> DeviceError {
        let source = io::Error::from_raw_os_error(5);
        DeviceError { operation, device: "/dev/vda".into(), offset, length, source }
    }

    fn counts(&mut self) -> bool {
        self.good = self.good.saturating_sub(1);
        self.good > 0
    }
}

impl ReadAt for Failing {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.disk.read_at(offset, buffer)
    }
}

impl BlockDevice for Failing {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if self.counts() {
            return self.disk.write_at(offset, bytes);
        }
        if self.good == 0 {
            self.disk.write_at(offset, &bytes[..bytes.len().min(512)])?;
        }
        Err(Self::failed("write", offset, bytes.len() as u64))
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
        if self.counts() { self.disk.zero(offset, length) } else { Err(Self::failed("zero", offset, length)) }
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        if self.counts() { Ok(()) } else { Err(Self::failed("flush", 0, self.disk.bytes())) }
    }

    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.disk.sector_bytes()
    }
}

/// Lets every write and flush of a change fail in turn. Returns how many there are, and what is started after each.
fn sweep(
    node: &Node,
    systems: &[&System],
    change: &mut dyn FnMut(&mut Failing) -> Result<Entry, Error>,
) -> Vec<String> {
    let mut started = Vec::new();
    for good in 1.. {
        let mut device = Failing { disk: node.disk.clone(), good };
        let result = change(&mut device);
        let now = Judge::new(systems).start(&mut device.disk);
        let now = now.unwrap_or_else(|why| panic!("after failure {good} nothing starts: {why}"));
        match result {
            Ok(_) => break,
            Err(error) => {
                assert!(error.to_string().ends_with("of /dev/vda"), "{error}");
                started.push(now.version);
            }
        }
    }
    started
}

#[test]
fn a_disk_that_fails_anywhere_in_an_upgrade_starts_the_old_system() {
    let (older, old, new) = (VARIANT.system("v0"), VARIANT.system("v1"), VARIANT.system("v2"));
    let node = Node::installed(VARIANT, &older).unwrap().upgraded(&old).unwrap();
    let started = sweep(&node, &[&older, &old, &new], &mut |device| {
        let table = node.table.clone();
        upgrade(device, &table, node.running, &new)
    });
    // The last one is the flush behind the name: the new system is there, only nobody can be sure.
    let (last, before) = started.split_last().unwrap();
    assert!(started.len() > 8, "{started:?}");
    assert!(before[..before.len() - 1].iter().all(|version| version == "v1"), "{started:?}");
    assert!(last == "v2", "{started:?}");
}

#[test]
fn a_disk_that_fails_at_a_blessing_or_a_rollback_starts_what_ran() {
    let (old, new) = (VARIANT.system("v1"), VARIANT.system("v2"));
    let node = Node::installed(VARIANT, &old).unwrap().on_trial(&new).unwrap();
    let systems = [&old, &new];
    let entry = node.running.entry;
    assert_eq!(sweep(&node, &systems, &mut |device| node.on(device).bless(entry)), ["v2", "v2"]);
    let node = Node::installed(VARIANT, &old).unwrap().upgraded(&new).unwrap();
    let entry = node.running.entry;
    // One sector, which a disk writes whole or not at all: here it arrived, and the answer was an error.
    assert_eq!(sweep(&node, &systems, &mut |device| node.on(device).roll_back(entry)), ["v1", "v1"]);
}

#[test]
fn a_full_esp_is_said_and_the_old_system_starts() {
    let (old, new) = (VARIANT.system("v1"), VARIANT.system("v2"));
    let mut node = Node::installed(VARIANT, &old).unwrap();
    let efi = node.range("EFI").unwrap();
    let length = efi.end - efi.start;
    let free = {
        let mut reader = fat::Reader::open(Part::new(&mut node.disk, efi.start, length)).unwrap();
        let all = vec![0; usize::try_from(length).unwrap()];
        match reader.add(&format!("{DIRECTORY}/large"), &all) {
            Err(fat::Error::Full(free)) => free,
            other => panic!("{other:?}"),
        }
    };
    let most = vec![0; usize::try_from(free).unwrap() - new.uki.len() / 2];
    let steps = {
        let mut reader = fat::Reader::open(Part::new(&mut node.disk, efi.start, length)).unwrap();
        reader.add(&format!("{DIRECTORY}/large"), &most).unwrap()
    };
    apply(&mut node.disk, efi.start, &steps).unwrap();
    let mut disk = node.disk.clone();
    let error = upgrade(&mut disk, &node.table, node.running, &new).unwrap_err().to_string();
    assert!(error.starts_with("fat32: the files do not fit the volume's"), "{error}");
    assert_eq!(Judge::new(&[&old, &new]).start(&mut disk).unwrap().version, "v1");
    // Once there is room it goes through.
    let mut part = Part::new(&mut disk, efi.start, length);
    let steps = fat::Reader::open(&mut part).unwrap().remove(&format!("{DIRECTORY}/large")).unwrap();
    apply(&mut part, 0, &steps).unwrap();
    upgrade(&mut disk, &node.table, node.running, &new).unwrap();
    assert_eq!(Judge::new(&[&old, &new]).start(&mut disk).unwrap().version, "v2");
}
