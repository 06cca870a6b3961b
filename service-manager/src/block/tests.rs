use super::*;
use crate::node::Node;
use ondisk::gpt::{Geometry, Guid, Request, Size, lay_out};
use std::os::unix::fs::FileExt;

/// A node whose /sys and /dev know one disk with a partition that holds a FAT.
pub(crate) fn with_a_disk() -> (tempfile::TempDir, Arc<Node>) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let real = root.join("sys/devices/pci0000:00/0000:00:05.0/virtio2/block/vda");
    fs::create_dir_all(real.join("queue")).unwrap();
    fs::create_dir_all(real.join("device")).unwrap();
    fs::create_dir_all(real.join("vda1")).unwrap();
    fs::create_dir_all(root.join("sys/class/block")).unwrap();
    fs::create_dir_all(root.join("dev")).unwrap();
    let disk_bytes: u64 = 80 << 20;
    let guid = |text: &str| Guid::parse(text).unwrap();
    let request = Request {
        name: "STATE".into(),
        type_guid: guid("0fc63daf-8483-4772-8e79-3d69d8477de4"),
        guid: guid("11111111-2222-3333-4444-555555555555"),
        attributes: 0,
        size: Size::Bytes(64 << 20),
    };
    let geometry = Geometry::new(512, disk_bytes).unwrap();
    let table = lay_out(geometry, guid("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"), &[request]).unwrap();
    let disk = fs::File::create(root.join("dev/vda")).unwrap();
    disk.set_len(disk_bytes).unwrap();
    for extent in table.extents().unwrap() {
        disk.write_all_at(&extent.bytes, extent.offset).unwrap();
    }
    let volume = ondisk::fat::Volume { label: "HELLO", volume_id: 7, sector_bytes: 512, bytes: 64 << 20 };
    let part = fs::File::create(root.join("dev/vda1")).unwrap();
    part.set_len(64 << 20).unwrap();
    for extent in ondisk::fat::format(&volume, &[]).unwrap() {
        part.write_all_at(&extent.bytes, extent.offset).unwrap();
    }
    for (file, content) in [
        ("size", "163840\n"),
        ("ro", "0\n"),
        ("serial", "abc \n"),
        ("queue/rotational", "1\n"),
        ("queue/logical_block_size", "512\n"),
        ("queue/minimum_io_size", "4096\n"),
        ("uevent", "MAJOR=254\nMINOR=0\nDEVNAME=vda\nDEVTYPE=disk\n"),
        ("vda1/size", "131072\n"),
        ("vda1/partition", "1\n"),
        ("vda1/uevent", "MAJOR=254\nMINOR=1\nDEVNAME=vda1\nPARTN=1\nPARTNAME=STATE\n"),
    ] {
        fs::write(real.join(file), content).unwrap();
    }
    std::os::unix::fs::symlink(&real, root.join("sys/class/block/vda")).unwrap();
    std::os::unix::fs::symlink(real.join("vda1"), root.join("sys/class/block/vda1")).unwrap();
    let node = crate::server::tests_node(root);
    (dir, node)
}

fn yaml(node: &Node, kind: &'static Definition, id: &str) -> String {
    node.runtime.store.get(kind, id).unwrap_or_else(|| panic!("no {id}")).spec.yaml().unwrap()
}

fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "no {line:?} in\n{text}");
    }
}

#[test]
fn a_disk_its_partition_and_what_lies_there() {
    let (_dir, node) = with_a_disk();
    publish(&node.runtime);
    assert_eq!(node.runtime.store.list(&DISK).len(), 1, "a partition is no disk");
    let disk = yaml(&node, &DISK, "vda");
    has(&disk, &["dev_path: /dev/vda", "size: 83886080", "pretty_size: 84 MB", "transport: virtio"]);
    has(&disk, &["rotational: true", "io_size: 4096", "bus_path: /pci0000:00/0000:00:05.0/virtio2"]);
    has(&yaml(&node, &BLOCK_DEVICE, "vda1"), &["type: partition", "partitionNumber: 1", "parent: vda"]);
    has(
        &yaml(&node, &DISCOVERED_VOLUME, "vda"),
        &["name: gpt", "uuid: aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"],
    );
    let volume = yaml(&node, &DISCOVERED_VOLUME, "vda1");
    has(&volume, &["name: vfat", "label: HELLO", "partition_label: STATE", "partition_index: 1"]);
    has(&volume, &["partition_uuid: 11111111-2222-3333-4444-555555555555", "error: \"\""]);
}

#[test]
fn what_is_gone_leaves_the_list_and_what_is_unreadable_says_why() {
    let (dir, node) = with_a_disk();
    fs::remove_file(dir.path().join("dev/vda1")).unwrap();
    publish(&node.runtime);
    assert!(yaml(&node, &DISCOVERED_VOLUME, "vda1").contains("open /dev/vda1"));
    fs::remove_file(dir.path().join("sys/class/block/vda1")).unwrap();
    publish(&node.runtime);
    assert!(node.runtime.store.get(&DISCOVERED_VOLUME, "vda1").is_none());
}

#[test]
fn the_system_disk_is_the_one_with_state() {
    let (dir, node) = with_a_disk();
    assert_eq!(system_disk(&node.runtime), None);
    fs::create_dir_all(dir.path().join("proc/self")).unwrap();
    fs::write(dir.path().join("proc/self/mounts"), "/dev/vda1 /system/state vfat rw 0 0\n").unwrap();
    publish(&node.runtime);
    has(&yaml(&node, &SYSTEM_DISK, "system-disk"), &["diskID: vda", "devPath: /dev/vda"]);
}

#[tokio::test]
async fn a_device_that_appears_is_listed() {
    let (dir, node) = with_a_disk();
    fs::remove_file(dir.path().join("sys/class/block/vda1")).unwrap();
    node.configuration.settled.send_replace(true);
    tokio::spawn(watch(
        node.runtime.clone(),
        node.devices.subscribe(),
        node.configuration.settled.subscribe(),
        crate::system_disk::twins,
    ));
    let listed = async |count: usize| {
        while node.runtime.store.list(&BLOCK_DEVICE).len() != count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let deadline = Duration::from_secs(20);
    tokio::time::timeout(deadline, listed(1)).await.unwrap();
    let real = dir.path().join("sys/devices/pci0000:00/0000:00:05.0/virtio2/block/vda/vda1");
    std::os::unix::fs::symlink(real, dir.path().join("sys/class/block/vda1")).unwrap();
    node.devices.send_modify(|count| *count += 1);
    tokio::time::timeout(deadline, listed(2)).await.unwrap();
}

#[test]
fn sizes_and_transports_for_people() {
    assert_eq!(
        [0, 999, 1000, 1_500_000, 9_990_000, 75_000_000, 10_485_760_000].map(pretty_size),
        ["0 B", "999 B", "1.0 kB", "1.5 MB", "10 MB", "75 MB", "10 GB"]
    );
    assert_eq!(transport("nvme0n1", "/pci0000:00"), "nvme");
    assert_eq!(transport("sda", "/pci0000:00/0000:00:1f.2/ata1/host0"), "sata");
    assert_eq!(transport("sda", "/pci0000:00/usb1/1-1/host3"), "usb");
    assert_eq!(transport("loop0", ""), "");
}
