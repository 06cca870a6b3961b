//! `storage.StorageService`: the disks of the machine, from sysfs.
//!
//! Owns: what counts as a disk: a block device with hardware behind it.
//! Does not: decide what may be wiped (`crate::disk_wipe` does).
//! Source: crates/api/proto/storage/storage.proto; Documentation/ABI/stable/sysfs-block.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use api::proto::storage as proto;
use api::proto::storage::block_device_wipe_descriptor::Method;
use api::proto::storage::disk::DiskType;
use api::proto::storage::storage_service_server::StorageService;
use tonic::{Request, Response, Status};

use crate::block::{bus_path, system_disk, target_name};
use crate::disk_wipe;
use crate::node::Node;

const BLOCK: &str = "/sys/block";
/// Unit of the `size` file, whatever the disk's own sectors.
const SECTOR_BYTES: u64 = 512;

/// The service.
pub(crate) struct Storage {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl StorageService for Storage {
    async fn disks(&self, _request: Request<()>) -> Result<Response<proto::DisksResponse>, Status> {
        let node = self.node.clone();
        super::answers::blocking(move || disks(&node)).await.map(Response::new)
    }

    async fn block_device_wipe(
        &self,
        request: Request<proto::BlockDeviceWipeRequest>,
    ) -> Result<Response<proto::BlockDeviceWipeResponse>, Status> {
        let devices = request.into_inner().devices;
        if devices.is_empty() {
            return Err(Status::invalid_argument("wipe: no device is named"));
        }
        let node = self.node.clone();
        super::answers::blocking(move || wipe(&node, &devices)).await.map(Response::new)
    }
}

/// All are looked at before the first is touched.
fn wipe(
    node: &Node,
    devices: &[proto::BlockDeviceWipeDescriptor],
) -> Result<proto::BlockDeviceWipeResponse, Status> {
    let requests: Vec<disk_wipe::Request> = devices.iter().map(wanted).collect();
    let checked: Result<Vec<_>, _> =
        requests.iter().map(|request| disk_wipe::check(&node.runtime, &node.volumes, request)).collect();
    for (target, request) in checked.map_err(refused)?.iter().zip(&requests) {
        disk_wipe::wipe(&node.runtime, target, request).map_err(Status::failed_precondition)?;
    }
    Ok(proto::BlockDeviceWipeResponse { messages: vec![proto::BlockDeviceWipe { metadata: None }] })
}

fn refused(why: disk_wipe::Refused) -> Status {
    match why {
        disk_wipe::Refused::Unknown(_) => Status::not_found(why.to_string()),
        disk_wipe::Refused::NotNow { .. } => Status::failed_precondition(why.to_string()),
    }
}

fn wanted(descriptor: &proto::BlockDeviceWipeDescriptor) -> disk_wipe::Request {
    disk_wipe::Request {
        device: descriptor.device.clone(),
        zeroes: descriptor.method() == Method::Zeroes,
        drop_partition: descriptor.drop_partition,
        skip_volume_check: descriptor.skip_volume_check,
        skip_secondary_check: descriptor.skip_secondary_check,
    }
}

fn disks(node: &Node) -> Result<proto::DisksResponse, Status> {
    let entries =
        fs::read_dir(node.runtime.path(BLOCK)).map_err(|e| Status::internal(format!("list {BLOCK}: {e}")))?;
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let system = system_disk(&node.runtime);
    let disks = names.iter().filter_map(|name| disk(node, name, system.as_deref())).collect();
    Ok(proto::DisksResponse { messages: vec![proto::Disks { metadata: None, disks }] })
}

fn disk(node: &Node, name: &str, system: Option<&str>) -> Option<proto::Disk> {
    let directory = node.runtime.path(BLOCK).join(name);
    let device = directory.join("device");
    if !device.exists() {
        return None;
    }
    let text = |path: &Path| fs::read_to_string(path).map_or_else(|_| String::new(), |t| t.trim().to_owned());
    let first = |paths: &[&str]| {
        paths.iter().map(|path| text(&directory.join(path))).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let sectors: u64 = text(&directory.join("size")).parse().ok()?;
    Some(proto::Disk {
        size: sectors.saturating_mul(SECTOR_BYTES),
        model: first(&["device/model"]),
        device_name: format!("/dev/{}", name.replace('!', "/")),
        name: first(&["device/name"]),
        serial: first(&["serial", "device/serial"]),
        modalias: first(&["device/modalias"]),
        uuid: first(&["uuid"]),
        wwid: first(&["wwid", "device/wwid"]),
        r#type: kind(name, &text(&directory.join("queue/rotational"))).into(),
        bus_path: bus_path(&node.runtime, &directory),
        system_disk: system == Some(name),
        subsystem: target_name(&device.join("subsystem")),
        readonly: text(&directory.join("ro")) == "1",
    })
}

fn kind(name: &str, rotational: &str) -> DiskType {
    if name.starts_with("nvme") {
        DiskType::Nvme
    } else if name.starts_with("mmcblk") {
        DiskType::Sd
    } else if name.starts_with("sr") {
        DiskType::Cd
    } else if rotational == "1" {
        DiskType::Hdd
    } else {
        DiskType::Ssd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_hardware_and_everything_sysfs_says() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let node = crate::server::tests_node(root.clone());
        let real = root.join("sys/devices/pci0000:00/0000:00:05.0/virtio2/block/vda");
        fs::create_dir_all(real.join("queue")).unwrap();
        fs::create_dir_all(real.join("device")).unwrap();
        fs::create_dir_all(root.join("sys/bus/virtio")).unwrap();
        fs::create_dir_all(root.join("sys/block/loop0")).unwrap();
        std::os::unix::fs::symlink(&real, root.join("sys/block/vda")).unwrap();
        std::os::unix::fs::symlink(root.join("sys/bus/virtio"), real.join("device/subsystem")).unwrap();
        for (file, text) in
            [("size", "2048\n"), ("ro", "0\n"), ("serial", "abc \n"), ("queue/rotational", "1\n")]
        {
            fs::write(real.join(file), text).unwrap();
        }
        let found = disks(&node).unwrap().messages.remove(0).disks;
        assert_eq!(found.len(), 1, "a loop device is no disk");
        let disk = &found[0];
        assert_eq!(
            (disk.device_name.as_str(), disk.size, disk.serial.as_str()),
            ("/dev/vda", 1 << 20, "abc")
        );
        assert_eq!(disk.bus_path, "/pci0000:00/0000:00:05.0/virtio2");
        assert_eq!((disk.r#type(), disk.subsystem.as_str(), disk.readonly), (DiskType::Hdd, "virtio", false));
        assert_eq!(kind("nvme0n1", "0"), DiskType::Nvme);
        assert_eq!((kind("sr0", "1"), kind("sda", "0")), (DiskType::Cd, DiskType::Ssd));
    }
}
