//! Machines to boot.

use handoff::{Action, ToInit};
use netroot::peer::{Answer, MAC, Manner, Plan, Site};
use ondisk::Digest;
use ondisk::gpt::{Geometry, Guid, Request, Size, lay_out, types};
use ondisk::luks2::{Argon2Cost, Cost, Format, Id, NewSlot};
use ondisk::manifest::{FORMAT, Layer, PATH, RootManifest};
use ondisk::meta::{self, tags};
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
pub(super) fn with_layers(mut machine: Recording, directory: &str) -> Recording {
    for layer in root().0.layers {
        machine.sizes.insert(format!("{directory}/{}", layer.file_name()), layer.total_bytes());
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
    let directory = format!("/sys/block/{name}");
    for partition in &table.partitions {
        let number = partition.number;
        machine = machine
            .file(&format!("{directory}/{name}{number}/start"), format!("{}\n", partition.first_lba))
            .file(&format!("{directory}/{name}{number}/size"), format!("{}\n", partition.sectors()))
            .file(&format!("/dev/{name}{number}"), contents_of(&partition.name));
    }
    machine
        .file(&format!("{directory}/size"), format!("{}\n", DISK_BYTES / 512))
        .file(&format!("{directory}/queue/logical_block_size"), "512\n")
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
    let directory = "/sys/firmware/efi/efivars";
    machine.file(&format!("{directory}/LoaderDevicePartUUID-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"), bytes)
}

/// An ISO 9660 medium with this label.
pub(super) fn with_medium(machine: Recording, label: &str) -> Recording {
    with_layers(with_volume(machine, "sr0", label), "/run/billet/medium/billet/layers")
}

/// A device with an ISO 9660 volume of this label.
pub(super) fn with_volume(machine: Recording, name: &str, label: &str) -> Recording {
    let mut bytes = vec![b' '; 40_000];
    bytes[32_768..32_774].copy_from_slice(b"\x01CD001");
    bytes[32_808..32_808 + label.len()].copy_from_slice(label.as_bytes());
    machine.file(&format!("/sys/class/block/{name}/size"), "1\n").file(&format!("/dev/{name}"), bytes)
}

/// A card with a carrier, and enough memory.
pub(super) fn with_card(machine: Recording, name: &str, mac: [u8; 6]) -> Recording {
    let directory = format!("/sys/class/net/{name}");
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    machine
        .file("/proc/meminfo", "MemTotal:  1000000 kB\nMemAvailable:   900000 kB\n")
        .file("/proc/sys/kernel/random/uuid", "01020304-0506-0708-090a-0b0c0d0e0f11\n")
        .file(&format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "0\n")
        .file("/sys/class/net/lo/type", "772\n")
        .file(&format!("{directory}/type"), "1\n")
        .file(&format!("{directory}/device/uevent"), "")
        .file(&format!("{directory}/flags"), "0x1002\n")
        .file(&format!("{directory}/carrier"), "1\n")
        .file(&format!("{directory}/ifindex"), "2\n")
        .file(&format!("{directory}/address"), format!("{mac}\n"))
}

/// A server that has the layers below `/layers`.
pub(super) fn site(port: u16, manner: Manner) -> Site {
    let (manifest, slot) = root();
    let mut site = Site::new(port, manner);
    for layer in &manifest.layers {
        let (start, end) = (usize::try_from(layer.offset).unwrap(), usize::try_from(layer.end()).unwrap());
        site = site.file(&format!("/layers/{}", layer.file_name()), Answer::File(slot[start..end].to_vec()));
    }
    site
}

/// A card at the end of whose cable there are a DHCP server and these.
pub(super) fn with_network(machine: Recording, sites: impl IntoIterator<Item = Site>) -> Recording {
    let mut machine = with_card(machine, "eth0", MAC);
    machine.network = Plan::with(sites);
    machine
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

/// The machine's UUID in its firmware's table, the first three groups little-endian.
const UUID: [u8; 16] =
    [0x44, 0x45, 0x4c, 0x4c, 0x39, 0x00, 0x10, 0x35, 0x80, 0x59, 0xb7, 0xc0, 0x4f, 0x33, 0x32, 0x31];

/// What follows from it.
pub(super) const NODE_KEY: &str = "4c4c4544-0039-3510-8059-b7c04f333231STATE";

/// The key that [`volume`]'s data is encrypted with.
pub(super) const VOLUME_KEY: [u8; 64] = [0x5a; 64];

/// A record with a key of the machine's and one that needs the network.
pub(super) const RECORD: &str = r#"{"EncryptionProvider":"luks2","EncryptionKeys":[{"KeyKMS":{"KMSEndpoint":"https://kms"},"KeySlot":0},{"KeyNodeID":{},"KeySlot":1}]}"#;

/// Partitions of a disk of a node.
pub(super) const PARTITIONS: [&str; 5] = ["EFI", "ROOT-A", "ROOT-B", "META", "STATE"];

/// A LUKS2 volume: slot 1 is for the machine's UUID, slot 2 for `passphrase` and dearer.
pub(super) fn volume() -> Vec<u8> {
    let dear = Argon2Cost { memory_kib: 256, passes: 1, lanes: 2 };
    let slots = [
        NewSlot { slot: Some(Id(1)), passphrase: NODE_KEY.as_bytes(), cost: Cost::Pbkdf2(1000), token: None },
        NewSlot { slot: Some(Id(2)), passphrase: b"passphrase", cost: Cost::Argon2id(dear), token: None },
    ];
    let format = Format { data_offset: 1 << 20, ..Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", 512) };
    let change = format.make(&VOLUME_KEY, &slots, &mut |bytes: &mut [u8]| bytes.fill(7)).unwrap();
    let mut device = vec![0; 4 << 20];
    for extent in change.steps.iter().flatten() {
        let at = usize::try_from(extent.offset).unwrap();
        device[at..at + extent.bytes.len()].copy_from_slice(&extent.bytes);
    }
    device
}

/// A node whose root is on `/dev/vda` and whose META says that STATE, `/dev/vda5`, is encrypted.
pub(super) fn encrypted(record: &str) -> Recording {
    let kernel = with_partitions(machine("billet.root=disk"), "vda", 1, &root().1, &PARTITIONS);
    let modules = "/lib/modules/6.12.0-test";
    let dep = String::from_utf8(kernel.files[&format!("{modules}/modules.dep")].clone()).unwrap();
    let dep = dep
        + "kernel/aesni-intel.ko:\nkernel/ecb.ko:\nkernel/xts.ko:\nkernel/dm-crypt.ko: kernel/dm-mod.ko\n";
    let table = [&[1, 24, 0, 0, 0, 0, 0, 0][..], &UUID, &[0, 0]].concat();
    let kernel = kernel
        .file(&format!("{modules}/modules.dep"), dep)
        .file("/dev/vda5", volume())
        .file("/sys/class/block/vda5/size", "8192\n")
        .file("/sys/firmware/dmi/tables/DMI", table)
        .file("/sys/firmware/dmi/tables/smbios_entry_point", b"_SM3_\0\x18\x03\x00".to_vec())
        .file("/proc/meminfo", "MemTotal:  999999 kB\nMemAvailable:     512 kB\n");
    with_loader(with_meta(kernel, tags::STATE_ENCRYPTION, record.as_bytes()), 1)
}

/// Sets a value in META of `/dev/vda`.
pub(super) fn with_meta(mut machine: Recording, tag: u32, value: &[u8]) -> Recording {
    let partition = machine.files.get_mut("/dev/vda4").unwrap();
    let found = meta::read(&mut partition.as_slice());
    let mut new = found.meta.clone();
    new.set(tag, value).unwrap();
    for extent in found.change_to(&new).iter().flatten() {
        let at = usize::try_from(extent.offset).unwrap();
        partition[at..at + extent.bytes.len()].copy_from_slice(&extent.bytes);
    }
    machine
}
