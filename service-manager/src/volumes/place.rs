//! Where a volume lies: the partition of its name, and the disk that a new one is made on.
//!
//! Owns: finding a partition by its name on every disk; which disk an expression means, and why not the others.
//! Does not: write; say how much room is free (`installer::volumes::room_for`).
//! Order: one that is there is used wherever it lies, whatever the expression says by now. A new one goes to the first
//! disk that is meant and has room, by the names of the disks. Never to the system's disk.
//! Fails by: a sentence with the volume, every disk that was meant, and what is wrong with each.

use std::path::{Path, PathBuf};

use installer::volumes::room_for;
use ondisk::gpt::Partition;
use runtime::errors::chain;
use runtime::store::Disk;

use super::handle::Volumes;
use super::host::NodeHost;
use super::seed;
use super::specs::{SYSTEM, VolumeSpec};
use crate::block::{self, Listed};
use crate::boot_medium;
use crate::system_disk::{self, partition_path, read_table};

/// A volume's partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The node of its disk.
    pub(super) disk: PathBuf,
    pub(super) partition: Partition,
}

impl Found {
    /// The partition's node.
    pub(super) fn device(&self) -> PathBuf {
        partition_path(&self.disk, self.partition.number)
    }
}

/// The partition of a volume. Reads disks: blocks.
pub(super) fn find(volumes: &Volumes, name: &str) -> Result<Option<Found>, String> {
    if SYSTEM.contains(&name) {
        let Some(disk) = system_disk::find(&volumes.runtime)? else { return Ok(None) };
        let partition = disk.table.by_name(name).cloned();
        return Ok(partition.map(|partition| Found { disk: disk.path, partition }));
    }
    let mut all = block::disks(&volumes.runtime).into_iter().flat_map(|disk| {
        let partitions =
            read_table(&volumes.runtime, &disk).map(|table| table.partitions).unwrap_or_default();
        let named = partitions.into_iter().filter(|partition| partition.name == name);
        named.map(|partition| Found { disk: disk.clone(), partition }).collect::<Vec<_>>()
    });
    match (all.next(), all.next()) {
        (Some(one), Some(other)) => Err(format!(
            "{name} is there twice, as {} and {}: none is used; detach or wipe one",
            one.device().display(),
            other.device().display()
        )),
        (one, _) => Ok(one),
    }
}

/// Why a new volume has no disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoDisk {
    /// Only the system's.
    #[error(
        "{0}: its diskSelector means the system disk alone, which takes no further volumes: write `!system_disk`"
    )]
    OnlySystem(String),
    /// None that is there now.
    #[error("{0}")]
    Now(String),
}

/// A disk that may take a volume.
struct Candidate {
    disk: Disk,
    /// `None`: that is not known.
    is_system: Option<bool>,
    /// Why it cannot be used.
    unusable: Option<String>,
}

/// The disk that a volume which is nowhere is made on. Reads disks: blocks.
pub(super) fn choose(volumes: &Volumes, spec: &VolumeSpec) -> Result<PathBuf, NoDisk> {
    let system = system_disk::find(&volumes.runtime).map(|disk| disk.map(|disk| disk.path));
    let candidates =
        block::listed(&volumes.runtime).into_iter().map(|listed| candidate(volumes, listed, &system));
    choose_among(candidates, spec, |disk| {
        let path = Path::new(&disk.dev_path);
        let mut host = NodeHost::open(path).map_err(|error| chain(&error))?;
        let room = room_for(&mut host, &disk.dev_path, &spec.named(disk.size), &seed::of_disk(path));
        room.map(drop).map_err(|error| chain(&error))
    })
}

fn candidate(volumes: &Volumes, listed: Listed, system: &Result<Option<PathBuf>, String>) -> Candidate {
    let is_system = system
        .as_ref()
        .ok()
        .map(|system| system.as_ref().is_some_and(|system| *system == Path::new(&listed.disk.dev_path)));
    let unusable = match () {
        () if listed.disk.readonly || listed.disk.cdrom => Some("it cannot be written".to_owned()),
        () => boot_medium::use_of(&volumes.runtime, &listed).map(|how| format!("this machine {how} it")),
    };
    Candidate { disk: listed.disk, is_system, unusable }
}

fn choose_among(
    candidates: impl IntoIterator<Item = Candidate>,
    spec: &VolumeSpec,
    mut has_room: impl FnMut(&Disk) -> Result<(), String>,
) -> Result<PathBuf, NoDisk> {
    let (name, mut means_system, mut reasons) = (&spec.name, false, Vec::new());
    for Candidate { disk, is_system, unusable } in candidates {
        let why_not = match spec.disk.matches(&block::properties(&disk, is_system)) {
            Ok(false) => continue,
            Ok(true) if is_system == Some(true) => {
                means_system = true;
                continue;
            }
            Ok(true) => unusable.map_or_else(|| has_room(&disk), Err),
            Err(fault) => Err(fault.to_string()),
        };
        match why_not {
            Ok(()) => return Ok(disk.dev_path.into()),
            Err(reason) => reasons.push(format!("{}: {reason}", disk.dev_path)),
        }
    }
    match (means_system, reasons.is_empty()) {
        (true, true) => Err(NoDisk::OnlySystem(name.clone())),
        (false, true) => Err(NoDisk::Now(format!(
            "{name}: no disk of this machine is meant by {:?}: compare `billetctl get disks -o yaml`",
            spec.disk.text()
        ))),
        (_, false) => Err(NoDisk::Now(format!("{name}: no disk takes it: {}", reasons.join("; ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::specs::tests::specs;
    use super::*;

    fn spec(expression: &str) -> VolumeSpec {
        let provisioning = format!("{{diskSelector: {{match: '{expression}'}}, minSize: 1GiB}}");
        specs(&[&format!("UserVolumeConfig\nname: data\nprovisioning: {provisioning}")]).remove(0)
    }

    /// vda is the system's, vdb full, vdc has room, sr0 is a CD.
    fn chosen(expression: &str) -> Result<PathBuf, NoDisk> {
        let disks = [("vda", "virtio"), ("sr0", ""), ("vdb", "virtio"), ("vdc", "virtio"), ("sda", "sata")];
        let candidates = disks.map(|(name, transport)| {
            let mut disk = Disk { dev_path: format!("/dev/{name}"), size: 4 << 30, ..Disk::default() };
            disk.transport = transport.to_owned();
            let unusable = (name == "sr0").then(|| "it cannot be written".to_owned());
            Candidate { disk, is_system: Some(name == "vda"), unusable }
        });
        choose_among(candidates, &spec(expression), |disk| match disk.dev_path.as_str() {
            "/dev/vdb" => Err("/dev/vdb holds xfs".to_owned()),
            _ => Ok(()),
        })
    }

    #[test]
    fn the_first_that_is_meant_and_has_room_is_taken() {
        for (expression, disk) in [
            ("!system_disk", "/dev/vdc"),
            ("disk.transport == \"sata\"", "/dev/sda"),
            ("disk.size > 1u * GiB", "/dev/vdc"),
            ("disk.dev_path == \"/dev/vdc\"", "/dev/vdc"),
        ] {
            assert_eq!(chosen(expression), Ok(PathBuf::from(disk)), "{expression}");
        }
    }

    #[test]
    fn a_volume_without_a_disk_says_what_is_wrong_with_each() {
        let reason = |expression: &str| chosen(expression).unwrap_err().to_string();
        assert_eq!(
            reason("system_disk"),
            "u-data: its diskSelector means the system disk alone, which takes no further volumes: write `!system_disk`"
        );
        assert_eq!(
            reason("disk.dev_path == \"/dev/vdb\" || disk.cdrom || disk.dev_path == \"/dev/sr0\""),
            "u-data: no disk takes it: /dev/sr0: it cannot be written; /dev/vdb: /dev/vdb holds xfs"
        );
        assert!(
            reason("disk.rotational").contains("no disk of this machine is meant by \"disk.rotational\"")
        );
    }

    #[test]
    fn a_node_without_disks_has_no_volumes() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = crate::server::tests_node(dir.path().to_owned()).volumes.clone();
        for name in ["STATE", "u-data"] {
            assert_eq!(find(&volumes, name), Ok(None));
        }
        assert!(matches!(choose(&volumes, &spec("!system_disk")), Err(NoDisk::Now(_))));
    }
}
