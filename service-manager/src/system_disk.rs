//! The disk that this machine's system is installed on.
//!
//! Owns: which disk that is: the one that the root's slot lies on; without a slot (the root came from a medium, the
//! network or the initramfs) the one with Billet's partitions, if there is exactly one.
//! Does not: choose a disk to install to; write.
//! Fails by: a sentence that names the disks that could all be meant; none of them is used then.

use std::fs::File;
use std::path::{Path, PathBuf};

use installer::upgrade::Slot;
use ondisk::gpt::{self, Geometry, Guid, Partition, Table};
use ondisk::{ReadAt, ReadError};

use crate::block;
use runtime::Runtime;

/// Partitions that every installed disk has.
const OURS: [&str; 3] = ["EFI", "ROOT-A", "META"];

/// An installed disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemDisk {
    /// Its node: `/dev/vda`.
    pub path: PathBuf,
    /// Its partitions.
    pub table: Table,
    /// The slot that this node runs from; `None` where the root came from elsewhere.
    pub slot: Option<Slot>,
}

impl SystemDisk {
    /// The node of a partition of it: `/dev/vda4`, `/dev/nvme0n1p4`.
    #[must_use]
    pub fn partition_path(&self, partition: &Partition) -> PathBuf {
        partition_path(&self.path, partition.number)
    }
}

/// The node of a disk's partition: behind a digit the kernel puts a `p`.
#[must_use]
pub fn partition_path(disk: &Path, number: u32) -> PathBuf {
    let disk = disk.display().to_string();
    let between = if disk.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    PathBuf::from(format!("{disk}{between}{number}"))
}

/// The slot that this node runs from.
#[must_use]
pub fn slot(runtime: &Runtime) -> Option<Slot> {
    let source = &runtime.boot.root_source;
    [Slot::A, Slot::B].into_iter().find(|slot| source.ends_with(&format!("({})", slot.partition())))
}

/// The disk that this machine's system is installed on, if one is. Reads disks: not for the threads that run tasks.
#[must_use]
pub fn known(runtime: &Runtime) -> Option<SystemDisk> {
    find(runtime).ok().flatten()
}

/// The same, with the reason why it is none of several.
pub(crate) fn find(runtime: &Runtime) -> Result<Option<SystemDisk>, String> {
    let slot = slot(runtime);
    if slot.is_some() {
        let name = block::system_disk(runtime).ok_or_else(|| {
            format!("the disk of {} is not there any more: is it unplugged?", runtime.boot.root_source)
        })?;
        let path = Path::new("/dev").join(name);
        let table = read_table(runtime, &path)?;
        return Ok(Some(SystemDisk { path, table, slot }));
    }
    let is_ours = |table: &Table| OURS.iter().all(|name| table.by_name(name).is_some());
    let disks = block::disks(runtime).into_iter().filter_map(|path| {
        let table = read_table(runtime, &path).ok().filter(is_ours)?;
        Some(SystemDisk { path, table, slot: None })
    });
    let mut disks: Vec<SystemDisk> = disks.collect();
    if disks.len() > 1 {
        let names: Vec<String> = disks.iter().map(|disk| disk.path.display().to_string()).collect();
        return Err(format!(
            "several disks hold an installation of Billet ({}): none is used; detach or wipe all but one",
            names.join(", ")
        ));
    }
    Ok(disks.pop())
}

/// Refuses a disk while another one has its GUID, or that of one of its partitions: a copy of it. Nobody can tell then
/// which of them a write is meant for. Reads all disks: blocks.
pub(crate) fn refuse_twin(runtime: &Runtime, disk: &Path) -> Result<(), String> {
    // What has no table has no GUID.
    let Ok(table) = read_table(runtime, disk) else { return Ok(()) };
    let others = block::disks(runtime).into_iter().filter(|other| other != disk);
    let mut tables = others.filter_map(|other| Some((read_table(runtime, &other).ok()?, other)));
    let twin = tables.find_map(|(other_table, other)| Some((shared(&table, &other_table)?, other)));
    match twin {
        None => Ok(()),
        Some((what, other)) => Err(format!(
            "{} and {} both have {what}, so one is a copy of the other: nothing is written to either; detach one, or give \
             it other GUIDs (sgdisk --randomize-guids)",
            disk.display(),
            other.display()
        )),
    }
}

/// Every two disks of this machine with a GUID in common, in a sentence each. Reads all disks: blocks.
pub(crate) fn twins(runtime: &Runtime) -> Vec<String> {
    let tables =
        block::disks(runtime).into_iter().filter_map(|disk| Some((read_table(runtime, &disk).ok()?, disk)));
    let tables: Vec<(Table, PathBuf)> = tables.collect();
    let mut told = Vec::new();
    for (number, (table, disk)) in tables.iter().enumerate() {
        for (other_table, other) in tables.iter().skip(number + 1) {
            if let Some(what) = shared(table, other_table) {
                let (disk, other) = (disk.display(), other.display());
                told.push(format!(
                    "{disk} and {other} both have {what}: volumes, upgrades and resets of them are refused until one is \
                     detached or has other GUIDs"
                ));
            }
        }
    }
    told
}

/// A GUID that two disks have in common. One of zeros is none.
fn shared(one: &Table, other: &Table) -> Option<String> {
    let is_set = |guid: &Guid| *guid != Guid::ZERO;
    if one.disk_guid == other.disk_guid && is_set(&one.disk_guid) {
        return Some(format!("the disk GUID {}", one.disk_guid));
    }
    let is_there = |guid: &Guid| other.partitions.iter().any(|partition| partition.guid == *guid);
    let twin =
        one.partitions.iter().find(|partition| is_set(&partition.guid) && is_there(&partition.guid))?;
    Some(format!("a partition with the GUID {} ({})", twin.guid, twin.name))
}

/// A disk's partition table.
pub(crate) fn read_table(runtime: &Runtime, disk: &Path) -> Result<Table, String> {
    let name = disk.display();
    let shown = runtime.path(&name.to_string());
    let file = File::open(&shown).map_err(|e| format!("open {name}: {e}"))?;
    let size = sys::block::size_bytes(&file).and_then(|bytes| Ok((bytes, sys::block::sector_bytes(&file)?)));
    let (bytes, sector_bytes) = size.map_err(|e| format!("size of {name}: {e}"))?;
    let geometry = Geometry::new(sector_bytes, bytes).map_err(|e| format!("{name}: {e}"))?;
    gpt::read(&mut Opened(&file), geometry).map(|found| found.table).map_err(|e| format!("{name}: {e}"))
}

/// Has the kernel read a disk's partitions anew.
pub(crate) fn reread(disk: &Path) -> Result<(), String> {
    let told = File::open(disk).map_err(|error| error.to_string()).and_then(|disk| {
        sys::block::reread_partitions(&disk).map_err(|errno| sys::errno::Described(errno).to_string())
    });
    told.map_err(|error| format!("have the kernel read the partitions of {}: {error}", disk.display()))
}

/// An open device as the readers of `ondisk` want it.
struct Opened<'f>(&'f File);

impl ReadAt for Opened<'_> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        std::os::unix::fs::FileExt::read_exact_at(self.0, buffer, offset).map_err(|error| ReadError {
            offset,
            length,
            errno: error.raw_os_error().unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_have_the_kernels_names() {
        let name = |disk: &str| partition_path(Path::new(disk), 5).display().to_string();
        assert_eq!(name("/dev/vda"), "/dev/vda5");
        assert_eq!(name("/dev/nvme0n1"), "/dev/nvme0n1p5");
        assert_eq!(name("/dev/mmcblk0"), "/dev/mmcblk0p5");
    }

    fn table(disk: &str, partitions: &[(&str, &str)]) -> Table {
        let requests: Vec<_> = partitions
            .iter()
            .map(|(name, guid)| ondisk::gpt::Request {
                name: (*name).to_owned(),
                type_guid: ondisk::gpt::types::LINUX,
                guid: Guid::from_seed(guid.as_bytes()),
                attributes: 0,
                size: ondisk::gpt::Size::Bytes(1 << 20),
            })
            .collect();
        let geometry = Geometry::new(512, 64 << 20).unwrap();
        ondisk::gpt::lay_out(geometry, Guid::from_seed(disk.as_bytes()), &requests).unwrap()
    }

    #[test]
    fn a_copy_of_a_disk_is_known_by_any_guid() {
        let ours = table("ours", &[("EFI", "a"), ("STATE", "b")]);
        assert_eq!(shared(&ours, &table("other", &[("EFI", "c"), ("STATE", "d")])), None);
        let told = shared(&ours, &table("ours", &[])).unwrap();
        assert_eq!(told, format!("the disk GUID {}", Guid::from_seed(b"ours")));
        // A copy of one partition, under another name and in another place.
        let told = shared(&ours, &table("other", &[("u-x", "e"), ("u-y", "b")])).unwrap();
        assert_eq!(told, format!("a partition with the GUID {} (STATE)", Guid::from_seed(b"b")));
        let mut zero = table("other", &[]);
        zero.disk_guid = Guid::ZERO;
        assert_eq!(shared(&zero, &zero.clone()), None);
    }

    #[test]
    fn a_node_without_disks_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        assert_eq!(find(&node.runtime), Ok(None));
        assert_eq!(slot(&node.runtime), None);
    }
}
