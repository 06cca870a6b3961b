//! Wiping a disk or a partition that nothing uses.
//!
//! Owns: what may be wiped, and how: the places where signatures lie, or every byte.
//! Does not: wipe what this machine runs from (a reset does), or what is mounted or part of something larger.
//! Order: everything that was named is checked before the first byte is written; then each in turn is opened for
//! nobody else, made zeros and proved; last its entry leaves the table, where that was asked for.
//! Fails by: a sentence with the device.
//! Source: crates/api/proto/storage/storage.proto (`BlockDeviceWipe`).

use std::fs;
use std::path::{Path, PathBuf};

use installer::device::{BlockDevice, Disk};
use installer::host::{read_table, write_table};
use installer::install::END_BYTES;
use installer::{reset, silent};
use runtime::Runtime;
use runtime::errors::chain;

use crate::volumes::{self, NodeHost, Volumes};
use crate::{block, boot_medium, system_disk};

const CLASS: &str = "/sys/class/block";

/// What a client asks for, of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// With or without `/dev/`.
    pub(crate) device: String,
    /// Every byte, and not only where signatures lie.
    pub(crate) zeroes: bool,
    /// The partition's entry goes too.
    pub(crate) drop_partition: bool,
    /// The config's volumes do not count.
    pub(crate) skip_volume_check: bool,
    /// Devices that are made of it do not count; the kernel still lends out none that is in use.
    pub(crate) skip_secondary_check: bool,
}

/// A device that may be wiped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    path: PathBuf,
    /// The disk that it is, or lies on.
    disk: PathBuf,
    /// Its number, if it is a partition.
    partition: Option<u32>,
}

/// Why a device is not wiped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// There is no such device.
    #[error("wipe {0}: this machine has no such block device")]
    Unknown(String),
    /// It must stay as it is.
    #[error("wipe {device}: {why}")]
    NotNow {
        /// Its name.
        device: String,
        /// Why, and what to do.
        why: String,
    },
}

/// Whether it may be done. Blocks.
pub(crate) fn check(runtime: &Runtime, volumes: &Volumes, request: &Request) -> Result<Target, Refused> {
    let name = request.device.strip_prefix("/dev/").unwrap_or(&request.device);
    let failed = |why: String| Refused::NotNow { device: name.to_owned(), why };
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let directory = runtime.path(CLASS).join(name);
    if !is_name || !directory.exists() {
        return Err(Refused::Unknown(name.to_owned()));
    }
    let text = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default().trim().to_owned();
    let partition: Option<u32> = text("partition").parse().ok();
    let disk = match partition {
        Some(_) => parent(&directory).ok_or_else(|| failed("its disk is not known".to_owned()))?,
        None => name.to_owned(),
    };
    let target = Target { path: Path::new("/dev").join(name), disk: Path::new("/dev").join(disk), partition };
    if request.drop_partition && partition.is_none() {
        return Err(failed("it is no partition, so none can be dropped".to_owned()));
    }
    if text("ro") == "1" {
        return Err(failed("it is read-only".to_owned()));
    }
    not_ours(runtime, volumes, &target, request).map_err(failed)?;
    let holders: Vec<String> = fs::read_dir(directory.join("holders"))
        .map(|entries| entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    if !holders.is_empty() && !request.skip_secondary_check {
        return Err(failed(format!("{} is made of it", holders.join(", "))));
    }
    Ok(target)
}

/// Refuses what this machine runs from, or keeps its own on.
fn not_ours(runtime: &Runtime, volumes: &Volumes, target: &Target, request: &Request) -> Result<(), String> {
    if let Some(system) = system_disk::find(runtime)?.filter(|system| system.path == target.disk) {
        let unused = system.slot.is_none() && request.skip_volume_check;
        if !unused {
            return Err("it belongs to the system disk: use `reset`".to_owned());
        }
    }
    let listed = block::listed(runtime);
    let listed = listed.iter().find(|listed| Path::new(&listed.disk.dev_path) == target.disk);
    if let Some(how) = listed.and_then(|listed| boot_medium::use_of(runtime, listed)) {
        return Err(format!("this machine {how} it"));
    }
    let config = runtime.config();
    let disks = config.iter().flat_map(|config| &config.machine.disks);
    let of_config = disks.filter(|disk| {
        fs::canonicalize(&disk.device).is_ok_and(|path| path == target.disk)
            || Path::new(&disk.device) == target.disk
    });
    let is_of_config = of_config.count() > 0;
    if request.skip_volume_check {
        return Ok(());
    }
    if let Some(volume) = volumes::of_config_on(volumes, &target.disk, target.partition) {
        return Err(format!("the configuration wants {volume}, which is there: take its document out first"));
    }
    match is_of_config {
        false => Ok(()),
        true => Err("machine.disks of the configuration names its disk: take it out there first".to_owned()),
    }
}

/// The disk of a partition: the directory above its own.
fn parent(directory: &Path) -> Option<String> {
    let real = fs::canonicalize(directory).ok()?;
    Some(real.parent()?.file_name()?.to_string_lossy().into_owned())
}

/// Does it. Blocks.
pub(crate) fn wipe(runtime: &Runtime, target: &Target, request: &Request) -> Result<(), String> {
    let name = target.path.display().to_string();
    let failed = |error: &dyn std::error::Error| format!("wipe {name}: {}", chain(error));
    let mut disk = Disk::open(&target.path).map_err(|e| failed(&e))?;
    let how = if request.zeroes { "every byte" } else { "signatures" };
    runtime.journal.say(&format!("wiping {name}: {how}, {} MiB", disk.bytes() >> 20));
    if request.zeroes {
        reset::wipe(&mut disk, &name, 0, None, &mut silent).map_err(|e| failed(&e))?;
    } else {
        for start in places(runtime, target, disk.bytes()) {
            reset::wipe(&mut disk, &name, start, Some(END_BYTES), &mut silent).map_err(|e| failed(&e))?;
        }
    }
    drop(disk);
    if let Some(number) = target.partition.filter(|_| request.drop_partition) {
        let mut host = NodeHost::open(&target.disk).map_err(|e| failed(&e))?;
        let mut table = read_table(&mut host).map_err(|e| failed(&e))?.table;
        table.partitions.retain(|partition| partition.number != number);
        write_table(&mut host, &table).map_err(|e| failed(&e))?;
    }
    if request.drop_partition || target.partition.is_none() {
        // The kernel keeps what it knew while somebody uses another partition.
        if let Err(error) = system_disk::reread(&target.disk) {
            runtime.journal.warn(&format!("{error}; it does at the next start"));
        }
    }
    runtime.journal.say(&format!("wiped {name}"));
    Ok(())
}

/// Where signatures lie: at both ends of a device, and where a disk's partitions begin: another table with the same
/// places would show what was in them. [`END_BYTES`] from each are wiped.
fn places(runtime: &Runtime, target: &Target, bytes: u64) -> Vec<u64> {
    let mut bases = Vec::new();
    if target.partition.is_none()
        && let Ok(table) = system_disk::read_table(runtime, &target.disk)
    {
        bases.extend(table.partitions.iter().map(|partition| table.offset_bytes(partition)));
    }
    bases.push(0);
    starts(&bases, bytes)
}

/// All that [`ondisk::probe::ranges`] reads of what begins at the bases, and of the end.
fn starts(bases: &[u64], bytes: u64) -> Vec<u64> {
    /// Second LUKS2 headers and VMFS lie further in than others.
    const FROM_START: [u64; 4] = [0, 1 << 20, 2 << 20, 4 << 20];
    let from_start = bases.iter().flat_map(|base| FROM_START.map(|more| base.saturating_add(more)));
    let from_end = [bytes.saturating_sub(2 * END_BYTES), bytes.saturating_sub(END_BYTES)];
    from_start.chain(from_end).filter(|start| *start < bytes).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::Node;

    /// Or a disk that was wiped would still be somebody's.
    #[test]
    fn all_that_signatures_are_looked_for_in_is_wiped() {
        for bytes in [4096, 1 << 20, 5 << 20, 64 << 20, (64 << 20) + 512, 1 << 40] {
            let starts = starts(&[0], bytes);
            for range in ondisk::probe::ranges(bytes) {
                let mut at = range.start;
                while at < range.end {
                    let wiped = starts.iter().find(|start| (**start..**start + END_BYTES).contains(&at));
                    at = wiped.unwrap_or_else(|| panic!("byte {at} of {bytes} stays")) + END_BYTES;
                }
            }
        }
    }

    fn request(device: &str) -> Request {
        Request { device: device.to_owned(), ..Request::default() }
    }

    /// A machine with `sdb` and its partition `sdb1`, in sysfs only.
    fn node(dir: &Path) -> Arc<Node> {
        let root = dir.canonicalize().unwrap();
        let real = root.join("sys/devices/pci0/block/sdb");
        fs::create_dir_all(real.join("sdb1/holders/dm-0")).unwrap();
        fs::create_dir_all(real.join("holders")).unwrap();
        fs::create_dir_all(root.join("sys/class/block")).unwrap();
        fs::write(real.join("sdb1/partition"), "1\n").unwrap();
        for (name, to) in [("sdb", real.clone()), ("sdb1", real.join("sdb1"))] {
            std::os::unix::fs::symlink(to, root.join("sys/class/block").join(name)).unwrap();
        }
        crate::server::tests_node(root)
    }

    fn check(node: &Node, request: &Request) -> Result<Target, Refused> {
        super::check(&node.runtime, &node.volumes, request)
    }

    #[test]
    fn a_device_is_found_with_its_disk() {
        let dir = tempfile::tempdir().unwrap();
        let node = node(dir.path());
        let whole = check(&node, &request("sdb")).unwrap();
        assert_eq!((whole.path.to_str(), whole.partition), (Some("/dev/sdb"), None));
        assert_eq!(check(&node, &request("/dev/sdb")), Ok(whole));
        let part = Request { skip_secondary_check: true, drop_partition: true, ..request("sdb1") };
        let part = check(&node, &part).unwrap();
        assert_eq!((part.disk.to_str(), part.partition), (Some("/dev/sdb"), Some(1)));
    }

    #[test]
    fn what_is_not_wiped_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let node = node(dir.path());
        let refused = |request: &Request| check(&node, request).unwrap_err().to_string();
        for nothing in ["", "sdz", "../sdb", "disk/by-id/x", "/dev/"] {
            assert!(refused(&request(nothing)).ends_with("has no such block device"), "{nothing}");
        }
        assert_eq!(refused(&request("sdb1")), "wipe sdb1: dm-0 is made of it");
        let whole = Request { drop_partition: true, ..request("sdb") };
        assert_eq!(refused(&whole), "wipe sdb: it is no partition, so none can be dropped");
        let text =
            "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  disks: [{device: /dev/sdb}]\n";
        let config = config::parse(text).unwrap_or_else(|e| panic!("{e}"));
        node.runtime.config.send_replace(Some(Arc::new(config)));
        assert!(refused(&request("sdb")).contains("machine.disks"));
        assert!(check(&node, &Request { skip_volume_check: true, ..request("sdb") }).is_ok());
        fs::write(node.runtime.path("/sys/class/block/sdb/ro"), "1\n").unwrap();
        assert_eq!(refused(&request("sdb")), "wipe sdb: it is read-only");
    }
}
