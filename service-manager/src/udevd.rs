//! udevd: modules for devices, and the news of block devices.
//!
//! Order: the uevent socket is open before the first look at /sys, so a device that appears in between is seen by
//! one of them. Drivers of networks and virtual disks come first, since the API waits for them; those of all other
//! disks when the machine config is not on what is there: looking for links on a disk controller takes as long as
//! the rest of the start. Everything else waits until the API is ready.
//! Does not: make device nodes (devtmpfs does) or rename links. [`udev_rules`] owns the rules of the config.
//! Source: Documentation/driver-api/driver-model; kmod(8).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ondisk::kmod::AliasTable;
use runtime::{Runtime, watched};
use sys::{Errno, uevent};
use tokio::sync::watch;

use crate::modules::Modules;
use crate::order::Orders;
use crate::power_button::Buttons;
use crate::readiness::Readiness;
use crate::udev_rules::{self, Applied};

/// How long the first look waits for the API.
const COLDPLUG_DEADLINE: Duration = Duration::from_secs(20);

/// What the service needs, and who hears of devices.
pub(crate) struct Parts {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) orders: Arc<Orders>,
    /// The config's rules for devices.
    pub(crate) udev: Arc<Applied>,
    /// Counts block devices that came or went.
    pub(crate) devices: watch::Sender<u64>,
    /// Counts devices of the PCI bus that came, went, or got a driver.
    pub(crate) buses: watch::Sender<u64>,
    /// How far the API is.
    pub(crate) readiness: watch::Receiver<Readiness>,
    /// Counts looks for the machine config that found none.
    pub(crate) misses: watch::Receiver<u64>,
    /// Disks that were there at the start have their drivers.
    pub(crate) disks_settled: watch::Sender<bool>,
    /// All devices that were there at the start have.
    pub(crate) settled: watch::Sender<bool>,
}

/// The service.
pub(crate) async fn run(parts: Parts) -> Result<(), String> {
    let parts = Arc::new(parts);
    if parts.runtime.parameters.keep_module_signatures {
        sys::module::keep_signatures();
    }
    let socket = uevent::open().map_err(|e| format!("open the uevent socket: {e}"))?;
    let socket = watched::readable(socket).map_err(|e| format!("watch the uevent socket: {e}"))?;
    let mut coldplug = tokio::spawn(coldplug_when_due(parts.clone()));
    let mut buffer = vec![0; uevent::MAX_BYTES];
    let mut fresh = BTreeSet::new();
    let (mut buttons, mut input) = (Buttons::default(), false);
    buttons.look(&parts.runtime, &parts.orders);
    loop {
        let mut ready = tokio::select! {
            ready = socket.readable() => ready.map_err(|e| format!("wait for uevents: {e}"))?,
            _ = &mut coldplug, if !coldplug.is_finished() => continue,
        };
        match uevent::receive(socket.get_ref(), &mut buffer) {
            Ok(length) => {
                let event = &buffer[..length];
                input |= uevent::field(event, "SUBSYSTEM") == Some("input");
                handle(&parts, event, &mut fresh);
            }
            Err(Errno::AGAIN) => {
                ready.clear_ready();
                // Events come in bursts: the module index is read once for each burst.
                load_for(&parts, std::mem::take(&mut fresh).iter().map(String::as_str));
                if std::mem::take(&mut input) {
                    buttons.look(&parts.runtime, &parts.orders);
                }
            }
            Err(Errno::NOBUFS) => {
                parts.runtime.journal.warn("udevd: events were lost; looking at all devices again");
                coldplug = tokio::spawn(coldplug_now(parts.clone()));
            }
            Err(errno) => return Err(format!("receive a uevent: {errno}")),
        }
    }
}

/// Takes note of a block device and of the alias of a new device.
fn handle(parts: &Parts, event: &[u8], fresh: &mut BTreeSet<String>) {
    if uevent::field(event, "SUBSYSTEM") == Some("block") {
        parts.devices.send_modify(|count| *count += 1);
    }
    if let (Some(action), Some(path)) = (uevent::field(event, "ACTION"), uevent::field(event, "DEVPATH")) {
        udev_rules::event(&parts.runtime, &parts.udev, action, path);
    }
    if uevent::field(event, "SUBSYSTEM") == Some("pci") {
        parts.buses.send_modify(|count| *count += 1);
    }
    if uevent::field(event, "ACTION") == Some("add")
        && let Some(alias) = uevent::field(event, "MODALIAS")
    {
        fresh.insert(alias.to_owned());
    }
}

async fn coldplug_when_due(parts: Arc<Parts>) {
    let aliases = driverless_aliases(Path::new("/sys/bus"));
    load_for(&parts, aliases.iter().map(String::as_str).filter(|alias| is_urgent(alias)));
    let mut readiness = parts.readiness.clone();
    let mut misses = parts.misses.clone();
    // Lets loadConfig look at once.
    parts.devices.send_modify(|count| *count += 1);
    let due = async {
        tokio::select! {
            _ = readiness.wait_for(|readiness| readiness.announced) => return,
            _ = misses.wait_for(|misses| *misses > 0) => {}
        }
        load_disks(&parts).await;
        let _ = readiness.wait_for(|readiness| readiness.announced).await;
    };
    // Whatever the API and the config wait for: the machine wants its drivers.
    let _ = tokio::time::timeout(COLDPLUG_DEADLINE, due).await;
    coldplug_now(parts).await;
}

/// Directories with drivers of disks: of their controllers, and of what shows up behind those.
const DISK_DRIVERS: [&str; 8] = [
    "kernel/drivers/ata/",
    "kernel/drivers/block/",
    "kernel/drivers/message/",
    "kernel/drivers/mmc/",
    "kernel/drivers/nvme/",
    "kernel/drivers/scsi/",
    "kernel/drivers/ufs/",
    "kernel/drivers/usb/",
];
/// How long NVMe controllers may take to name their disks; one without any is rare.
const NVME_DEADLINE: Duration = Duration::from_secs(3);

/// Loads what disks need and waits until they are there. A module's insertion ends when the probing that it began
/// has ended, so every round sees all of what the one before has found. NVMe and USB look for disks later; a stick
/// comes as a change, as it would when someone plugs it in.
async fn load_disks(parts: &Parts) {
    let mut devices = parts.devices.subscribe();
    let mut tried = BTreeSet::new();
    loop {
        let aliases = driverless_aliases(Path::new("/sys/bus"));
        let before = tried.len();
        tried.extend(load_matching(parts, aliases.iter().map(String::as_str), is_disk_driver));
        if tried.len() == before {
            break;
        }
    }
    let nvme =
        async { while nvme_is_looking(Path::new("/sys/class/nvme")) && devices.changed().await.is_ok() {} };
    if tokio::time::timeout(NVME_DEADLINE, nvme).await.is_err() {
        let seconds = NVME_DEADLINE.as_secs();
        parts
            .runtime
            .journal
            .warn(&format!("udevd: an NVMe controller named no disk within {seconds} s (deadline NVMe)"));
    }
    parts.disks_settled.send_replace(true);
}

fn is_disk_driver(path: &str) -> bool {
    DISK_DRIVERS.iter().any(|directory| path.starts_with(directory))
}

/// Whether a controller has no disk yet.
fn nvme_is_looking(class: &Path) -> bool {
    let controllers = fs::read_dir(class).into_iter().flatten().flatten();
    controllers.into_iter().any(|controller| {
        let inside = fs::read_dir(controller.path()).into_iter().flatten().flatten();
        // A disk is `nvme0n1`, or `nvme0c0n1` where several controllers reach it.
        let mut disks = inside.into_iter().filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.strip_prefix("nvme").is_some_and(|rest| rest.contains('n'))
        });
        disks.next().is_none()
    })
}

/// Network devices (PCI class 02) and virtio's network and block devices.
fn is_urgent(alias: &str) -> bool {
    let virtio = ["virtio:d00000001", "virtio:d00000002"].iter().any(|kind| alias.starts_with(kind));
    virtio || (alias.starts_with("pci:") && alias.contains("bc02sc"))
}

async fn coldplug_now(parts: Arc<Parts>) {
    let aliases = driverless_aliases(Path::new("/sys/bus"));
    load_for(&parts, aliases.iter().map(String::as_str));
    parts.disks_settled.send_replace(true);
    parts.settled.send_replace(true);
}

/// Aliases of all devices that no driver has taken.
fn driverless_aliases(bus: &Path) -> BTreeSet<String> {
    let buses = fs::read_dir(bus).into_iter().flatten().flatten();
    let devices =
        buses.flat_map(|bus| fs::read_dir(bus.path().join("devices")).into_iter().flatten().flatten());
    devices
        .filter(|device| !device.path().join("driver").exists())
        .filter_map(|device| fs::read_to_string(device.path().join("modalias")).ok())
        .map(|alias| alias.trim().to_owned())
        .filter(|alias| !alias.is_empty())
        .collect()
}

fn load_for<'a>(parts: &Parts, aliases: impl Iterator<Item = &'a str>) {
    load_matching(parts, aliases, |_| true);
}

/// Loads the modules for these devices whose path below the release's directory is wanted. Answers their names.
fn load_matching<'a>(
    parts: &Parts,
    aliases: impl Iterator<Item = &'a str>,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut aliases = aliases.peekable();
    if aliases.peek().is_none() {
        return Vec::new();
    }
    let modules = Modules::read();
    let (index, table) = (modules.index(), AliasTable::new(modules.aliases()));
    let mut wanted: Vec<&str> = aliases.flat_map(|alias| table.matches(alias).collect::<Vec<_>>()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut names = Vec::new();
    for module in wanted.into_iter().filter_map(|name| index.find(name)).filter(|found| is_wanted(found.path))
    {
        match modules.insert(&index.with_dependencies([module]), |_| c"") {
            Ok(0) => {}
            Ok(_) => parts.runtime.journal.say(&format!("udevd: loaded module {}", module.name())),
            Err(error) => parts.runtime.journal.warn(&format!("udevd: {error}")),
        }
        names.push(module.name().to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_without_a_driver_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        for (device, alias, driver) in [("a", "pci:v1\n", true), ("b", "pci:v2\n", false), ("c", "\n", false)]
        {
            let path = dir.path().join("pci/devices").join(device);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("modalias"), alias).unwrap();
            if driver {
                fs::create_dir(path.join("driver")).unwrap();
            }
        }
        assert_eq!(driverless_aliases(dir.path()), BTreeSet::from(["pci:v2".to_owned()]));
    }

    #[test]
    fn an_nvme_controller_looks_until_it_has_a_disk() {
        let dir = tempfile::tempdir().unwrap();
        let looking = || nvme_is_looking(dir.path());
        assert!(!looking(), "there is no controller");
        let controller = dir.path().join("nvme0");
        for other in ["power", "ng0n1", "hwmon1"] {
            fs::create_dir_all(controller.join(other)).unwrap();
        }
        assert!(looking());
        fs::create_dir(controller.join("nvme0n1")).unwrap();
        assert!(!looking());
        fs::create_dir(dir.path().join("nvme1")).unwrap();
        assert!(looking(), "the other one has none");
        fs::create_dir(dir.path().join("nvme1/nvme0c1n1")).unwrap();
        assert!(!looking());
    }

    #[test]
    fn drivers_of_disks_are_told_by_their_directory() {
        assert!(
            is_disk_driver("kernel/drivers/ata/ahci.ko")
                && is_disk_driver("kernel/drivers/nvme/host/nvme.ko")
        );
        assert!(!is_disk_driver("kernel/drivers/watchdog/softdog.ko"));
    }

    #[test]
    fn networks_and_virtual_disks_are_urgent() {
        assert!(is_urgent("virtio:d00000001v00001AF4"));
        assert!(is_urgent("pci:v00008086d000010D3sv00008086sd00000000bc02sc00i00"));
        assert!(!is_urgent("pci:v00001234d00001111sv00001AF4sd00001100bc03sc00i00"));
        assert!(is_urgent("virtio:d00000002v00001AF4") && !is_urgent("virtio:d00000004v00001AF4"));
        assert!(!is_urgent("pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01"));
        assert!(!is_urgent("acpi:PNP0C0C:"));
    }
}
