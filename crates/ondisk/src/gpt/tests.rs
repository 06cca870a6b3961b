//! Tables against sgdisk and sfdisk, damage in either copy, and arbitrary bytes.

use alloc::string::ToString;
use alloc::vec;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::Extent;

const MIB: u64 = 1 << 20;

fn request(name: &str, type_guid: Guid, size: Size) -> Request {
    let attributes = if name == "BIOS" { attributes::LEGACY_BOOTABLE } else { 0 };
    Request { name: name.into(), type_guid, guid: Guid::from_seed(name.as_bytes()), attributes, size }
}

fn table(sector_bytes: u32) -> Table {
    let requests = [
        request("EFI", types::EFI_SYSTEM, Size::Bytes(33 * MIB)),
        request("BIOS", types::BIOS_BOOT, Size::Bytes(1)),
        request("ROOT-A", types::LINUX, Size::Bytes(10 * MIB + 1)),
        request("Größe 😀", types::LINUX, Size::Rest),
    ];
    let geometry = Geometry::new(sector_bytes, 64 * MIB).unwrap();
    lay_out(geometry, Guid::from_seed(b"disk"), &requests).unwrap()
}

fn disk(table: &Table) -> Vec<u8> {
    let mut disk = vec![0; 64 << 20];
    for Extent { offset, bytes } in table.extents().unwrap() {
        let at = usize::try_from(offset).unwrap();
        disk[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    disk
}

fn tool(name: &str, args: &[&str], path: &Path) -> String {
    let output = Command::new(name)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .args(args)
        .arg(path)
        .output()
        .unwrap_or_else(|e| panic!("this test needs {name} (Debian packages gdisk, fdisk): {e}"));
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {text}");
    text
}

#[test]
fn sgdisk_and_sfdisk_find_nothing_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let table = table(512);
    std::fs::write(&path, disk(&table)).unwrap();
    let verdict = tool("sgdisk", &["-v"], &path);
    assert!(verdict.contains("No problems found"), "{verdict}");
    let verdict = tool("sfdisk", &["-V"], &path);
    assert!(verdict.contains("No errors detected"), "{verdict}");
    let dump = tool("sfdisk", &["-d"], &path);
    assert!(dump.contains(&table.disk_guid.to_string()), "{dump}");
    for partition in &table.partitions {
        assert!(dump.contains(&partition.guid.to_string()), "{dump}");
        assert!(dump.contains(&std::format!("start= {:>11}", partition.first_lba)), "{dump}");
    }
    // The dump writes what is not ASCII as escaped UTF-8.
    let name = r"Gr\xc3\xb6\xc3\x9fe \xf0\x9f\x98\x80";
    assert!(dump.contains("LegacyBIOSBootable") && dump.contains(name), "{dump}");
}

/// Checksums and all are right; what the disk holds is not known, so it does not count as empty.
#[test]
fn a_table_without_room_for_an_entry_is_no_empty_one() {
    let mut disk = disk(&table(512));
    let last = disk.len() - 512;
    for header in [512, last] {
        crate::field::put(&mut disk, header + 80, &0_u32.to_le_bytes());
        crate::field::put(&mut disk, header + 88, &crate::crc32::hash(&[]).to_le_bytes());
        crate::field::put(&mut disk, header + 16, &[0; 4]);
        let sum = crate::crc32::hash(&disk[header..header + 92]);
        crate::field::put(&mut disk, header + 16, &sum.to_le_bytes());
    }
    let geometry = Geometry::new(512, 64 * MIB).unwrap();
    let error = read(&mut disk.as_slice(), geometry).unwrap_err();
    let both = Error::BothBad { primary: Box::new(Error::Entries), backup: Box::new(Error::Entries) };
    assert_eq!(error, both);
}

/// As on a node's first boot: a 64 MiB image was flashed to a disk of 96 MiB.
#[test]
fn a_table_moves_to_the_end_of_a_larger_disk_and_its_last_partition_grows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let larger = Geometry::new(512, 96 * MIB).unwrap();
    let mut flashed = disk(&table(512));
    flashed.resize(96 << 20, 0);
    let found = read(&mut flashed.as_slice(), larger).unwrap();
    let before = found.table.clone();
    let mut moved = found.table.on(larger).unwrap();
    let last = moved.partitions.last().unwrap().number;
    assert_eq!((moved.grow(1), moved.grow(last), moved.grow(last)), (Some(0), Some(32 * MIB / 512), Some(0)));
    assert_eq!(moved.grow(9), None);
    assert_eq!(moved.partitions[..3], before.partitions[..3]);
    std::fs::write(&path, {
        let mut bytes = flashed.clone();
        for Extent { offset, bytes: copy } in moved.extents().unwrap() {
            let at = usize::try_from(offset).unwrap();
            bytes[at..at + copy.len()].copy_from_slice(&copy);
        }
        bytes
    })
    .unwrap();
    let verdict = tool("sgdisk", &["-v"], &path);
    assert!(verdict.contains("No problems found"), "{verdict}");
    // A disk that is smaller than its table says is refused.
    let smaller = Geometry::new(512, 40 * MIB).unwrap();
    assert_eq!(before.on(smaller), Err(Error::Range(3)));
}

/// sgdisk and sfdisk take files for disks with 512-byte sectors; fdisk can be told otherwise.
#[test]
fn fdisk_reads_the_table_for_4096_byte_sectors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let table = table(4096);
    std::fs::write(&path, disk(&table)).unwrap();
    let list = tool("fdisk", &["-b", "4096", "-l", "-o", "Start,End,UUID,Name"], &path);
    assert!(!list.contains("corrupt") && !list.contains("mismatch"), "{list}");
    for p in &table.partitions {
        let line = std::format!("{:>5} {:>5} {} {}", p.first_lba, p.last_lba, p.guid, p.name);
        assert!(list.contains(&line), "{line} in {list}");
    }
}

#[test]
fn partitions_are_aligned_and_in_order() {
    for sector_bytes in [512, 4096] {
        let table = table(sector_bytes);
        for (number, partition) in (1..).zip(&table.partitions) {
            assert_eq!(partition.number, number);
            assert_eq!(table.offset_bytes(partition) % MIB, 0);
            assert_eq!(table.size_bytes(partition) % MIB, 0);
        }
        let root = table.by_name("ROOT-A").unwrap();
        assert_eq!(table.size_bytes(root), 11 * MIB);
        assert_eq!(table.by_guid(root.guid), Some(root));
    }
}

#[test]
fn either_copy_is_enough() {
    for sector_bytes in [512, 4096] {
        let table = table(sector_bytes);
        let good = disk(&table);
        let found = read(&mut good.as_slice(), table.geometry).unwrap();
        assert_eq!(found, Found { table: table.clone(), copy: Copy::Primary, primary_fault: None });

        let sector = sector_bytes as usize;
        for (at, fault) in [
            (sector, Error::NoSignature),
            (sector + 16, Error::HeaderChecksum),
            (sector * 2 + 60, Error::EntriesChecksum),
        ] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            let found = read(&mut bad.as_slice(), table.geometry).unwrap();
            assert_eq!((found.table, found.copy), (table.clone(), Copy::Backup));
            assert_eq!(found.primary_fault, Some(fault));
            *bad.last_chunk_mut::<4096>().unwrap() = [0; 4096];
            let error = read(&mut bad.as_slice(), table.geometry).unwrap_err();
            assert!(matches!(error, Error::BothBad { .. }), "{error}");
        }
    }
}

#[test]
fn the_table_of_an_image_that_was_cut_off_tells_how_far_it_would_reach() {
    for sector_bytes in [512, 4096] {
        let table = table(sector_bytes);
        let cut = &disk(&table)[..20 << 20];
        assert_eq!(read_stated(&mut &*cut, sector_bytes).unwrap(), table);
        let shorter = Geometry::new(sector_bytes, 20 * MIB).unwrap();
        assert!(read(&mut &*cut, shorter).is_err());
    }
    assert_eq!(read_stated(&mut disk(&table(512)).as_slice(), 4096).unwrap_err(), Error::NoSignature);
}

#[test]
fn a_table_for_other_sectors_is_not_taken() {
    let geometry = Geometry::new(4096, 64 * MIB).unwrap();
    let error = read(&mut disk(&table(512)).as_slice(), geometry).unwrap_err();
    assert!(matches!(error, Error::BothBad { .. }), "{error}");
}

#[test]
fn bad_requests_are_refused() {
    let geometry = Geometry::new(512, 8 * MIB).unwrap();
    let try_sizes = |sizes: &[Size]| {
        let requests: Vec<_> =
            (0..).zip(sizes).map(|(i, size)| request(&std::format!("P{i}"), types::LINUX, *size)).collect();
        lay_out(geometry, Guid::ZERO, &requests)
    };
    assert!(try_sizes(&[Size::Bytes(6 * MIB)]).is_ok());
    assert_eq!(try_sizes(&[Size::Bytes(7 * MIB)]), Err(Error::Full("P0".into())));
    assert_eq!(try_sizes(&[Size::Rest, Size::Rest]), Err(Error::Full("P1".into())));
    assert_eq!(try_sizes(&[Size::Bytes(u64::MAX)]), Err(Error::Full("P0".into())));
    assert_eq!(try_sizes(&[Size::Bytes(0)]), Err(Error::Full("P0".into())));
    assert_eq!(Geometry::new(1024, 8 * MIB), Err(Error::SectorSize(1024)));
    assert_eq!(Geometry::new(512, 20_000), Err(Error::DiskTooSmall));
}

#[test]
fn a_broken_table_is_not_written() {
    let refuse = |change: &dyn Fn(&mut Table)| {
        let mut broken = table(512);
        change(&mut broken);
        broken.extents().unwrap_err()
    };
    assert_eq!(refuse(&|t| t.partitions[1].first_lba -= 1), Error::Overlap(1, 2));
    assert_eq!(refuse(&|t| t.partitions[0].first_lba = 33), Error::Range(1));
    assert_eq!(refuse(&|t| t.partitions[3].last_lba = u64::MAX), Error::Range(4));
    assert_eq!(refuse(&|t| t.partitions[2].number = 129), Error::Number(129));
    assert_eq!(refuse(&|t| t.partitions[2].number = 1), Error::Number(1));
    assert_eq!(refuse(&|t| t.partitions[2].name = "x".repeat(37)), Error::Name(3));
    let guid = table(512).partitions[0].guid;
    assert_eq!(refuse(&|t| t.partitions[2].guid = guid), Error::DuplicateGuid(guid));
}

#[test]
fn guid_text() {
    let text = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B";
    let guid = Guid::parse(text).unwrap();
    assert_eq!(guid, types::EFI_SYSTEM);
    assert_eq!(guid.to_string(), text);
    assert_eq!(guid.stored()[..4], [0x28, 0x73, 0x2A, 0xC1]);
    for bad in [
        "",
        "C12A7328-F81F-11D2-BA4B-00A0C93EC93",
        "C12A7328-F81F-11D2-BA4B-00A0C93EC93-",
        "C12A7328xF81F-11D2-BA4B-00A0C93EC93B",
    ] {
        assert_eq!(Guid::parse(bad), None, "{bad}");
    }
}

/// A disk that is one page of bytes over and over: enough for any offset to be readable.
struct Pages<'a>(&'a [u8]);

impl crate::ReadAt for Pages<'_> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), crate::ReadError> {
        let start = usize::try_from(offset % self.0.len() as u64).unwrap();
        buffer.iter_mut().zip(self.0.iter().cycle().skip(start)).for_each(|(to, from)| *to = *from);
        Ok(())
    }
}

proptest! {
    #[test]
    fn resealed_headers_never_panic(at in 0usize..92, value in any::<[u8; 8]>(), entry in 0usize..512, with in any::<[u8; 16]>()) {
        // Damage that a checksum would catch is sealed again, so that the checks behind it are reached.
        let table = table(512);
        let mut page = table.primary().unwrap().bytes.into_owned();
        page.resize(32768, 0);
        crate::field::put(&mut page, 1024 + entry, &with);
        crate::field::put(&mut page, 512 + at, &value);
        let entries = crc32fast::hash(&page[1024..1024 + 16384]);
        crate::field::put(&mut page, 512 + 88, &entries.to_le_bytes());
        crate::field::put(&mut page, 512 + 16, &[0; 4]);
        let header = crc32fast::hash(&page[512..604]);
        crate::field::put(&mut page, 512 + 16, &header.to_le_bytes());
        if let Ok(found) = read(&mut Pages(&page), table.geometry) {
            prop_assert!(found.table.partitions.iter().all(|p| p.last_lba < table.geometry.sectors));
        }
        if let Ok(stated) = read_stated(&mut Pages(&page), 512) {
            prop_assert!(stated.partitions.iter().all(|p| p.last_lba < stated.geometry.sectors));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 1..5000)) {
        let geometry = Geometry::new(512, MIB).unwrap();
        prop_assert!(read(&mut Pages(&bytes), geometry).is_err());
        prop_assert!(read_stated(&mut Pages(&bytes), 512).is_err());
    }
}

/// The copy that a change writes first must never be the only whole one.
#[test]
fn a_change_mends_a_damaged_primary_before_it_touches_the_backup() {
    let old = table(512);
    let mut new = old.clone();
    new.partitions.pop();
    let mut whole = disk(&old);
    let places = |found: &Found| -> Vec<u64> {
        found.change_to(&new).unwrap().iter().map(|step| step[0].offset).collect()
    };
    let backup = old.backup().unwrap().offset;
    assert_eq!(places(&read(&mut &whole[..], old.geometry).unwrap()), [backup, 0]);
    whole[1024] ^= 1;
    let found = read(&mut &whole[..], old.geometry).unwrap();
    assert_eq!(places(&found), [0, backup, 0]);
    assert_eq!(found.change_to(&new).unwrap()[0], [old.primary().unwrap()]);
}
