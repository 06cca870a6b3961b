//! Block devices as resources: disks, the system's disk, partitions, and what lies on them.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`watch`] | /sys/class/block and the first bytes of each device, whenever one comes or goes | the types of `store/block.rs`, links below /dev/disk | with machined |
//!
//! Order: not before the boot is through with the API: looking at a slow disk takes longer than the rest of the start.
//! Does not: write to a device.
//! Fails by: a device that cannot be read is listed with the reason.

mod device;
mod links;
mod opened;
mod product_data;
mod volume;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::selector::Properties;
use links::Claims;
use runtime::store::{
    BLOCK_DEVICE, BLOCK_SYMLINK, Block, BlockDevice, DISCOVERED_VOLUME, DISK, Definition, Disk, SYSTEM_DISK,
    Spec, SystemDisk,
};

use runtime::Runtime;
use serde_json::json;

pub(crate) use device::{CLASS, pretty_size};
pub(crate) use opened::{Opened, disks_and_partitions, probe};

use device::{Device, devices, text};

/// How long the first look waits for the drivers of all devices.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);
/// Devices come in bursts: this long after the first one they are read once.
const BURST: Duration = Duration::from_millis(200);

/// Keeps the resources like the devices.
///
/// `devices` counts those that came or went; `settled` is true once the boot is through; `warnings` are what is to be said
/// about the disks, each once.
pub(crate) async fn watch(
    runtime: Arc<Runtime>,
    mut devices: tokio::sync::watch::Receiver<u64>,
    mut settled: tokio::sync::watch::Receiver<bool>,
    warnings: fn(&Runtime) -> Vec<String>,
) {
    // Past the deadline the devices that are there are listed; others follow as they come.
    let _ = tokio::time::timeout(SETTLE_DEADLINE, settled.wait_for(|settled| *settled)).await;
    let mut told = Vec::new();
    let mut made = Vec::new();
    loop {
        devices.mark_unchanged();
        let reader = runtime.clone();
        let earlier = std::mem::take(&mut made);
        let look = move || {
            let claims = publish(&reader);
            let (made, fault) = match claims.write(&reader, &earlier) {
                Ok(made) => (made, None),
                Err(error) => (earlier, Some(format!("links below /dev/disk: {error}"))),
            };
            (made, warnings(&reader).into_iter().chain(claims.doubled()).chain(fault).collect::<Vec<_>>())
        };
        match tokio::task::spawn_blocking(look).await {
            Ok((links, faults)) => {
                made = links;
                let fresh = faults.iter().filter(|fault| !told.contains(*fault));
                fresh.for_each(|fault| runtime.journal.warn(fault));
                told = faults;
            }
            Err(error) => runtime.journal.warn(&format!("list block devices: {error}")),
        }
        if devices.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(BURST).await;
    }
}

/// Shows all devices. The answer is what their links are.
fn publish(runtime: &Runtime) -> Claims {
    let found = devices(runtime);
    let mut claims = Claims::of_hardware(runtime, &found);
    let with_room = found.iter().filter(|device| device.bytes > 0);
    let volumes: Vec<_> = with_room.map(|device| (device, volume::discover(runtime, device))).collect();
    for (device, volume) in &volumes {
        claims.add_contents(device, volume);
    }
    let disks = found.iter().filter(|device| device.is_disk()).map(|device| {
        (device.name.clone(), Spec::Block(Box::new(Block::Disk(device.disk(runtime, &claims)))))
    });
    put(runtime, &DISK, disks.collect());
    let links = found.iter().map(|device| (device.name.clone(), claims.of(&device.name)));
    let links = links.filter(|(_, paths)| !paths.is_empty());
    put(
        runtime,
        &BLOCK_SYMLINK,
        links.map(|(name, paths)| (name, Spec::Fields(json!({ "paths": paths })))).collect(),
    );
    let system = self::system_disk(runtime).map(|name| {
        let disk = SystemDisk { dev_path: format!("/dev/{name}"), disk_id: name };
        ("system-disk".to_owned(), Spec::Block(Box::new(Block::SystemDisk(disk))))
    });
    put(runtime, &SYSTEM_DISK, system.into_iter().collect());
    let all = found
        .iter()
        .map(|device| (device.name.clone(), Spec::Block(Box::new(Block::Device(device.listed(runtime))))));
    put(runtime, &BLOCK_DEVICE, all.collect());
    let volumes = volumes
        .into_iter()
        .map(|(device, volume)| (device.name.clone(), Spec::Block(Box::new(Block::Volume(volume)))));
    put(runtime, &DISCOVERED_VOLUME, volumes.collect());
    claims
}

fn put(runtime: &Runtime, kind: &'static Definition, wanted: Vec<(String, Spec)>) {
    if let Err(error) = runtime.store.replace(kind.writer, kind, wanted) {
        runtime.journal.warn(&error.to_string());
    }
}

impl Device {
    fn disk(&self, runtime: &Runtime, claims: &Claims) -> Disk {
        let bus_path = bus_path(runtime, &self.directory);
        Disk {
            dev_path: self.node_path(),
            size: self.bytes,
            pretty_size: pretty_size(self.bytes),
            io_size: self.number("queue/minimum_io_size"),
            sector_size: self.number("queue/logical_block_size"),
            readonly: text(&self.directory.join("ro")) == "1",
            cdrom: self.name.starts_with("sr"),
            model: self.first(&["device/model"]),
            serial: match self.first(&["serial", "device/serial"]) {
                serial if serial.is_empty() => product_data::serial(self),
                serial => serial,
            },
            modalias: self.first(&["device/modalias"]),
            wwid: self.first(&["wwid", "device/wwid"]),
            uuid: self.first(&["uuid"]),
            transport: transport(&self.name, &bus_path).to_owned(),
            sub_system: target_name(&self.directory.join("device/subsystem")),
            bus_path,
            rotational: text(&self.directory.join("queue/rotational")) == "1",
            secondary_disks: self.slaves(),
            symlinks: claims.of(&self.name),
        }
    }

    fn listed(&self, runtime: &Runtime) -> BlockDevice {
        let number = |name: &str| self.property(name).parse().unwrap_or(0);
        let shown = self.directory.strip_prefix(&runtime.root).unwrap_or(&self.directory);
        BlockDevice {
            kind: self.kind(),
            major: number("MAJOR"),
            minor: number("MINOR"),
            partition_name: self.property("PARTNAME"),
            partition_number: number("PARTN"),
            device_path: format!("/{}", shown.display()),
            parent: self.parent.clone().unwrap_or_default(),
            secondaries: self.slaves(),
        }
    }
}

/// The place on the bus: the device's path below /sys/devices, without the block part.
pub(crate) fn bus_path(runtime: &Runtime, directory: &Path) -> String {
    let real = fs::canonicalize(directory).unwrap_or_default();
    let Ok(below) = real.strip_prefix(runtime.path("/sys/devices")) else { return String::new() };
    let text = format!("/{}", below.display());
    text.split_once("/block/").map_or_else(|| text.clone(), |(before, _)| before.to_owned())
}

pub(crate) fn target_name(link: &Path) -> String {
    let target = fs::canonicalize(link).ok();
    target
        .and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()))
        .unwrap_or_default()
}

/// How a disk is attached, from its name and its place on the bus.
fn transport(name: &str, bus_path: &str) -> &'static str {
    let on = |word: &str| bus_path.split('/').any(|part| part.starts_with(word));
    match () {
        () if name.starts_with("nvme") => "nvme",
        () if name.starts_with("mmcblk") => "mmc",
        () if on("virtio") => "virtio",
        () if on("usb") => "usb",
        () if on("ata") => "sata",
        () if on("host") => "scsi",
        () => "",
    }
}

/// The nodes of all disks with hardware behind them.
pub(crate) fn disks(runtime: &Runtime) -> Vec<PathBuf> {
    let disks = devices(runtime).into_iter().filter(|device| {
        device.is_disk() && !device.name.starts_with("sr") && device.directory.join("device").exists()
    });
    disks.map(|device| PathBuf::from(device.node_path())).collect()
}

/// Major and minor number of the disk that has this node now.
pub(crate) fn device_number(runtime: &Runtime, path: &str) -> Option<(u32, u32)> {
    let name = path.strip_prefix("/dev/")?.replace('/', "!");
    let text = text(&runtime.path(CLASS).join(name).join("dev"));
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A disk with what a choice among disks needs.
pub(crate) struct Listed {
    pub(crate) disk: Disk,
    /// What it calls itself; few kinds do.
    pub(crate) name: String,
    /// Its node and those of its partitions.
    pub(crate) nodes: Vec<PathBuf>,
}

/// Every disk, by name; loop devices are none.
pub(crate) fn listed(runtime: &Runtime) -> Vec<Listed> {
    let all = devices(runtime);
    // What lies on a disk says nothing here: who chooses a disk by it takes the one that a stranger filled.
    let claims = Claims::of_hardware(runtime, &all);
    let disks = all.iter().filter(|device| device.is_disk() && !device.name.starts_with("loop"));
    let of = |device: &Device| {
        let parts = all.iter().filter(|part| part.parent.as_deref() == Some(device.name.as_str()));
        let nodes = std::iter::once(device).chain(parts).map(|device| PathBuf::from(device.node_path()));
        Listed {
            disk: device.disk(runtime, &claims),
            name: device.first(&["device/name"]),
            nodes: nodes.collect(),
        }
    };
    disks.map(of).collect()
}

/// The disk that the root's slot or STATE lies on.
pub(crate) fn system_disk(runtime: &Runtime) -> Option<String> {
    let source = runtime.boot.root_source.split_once(" (ROOT-").map(|(device, _)| device.to_owned());
    let partition = source.or_else(|| {
        let mounts = fs::read_to_string(runtime.path("/proc/self/mounts")).ok()?;
        let state = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/system/state"))?;
        state.split(' ').next().map(str::to_owned)
    })?;
    let name = Path::new(&partition).file_name()?.to_str()?;
    disk_below(runtime, name, 0)
}

/// The disk under a partition or a mapping of one.
fn disk_below(runtime: &Runtime, name: &str, depth: usize) -> Option<String> {
    /// No stack of mappings is higher; a loop in a foreign sysfs ends here.
    const MOST: usize = 8;
    let device = Device::read(&runtime.path(CLASS).join(name), name)?;
    match (&device.parent, device.slaves().first()) {
        (Some(parent), _) => Some(parent.clone()),
        (None, Some(slave)) if depth < MOST => disk_below(runtime, slave, depth + 1),
        // A file system in memory, or a file on another one, is no disk.
        _ => (device.is_disk() && device.directory.join("device").exists()).then_some(device.name),
    }
}

/// What expressions of configs see of a disk.
pub(crate) fn properties(disk: &Disk, is_system: Option<bool>) -> Properties {
    Properties {
        system_disk: is_system,
        dev_path: disk.dev_path.clone(),
        size: disk.size,
        pretty_size: disk.pretty_size.clone(),
        io_size: disk.io_size,
        sector_size: disk.sector_size,
        readonly: disk.readonly,
        cdrom: disk.cdrom,
        rotational: disk.rotational,
        model: disk.model.clone(),
        serial: disk.serial.clone(),
        modalias: disk.modalias.clone(),
        wwid: disk.wwid.clone(),
        uuid: disk.uuid.clone(),
        bus_path: disk.bus_path.clone(),
        sub_system: disk.sub_system.clone(),
        transport: disk.transport.clone(),
        secondary_disks: disk.secondary_disks.clone(),
        symlinks: disk.symlinks.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
