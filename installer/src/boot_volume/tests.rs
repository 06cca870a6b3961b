use ondisk::gpt::{Guid, Request, Size, lay_out, types};

use super::*;
use crate::device::{BlockDevice, Memory};

pub(crate) const DISK_BYTES: u64 = 48 << 20;

/// A disk with these files on its EFI system partition.
pub(crate) fn disk_of(files: &[fat::File<'_>]) -> Memory {
    let geometry = Geometry::new(512, DISK_BYTES).unwrap();
    let request = Request {
        name: PARTITION.into(),
        type_guid: types::EFI_SYSTEM,
        guid: Guid::from_seed(b"efi"),
        attributes: 0,
        size: Size::Bytes(40 << 20),
    };
    let table = lay_out(geometry, Guid::from_seed(b"disk"), &[request]).unwrap();
    let mut disk = Memory::new(DISK_BYTES, 512);
    let start = table.offset_bytes(&table.partitions[0]);
    let volume = fat::Volume { label: "EFI", volume_id: 1, sector_bytes: 512, bytes: 40 << 20 };
    for extent in fat::format(&volume, files).unwrap() {
        disk.write_at(start + extent.offset, &extent.bytes).unwrap();
    }
    for extent in table.extents().unwrap() {
        disk.write_at(extent.offset, &extent.bytes).unwrap();
    }
    disk
}

/// After upgrades the first one is not there any more.
#[test]
fn the_command_line_is_that_of_the_newest_system() {
    let uki = |line: &str| {
        let section = ondisk::pe::NewSection { name: ".cmdline", content: line.as_bytes() };
        let stub = include_bytes!("../../../crates/ondisk/testdata/stub.efi");
        Image::parse(stub).unwrap().append(&[section]).unwrap()
    };
    let (older, newer, other) = (uki("old"), uki("talos.platform=aws\0"), uki("other"));
    let mut disk = disk_of(&[
        fat::File { path: "EFI/Linux/billet-000009.efi", content: &older },
        fat::File { path: "EFI/Linux/billet-000010+2-1.efi", content: &newer },
        fat::File { path: "EFI/Linux/other.efi", content: &other },
    ]);
    assert_eq!(command_line(&mut disk, DISK_BYTES).unwrap().as_deref(), Some("talos.platform=aws"));
    assert_eq!(command_line(&mut disk_of(&[]), DISK_BYTES).unwrap(), None);
}
