//! Disks of `machine.disks`: made once, mounted at every boot.
//!
//! Order: after /var is there, since they are mounted below it.
//! Fails by: a sentence with the device; a disk that holds something unknown, or is the system's, is left alone.
//! Source: docs/users/disks.md.

use std::fs;
use std::path::{Path, PathBuf};

use config::v1alpha1::Disk as Wanted;
use installer::device::Disk;
use installer::volumes::provision_extra;
use runtime::errors::chain;
use rustix::mount::MountFlags;

use super::filesystem::mount_volume;
use super::handle::Volumes;
use super::host::NodeHost;
use super::mount::is_mounted;
use super::seed;
use crate::system_disk;
use crate::system_disk::partition_path;

/// Makes and mounts them all. Blocks.
pub(super) fn mount_all(volumes: &Volumes, wanted: &[Wanted]) -> Result<(), String> {
    wanted.iter().try_for_each(|disk| mount_one(volumes, disk))
}

fn mount_one(volumes: &Volumes, wanted: &Wanted) -> Result<(), String> {
    let name = &wanted.device;
    let failed = |what: String| format!("user disk {name}: {what}");
    let path = fs::canonicalize(name).map_err(|e| failed(e.to_string()))?;
    if system_disk::known(&volumes.runtime).is_some_and(|system| system.path == path) {
        return Err(failed("it is the system disk".to_owned()));
    }
    if wanted.partitions.iter().all(|partition| is_mounted(&partition.mountpoint)) {
        return Ok(());
    }
    let sizes: Vec<Option<u64>> =
        wanted.partitions.iter().map(|partition| Some(partition.size.0).filter(|size| *size > 0)).collect();
    let seed = seed::of_layout(&path, &sizes);
    // Nobody else may use it: the handle that follows would not notice.
    drop(Disk::open(&path).map_err(|e| failed(chain(&e)))?);
    let mut host = NodeHost::open(&path).map_err(|e| failed(chain(&e)))?;
    let extra = provision_extra(&mut host, name, &sizes, &seed).map_err(|e| failed(chain(&e)))?;
    if extra.made {
        volumes.runtime.journal.say(&format!("user disk {name}: {} partitions were made", sizes.len()));
    } else {
        volumes.runtime.journal.say(&format!("skipping setup of {name:?}, found existing partitions"));
    }
    for (number, partition) in (1..).zip(&wanted.partitions) {
        mount_partition(&path, number, &partition.mountpoint).map_err(failed)?;
    }
    Ok(())
}

fn mount_partition(disk: &Path, number: u32, target: &str) -> Result<(), String> {
    if is_mounted(target) {
        return Ok(());
    }
    let device: PathBuf = partition_path(disk, number);
    let name = format!("user-{number}");
    super::mount::at(target, 0o700, |directory| mount_volume(&device, &name, directory, MountFlags::NOATIME))
}
