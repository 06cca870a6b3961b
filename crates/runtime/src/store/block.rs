//! Resource types of block devices.
//!
//! Source: crates/api/tests/data/resources.tsv.

use serde::Serialize;

use super::Definition;
use super::definition::{PLAIN, column};

/// A disk.
pub static DISK: Definition = Definition {
    kind: "Disks.block.talos.dev",
    display: "Disk",
    columns: &[
        column("Size", "{.pretty_size}"),
        column("Read Only", "{.readonly}"),
        column("Transport", "{.transport}"),
        column("Rotational", "{.rotational}"),
        column("WWID", "{.wwid}"),
        column("Model", "{.model}"),
        column("Serial", "{.serial}"),
    ],
    writer: "block.DisksController",
    ..PLAIN
};

/// The disk that the system runs from.
pub static SYSTEM_DISK: Definition = Definition {
    kind: "SystemDisks.block.talos.dev",
    display: "SystemDisk",
    columns: &[column("Disk", "{.diskID}")],
    writer: "block.SystemDiskController",
    ..PLAIN
};

/// A disk, partition or mapping as the kernel lists it.
pub static BLOCK_DEVICE: Definition = Definition {
    kind: "BlockDevices.block.talos.dev",
    display: "BlockDevice",
    columns: &[
        column("Type", "{.type}"),
        column("Partition Number", "{.partitionNumber}"),
        column("Parent", "{.parent}"),
    ],
    writer: "block.DevicesController",
    ..PLAIN
};

/// Links below /dev/disk that lead to a device.
pub static BLOCK_SYMLINK: Definition =
    Definition::published("BlockSymlinks.block.talos.dev", "block.SymlinksController");

/// What lies on a disk or partition.
pub static DISCOVERED_VOLUME: Definition = Definition {
    kind: "DiscoveredVolumes.block.talos.dev",
    display: "DiscoveredVolume",
    columns: &[
        column("Type", "{.type}"),
        column("Size", "{.pretty_size}"),
        column("Discovered", "{.name}"),
        column("Label", "{.label}"),
        column("PartitionLabel", "{.partition_label}"),
    ],
    writer: "block.DiscoveryController",
    ..PLAIN
};

/// A volume of the system: whether it can be used, and how it was opened.
pub static VOLUME_STATUS: Definition = Definition {
    kind: "VolumeStatuses.block.talos.dev",
    display: "VolumeStatus",
    columns: &[
        column("Type", "{.type}"),
        column("Phase", "{.phase}"),
        column("Location", "{.location}"),
        column("Size", "{.prettySize}"),
    ],
    writer: "block.VolumeManagerController",
    ..PLAIN
};

/// What a resource of these types says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Block {
    /// `Disks`.
    Disk(Disk),
    /// `SystemDisks`.
    SystemDisk(SystemDisk),
    /// `BlockDevices`.
    Device(BlockDevice),
    /// `DiscoveredVolumes`.
    Volume(DiscoveredVolume),
    /// `VolumeStatuses`.
    VolumeStatus(VolumeStatus),
}

/// A volume of the system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// `ready` or `failed`.
    pub phase: &'static str,
    /// `partition`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Node of the partition.
    pub location: String,
    /// Node of what is mounted: of an encrypted volume its mapping.
    pub mount_location: String,
    /// The partition's identifier.
    #[serde(rename = "partitionUUID")]
    pub partition_uuid: String,
    /// The partition's number.
    pub partition_index: u32,
    /// Node of the disk.
    pub parent_location: String,
    /// Bytes.
    pub size: u64,
    /// The same for people.
    pub pretty_size: String,
    /// What is on it.
    pub filesystem: &'static str,
    /// `luks2` or `none`.
    pub encryption_provider: &'static str,
    /// The slot whose key opened it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption_slot: Option<u8>,
    /// Where that key came from: `nodeID`, `static`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub encryption_key: String,
    /// Kinds of the keys of the config.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub configured_encryption_keys: Vec<String>,
    /// Slots that are not as the config wants them, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub encryption_failed_syncs: Vec<String>,
    /// Why it cannot be used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error_message: String,
}

/// A disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// Its node.
    pub dev_path: String,
    /// Bytes.
    pub size: u64,
    /// The same for people.
    pub pretty_size: String,
    /// Best size of a transfer, bytes.
    pub io_size: u64,
    /// Bytes of a sector.
    pub sector_size: u64,
    /// It cannot be written.
    pub readonly: bool,
    /// It is a CD.
    pub cdrom: bool,
    /// What it is called.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// What drivers are found by.
    pub modalias: String,
    /// World-wide identifier.
    pub wwid: String,
    /// Identifier.
    pub uuid: String,
    /// Its place on the bus.
    pub bus_path: String,
    /// The bus.
    pub sub_system: String,
    /// How it is attached.
    pub transport: String,
    /// It turns.
    pub rotational: bool,
    /// Disks it is made of.
    pub secondary_disks: Vec<String>,
    /// Paths of links that lead to it.
    pub symlinks: Vec<String>,
}

/// The disk that the system runs from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SystemDisk {
    /// Its name.
    #[serde(rename = "diskID")]
    pub disk_id: String,
    /// Its node.
    #[serde(rename = "devPath")]
    pub dev_path: String,
}

/// A disk, partition or mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockDevice {
    /// `disk` or `partition`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Device number.
    pub major: u32,
    /// Device number.
    pub minor: u32,
    /// Its GPT name.
    pub partition_name: String,
    /// Its number on the disk; 0 for what is no partition.
    pub partition_number: u32,
    /// Its directory below /sys.
    pub device_path: String,
    /// The disk that it is a part of.
    pub parent: String,
    /// What it is made of.
    pub secondaries: Vec<String>,
}

/// What lies on a disk or partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiscoveredVolume {
    /// Its node.
    pub dev_path: String,
    /// `disk` or `partition`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Bytes.
    pub size: u64,
    /// The same for people.
    pub pretty_size: String,
    /// Bytes of a sector.
    pub sector_size: u64,
    /// Best size of a transfer, bytes.
    pub io_size: u64,
    /// `gpt`, `xfs`, `luks`, …; empty when nothing was recognised.
    pub name: String,
    /// Identifier of what was recognised.
    pub uuid: String,
    /// Label of what was recognised.
    pub label: String,
    /// The partition's own identifier.
    pub partition_uuid: String,
    /// The partition's type.
    pub partition_type: String,
    /// The partition's name.
    pub partition_label: String,
    /// The partition's number; 0 for a disk.
    pub partition_index: u32,
    /// The disk that it is a part of.
    pub parent: String,
    /// Node of that disk.
    pub parent_dev_path: String,
    /// Why it could not be read.
    pub error: String,
}
