//! What lies on a device: a partition table, a file system, an encrypted volume.
//!
//! Owns: reading the first bytes, and the partition's own entry in the table of its disk.
//! Fails by: the reason in the resource.

use std::fs::File;
use std::io::Read;

use ondisk::gpt::{self, Geometry};
use runtime::store::DiscoveredVolume;

use super::device::{Device, SECTOR_BYTES, pretty_size, text};
use super::opened::Opened;
use runtime::Runtime;

pub(super) fn discover(runtime: &Runtime, device: &Device) -> DiscoveredVolume {
    let parent = device.parent.clone().unwrap_or_default();
    let mut volume = DiscoveredVolume {
        dev_path: device.node_path(),
        kind: device.kind(),
        size: device.bytes,
        pretty_size: pretty_size(device.bytes),
        sector_size: device.number("queue/logical_block_size"),
        io_size: device.number("queue/minimum_io_size"),
        partition_label: device.property("PARTNAME"),
        partition_uuid: device.property("PARTUUID").to_ascii_lowercase(),
        partition_index: device.property("PARTN").parse().unwrap_or(0),
        parent_dev_path: if parent.is_empty() { String::new() } else { format!("/dev/{parent}") },
        parent,
        ..DiscoveredVolume::default()
    };
    if let Err(error) = look(runtime, device, &mut volume) {
        volume.error = error;
    }
    volume
}

fn look(runtime: &Runtime, device: &Device, volume: &mut DiscoveredVolume) -> Result<(), String> {
    let path = device.node_path();
    let open = |path: &str| File::open(runtime.path(path)).map_err(|e| format!("open {path}: {e}"));
    let file = open(&path)?;
    let mut start = Vec::new();
    let limit = u64::try_from(ondisk::probe::PROBE_BYTES).unwrap_or(u64::MAX);
    (&file).take(limit).read_to_end(&mut start).map_err(|e| format!("read {path}: {e}"))?;
    if let Some(found) = ondisk::probe::probe(&start) {
        // The clients' name for it.
        let name = found.kind.as_str();
        volume.name = if name == "crypto_LUKS" { "luks".to_owned() } else { name.to_owned() };
        volume.label = found.label;
        volume.uuid = found.uuid;
    }
    if device.parent.is_none() {
        // A hybrid image is a file system and a table; the table says more.
        if let Some(table) = table(file, volume.sector_size, device.bytes) {
            volume.name = "gpt".to_owned();
            volume.uuid = table.disk_guid.to_string().to_ascii_lowercase();
        }
        return Ok(());
    }
    let disk_bytes = text(&device.directory.join("../size")).parse::<u64>().unwrap_or(0) * SECTOR_BYTES;
    if let Some(table) = table(open(&volume.parent_dev_path)?, volume.sector_size, disk_bytes)
        && let Some(entry) = table.partitions.iter().find(|entry| entry.number == volume.partition_index)
    {
        volume.partition_type = entry.type_guid.to_string().to_ascii_lowercase();
        volume.partition_uuid = entry.guid.to_string().to_ascii_lowercase();
        volume.partition_label.clone_from(&entry.name);
    }
    Ok(())
}

fn table(file: File, sector_bytes: u64, bytes: u64) -> Option<gpt::Table> {
    let geometry = Geometry::new(u32::try_from(sector_bytes).ok()?, bytes).ok()?;
    gpt::read(&mut Opened(file), geometry).ok().map(|found| found.table)
}
