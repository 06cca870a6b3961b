//! Machines to boot.

use handoff::{Action, ToInit};
use ondisk::Digest;
use ondisk::gpt::{Geometry, Guid, Request, Size, lay_out, types};
use ondisk::manifest::{FORMAT, Layer, PATH, RootManifest};
use ondisk::verity::TreeBuilder;

use crate::recording::{Event, Recording, message};

pub(super) const DISK_BYTES: u64 = 24 << 20;

/// GUID of partition `EFI` of the disk with this seed.
pub(super) fn efi_guid(seed: u8) -> Guid {
    Guid::from_seed(&[seed, 1])
}

/// Two layers of two blocks each, back to back; and their bytes as in a slot.
pub(super) fn root() -> (RootManifest, Vec<u8>) {
    let mut slot = Vec::new();
    let mut layers = Vec::new();
    for (name, fill, release) in [("base", 1, None), ("kernel", 2, Some("6.12.0-test".to_string()))] {
        let data = vec![fill; 8192];
        let mut tree = TreeBuilder::new(Digest([9; 32]));
        tree.push(&data);
        let tree = tree.finish().unwrap();
        layers.push(Layer {
            name: name.to_string(),
            version: "1.0".to_string(),
            offset: slot.len() as u64,
            data_bytes: 8192,
            hash_offset: 8192,
            hash_bytes: tree.bytes.len() as u64,
            root_hash: tree.root,
            salt: Digest([9; 32]),
            kernel_release: release,
        });
        slot.extend(data);
        slot.extend(tree.bytes);
    }
    (RootManifest { format: FORMAT, version: "0.1.0".to_string(), layers }, slot)
}

/// An initramfs without layers, on a machine with one virtio device.
pub(super) fn machine(command_line: &str) -> Recording {
    let modules = "/lib/modules/6.12.0-test";
    let dep = "kernel/loop.ko:\nkernel/dm-mod.ko:\nkernel/dm-verity.ko: kernel/dm-mod.ko\nkernel/squashfs.ko:\n\
               kernel/overlay.ko:\nkernel/virtio_blk.ko.xz:\nkernel/isofs.ko:\nkernel/vfat.ko:\n";
    let profile = "# what a root needs\nloop\ndm-verity\nsquashfs\n\noverlay # stacks\n";
    Recording::new()
        .file("/proc/cmdline", format!("console=ttyS0 {command_line}\n"))
        .file(PATH, root().0.to_json())
        .file(&format!("{modules}/modules.dep"), dep)
        .file(&format!("{modules}/modules.alias"), "alias virtio:d00000002v* virtio_blk\n")
        .file("/etc/billet/modules.load", profile)
        .file("/sys/bus/virtio/devices/virtio0/modalias", "virtio:d00000002v00001AF4\n")
        .file("/sys/block/loop0/size", "0\n")
        .file("/sys/class/block/loop0/size", "0\n")
        .file("/usr/bin/machined", b"\x7fELF".to_vec())
        .file("/proc/sys/kernel/random/boot_id", "01020304-0506-0708-090a-0b0c0d0e0f10\n")
        .file("/dev/watchdog0", b"".to_vec())
        .file("/proc/self/mountinfo", include_str!("../../testdata/mountinfo.txt"))
}

/// Layers as files in the initramfs.
pub(super) fn with_layers(mut machine: Recording, folder: &str) -> Recording {
    for layer in root().0.layers {
        machine.sizes.insert(format!("{folder}/{}", layer.file_name()), layer.total_bytes());
    }
    machine
}

/// A disk whose slot A holds the layers.
pub(super) fn with_disk(machine: Recording, name: &str, seed: u8, contents: &[u8]) -> Recording {
    with_partitions(machine, name, seed, contents, &["EFI", "ROOT-A", "ROOT-B", "META"])
}

/// A disk with these partitions; slot A, if there is one, has these contents.
pub(super) fn with_partitions(
    mut machine: Recording,
    name: &str,
    seed: u8,
    contents: &[u8],
    partitions: &[&str],
) -> Recording {
    let geometry = Geometry::new(512, DISK_BYTES).unwrap();
    let request = |name: &str, number: u8, size| Request {
        name: name.to_string(),
        type_guid: types::LINUX,
        guid: Guid::from_seed(&[seed, number]),
        attributes: 0,
        size,
    };
    let bytes = |name: &str| Size::Bytes(if name == "META" { 1 << 20 } else { 4 << 20 });
    let requests: Vec<Request> =
        (1..).zip(partitions).map(|(number, name)| request(name, number, bytes(name))).collect();
    let table = lay_out(geometry, Guid::from_seed(&[seed]), &requests).unwrap();
    let mut bytes = vec![0; usize::try_from(DISK_BYTES).unwrap()];
    for extent in table.extents().unwrap() {
        let at = usize::try_from(extent.offset).unwrap();
        bytes[at..at + extent.bytes.len()].copy_from_slice(&extent.bytes);
    }
    if let Some(slot) = table.by_name("ROOT-A") {
        let at = usize::try_from(table.offset_bytes(slot)).unwrap();
        bytes[at..at + contents.len()].copy_from_slice(contents);
    }
    let folder = format!("/sys/block/{name}");
    for partition in &table.partitions {
        let number = partition.number;
        machine = machine
            .file(&format!("{folder}/{name}{number}/start"), format!("{}\n", partition.first_lba))
            .file(&format!("{folder}/{name}{number}/size"), format!("{}\n", partition.sectors()))
            .file(&format!("/dev/{name}{number}"), contents_of(&partition.name));
    }
    machine
        .file(&format!("{folder}/size"), format!("{}\n", DISK_BYTES / 512))
        .file(&format!("{folder}/queue/logical_block_size"), "512\n")
        .file(&format!("/sys/class/block/{name}/size"), "1\n")
        .file(&format!("/dev/{name}"), bytes)
}

/// META is what init writes to; of the others it looks at the disk.
fn contents_of(partition: &str) -> Vec<u8> {
    if partition == "META" { vec![0; 1 << 20] } else { Vec::new() }
}

/// The loader says that it ran from partition `EFI` of the disk with this seed.
pub(super) fn with_loader(machine: Recording, seed: u8) -> Recording {
    let text = efi_guid(seed).to_string().to_uppercase();
    let mut bytes = vec![6, 0, 0, 0];
    bytes.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
    let folder = "/sys/firmware/efi/efivars";
    machine.file(&format!("{folder}/LoaderDevicePartUUID-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"), bytes)
}

/// An ISO 9660 medium with this label.
pub(super) fn with_medium(machine: Recording, label: &str) -> Recording {
    let mut bytes = vec![b' '; 40_000];
    bytes[32_768..32_774].copy_from_slice(b"\x01CD001");
    bytes[32_808..32_808 + label.len()].copy_from_slice(label.as_bytes());
    with_layers(machine, "/run/billet/medium/billet/layers")
        .file("/sys/class/block/sr0/size", "1\n")
        .file("/dev/sr0", bytes)
}

/// A machined that comes up and powers off.
pub(super) fn short_life(mut machine: Recording) -> Recording {
    machine.events.extend([
        message(&ToInit::Hello),
        message(&ToInit::Ready),
        Event::Time(5_000_000_000),
        message(&ToInit::Heartbeat),
        message(&ToInit::Finish { action: Action::PowerOff, reason: "test" }),
    ]);
    machine
}
