//! Root slots on disks, and the other partitions of the root's disk.
//!
//! Owns: which slot of which disk holds the layers of the manifest. GPT is read here, not by the kernel, so that a
//! damaged primary table is no obstacle; a partition the kernel does not know is added.
//! Order: only disks with the partition that the loader names (`LoaderDevicePartUUID`) are considered; without that,
//! all, once devices are quiet. Exactly one may hold the layers: a clone of the boot disk is a second one.
//! Fails by: listing the disks that could all be the root, or why each slot seen is not it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use ondisk::Digest;
use ondisk::gpt::{self, Geometry, Guid, Table};
use ondisk::manifest::BLOCK_BYTES;
use ondisk::recorder::{RING_BYTES, RING_OFFSET_BYTES};

use super::efi;
use crate::boot::Boot;
use crate::cmdline::Slot;
use crate::devices::{Reader, number};
use crate::events;
use crate::failure::Failure;
use crate::kernel::{Kernel, Level};
use crate::line::say;
use crate::source::Source;

/// Values of the node and the flight recorder.
const META: &str = "META";

/// Devices that never are a boot disk.
const NOT_DISKS: &[&str] = &["dm-", "loop", "md", "nbd", "ram", "sr", "zram"];

/// A slot that holds the layers of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    slot: Slot,
    partition: Partition,
    /// META of the same disk.
    meta: Option<Partition>,
}

/// A partition as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Partition {
    /// `vda`
    disk: String,
    number: u32,
    pub(super) guid: Guid,
    start_bytes: u64,
    size_bytes: u64,
}

impl Partition {
    fn of(disk: &str, table: &Table, partition: &gpt::Partition) -> Self {
        Self {
            disk: disk.to_string(),
            number: partition.number,
            guid: partition.guid,
            start_bytes: table.offset_bytes(partition),
            size_bytes: table.size_bytes(partition),
        }
    }

    fn by_name(disk: &str, table: &Table, name: &str) -> Option<Self> {
        table.by_name(name).map(|partition| Self::of(disk, table, partition))
    }

    fn meta(disk: &str, table: &Table) -> Option<Self> {
        Self::by_name(disk, table, META).filter(|meta| meta.size_bytes >= RING_OFFSET_BYTES + RING_BYTES)
    }
}

/// A search over all disks, repeated as they appear.
#[derive(Debug)]
pub(super) struct Search {
    /// The partition that the loader was on, if it said so.
    loader: Option<Guid>,
    /// Why slots that were seen are not the root.
    refused: Vec<String>,
    /// What of that is in the log already.
    said: Vec<String>,
}

/// Finds the slot and makes sure that its partition has a device.
pub(super) fn find(boot: &mut Boot<'_>) -> Result<Source, Failure> {
    let mut search = Search::new(boot);
    let found =
        events::wait_for(boot, "a disk slot with the layers of the manifest", |boot| search.look(boot));
    match found {
        Ok(candidate) => search.settle(boot, candidate),
        Err(failure) => Err(failure.explained(search.refused())),
    }
}

impl Search {
    /// Asks the firmware which disk it is.
    pub(super) fn new(boot: &mut Boot<'_>) -> Self {
        Self { loader: efi::loader_partition(boot), refused: Vec::new(), said: Vec::new() }
    }

    /// One look at all disks: the first that fits.
    pub(super) fn look(&mut self, boot: &mut Boot<'_>) -> Result<Option<Candidate>, Failure> {
        let first = self.candidates(boot)?.into_iter().next();
        if first.is_none() {
            self.say_refused(boot);
        }
        Ok(first)
    }

    fn candidates(&mut self, boot: &mut Boot<'_>) -> Result<Vec<Candidate>, Failure> {
        self.refused.clear();
        let mut found = Vec::new();
        for disk in disks(boot.kernel)? {
            let Some(table) = read_table(boot.kernel, &disk) else { continue };
            match self.loader {
                Some(guid) if table.by_guid(guid).is_none() => {}
                // A stick may have a table too, but only a disk has slots.
                Some(_) => found.extend(self.slot_of(boot, &disk, &table, has_slots(&table))?),
                None => found.extend(self.slot_of(boot, &disk, &table, false)?),
            }
        }
        Ok(found)
    }

    /// The first slot of a disk with the right layers. On the loader's own disk one must have them.
    fn slot_of(
        &mut self,
        boot: &mut Boot<'_>,
        disk: &str,
        table: &Table,
        must: bool,
    ) -> Result<Option<Candidate>, Failure> {
        let slots = boot.parameters.slot.map_or_else(|| vec![Slot::A, Slot::B], |slot| vec![slot]);
        for slot in slots {
            let Some(partition) = Partition::by_name(disk, table, slot.partition()) else { continue };
            let candidate = Candidate { slot, partition, meta: Partition::meta(disk, table) };
            match mismatch(boot, &candidate) {
                None => return Ok(Some(candidate)),
                Some(reason) => self.refused.push(format!("{} on /dev/{disk}: {reason}", slot.partition())),
            }
        }
        if must {
            let seen =
                if self.refused.is_empty() { "it has none".to_string() } else { self.refused.join("; ") };
            return Err(Failure::reason("find root slot on", &format!("/dev/{disk}"), seen));
        }
        Ok(None)
    }

    /// Says once why each slot seen so far is not the root: the search goes on, as another disk may still appear.
    fn say_refused(&mut self, boot: &mut Boot<'_>) {
        for reason in &self.refused {
            if !self.said.contains(reason) {
                say!(boot.kernel, Level::Warning, "not the root: {reason}; looking for another disk");
                self.said.push(reason.clone());
            }
        }
    }

    /// Why each slot seen is not the root.
    pub(super) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Makes sure that no other disk is as good, then gives the partition a device.
    pub(super) fn settle(&mut self, boot: &mut Boot<'_>, found: Candidate) -> Result<Source, Failure> {
        if self.loader.is_none() {
            events::wait_until_quiet(boot)?;
        }
        let all = self.candidates(boot)?;
        if all.len() > 1 {
            let disks: Vec<String> =
                all.iter().map(|c| format!("/dev/{} ({})", c.partition.disk, c.slot.partition())).collect();
            let reason = format!("{} all hold these layers; remove the wrong ones", disks.join(", "));
            return Err(Failure::reason("choose root disk", "of several", reason));
        }
        let device = partition_device(boot, &found.partition)?;
        let meta = found.meta.as_ref().and_then(|meta| device_without_wait(boot.kernel, meta));
        let Partition { disk, size_bytes, .. } = found.partition;
        if meta.is_none() && found.meta.is_some() {
            boot.warn(&format!("META of /dev/{disk} has no device; there is no flight recorder"));
        }
        Ok(Source::Slot { device, partition: found.slot.partition(), size_bytes, disk, meta })
    }
}

/// Names of everything that may be a boot disk.
fn disks(kernel: &mut dyn Kernel) -> Result<Vec<String>, Failure> {
    let mut names = kernel.list("/sys/block").map_err(Failure::at("list", "/sys/block"))?;
    names.retain(|disk| !NOT_DISKS.iter().any(|prefix| disk.starts_with(prefix)));
    Ok(names)
}

fn has_slots(table: &Table) -> bool {
    [Slot::A, Slot::B].iter().any(|slot| table.by_name(slot.partition()).is_some())
}

/// Why a slot does not hold the layers of the manifest: the topmost hash block of each layer, whose hash is the root
/// hash, tells in one read.
fn mismatch(boot: &mut Boot<'_>, candidate: &Candidate) -> Option<String> {
    for layer in boot.manifest.layers.clone() {
        if layer.end() > candidate.partition.size_bytes {
            let needed = layer.end();
            return Some(format!("layer {} is truncated: {needed} bytes do not fit into it", layer.name));
        }
        let mut block = sys::fs::buffer(4096);
        let at = candidate.partition.start_bytes + layer.offset + layer.top_offset();
        let disk = format!("/dev/{}", candidate.partition.disk);
        if let Err(errno) = boot.kernel.read_at(&disk, at, &mut block) {
            return Some(format!("layer {}: {}", layer.name, sys::errno::Described(errno)));
        }
        if Digest::sha256(&[layer.salt.as_bytes(), &block]) != layer.root_hash {
            let block = layer.top_offset() / BLOCK_BYTES;
            return Some(format!(
                "layer {}: hash block {block} is corrupt or of another version",
                layer.name
            ));
        }
    }
    None
}

/// The table of a disk, if it has a readable one.
fn read_table(kernel: &mut dyn Kernel, disk: &str) -> Option<Table> {
    let sector_bytes = number(kernel, &format!("/sys/block/{disk}/queue/logical_block_size"))?;
    let sectors = number(kernel, &format!("/sys/block/{disk}/size"))?;
    let geometry = Geometry::new(u32::try_from(sector_bytes).ok()?, sectors.checked_mul(512)?).ok()?;
    let mut reader = Reader { kernel, path: &format!("/dev/{disk}") };
    gpt::read(&mut reader, geometry).ok().map(|found| found.table)
}

/// The kernel's device for a partition, which is added if the kernel does not know it.
fn partition_device(boot: &mut Boot<'_>, found: &Partition) -> Result<String, Failure> {
    if let Some(device) = known_device(boot.kernel, found) {
        return Ok(device);
    }
    let disk = format!("/dev/{}", found.disk);
    match boot.kernel.add_partition(&disk, found.number, found.start_bytes, found.size_bytes) {
        // Someone was faster: the kernel's own scan.
        Ok(()) | Err(sys::Errno::BUSY) => {}
        Err(errno) => return Err(Failure::errno("add partition to", &disk, errno)),
    }
    let what = format!("partition {} of {disk}", found.number);
    events::wait_for(boot, &what, |boot| Ok(known_device(boot.kernel, found)))
}

/// The kernel's device for META or STATE, which no boot waits for.
pub(super) fn device_without_wait(kernel: &mut dyn Kernel, found: &Partition) -> Option<String> {
    known_device(kernel, found).or_else(|| {
        let disk = format!("/dev/{}", found.disk);
        kernel.add_partition(&disk, found.number, found.start_bytes, found.size_bytes).ok()?;
        known_device(kernel, found)
    })
}

/// The partitions of this name on a disk.
pub(super) fn named(kernel: &mut dyn Kernel, disk: &str, name: &str) -> Result<Vec<Partition>, Failure> {
    let table = read_table(kernel, disk).ok_or_else(|| {
        Failure::reason("read partition table of", &format!("/dev/{disk}"), "neither copy can be read")
    })?;
    let found = table.partitions.iter().filter(|partition| partition.name == name);
    Ok(found.map(|partition| Partition::of(disk, &table, partition)).collect())
}

/// META of the disk that a root was looked for on without success: the loader's own, or else the only one with slots.
pub(super) fn only_meta(boot: &mut Boot<'_>) -> Option<String> {
    let loader = efi::loader_partition(boot);
    let mut found = Vec::new();
    for disk in disks(boot.kernel).ok()? {
        let Some(table) = read_table(boot.kernel, &disk) else { continue };
        let is_ours = loader.is_none_or(|guid| table.by_guid(guid).is_some());
        if is_ours && table.by_name(Slot::A.partition()).is_some() {
            found.extend(Partition::meta(&disk, &table));
        }
    }
    match found.as_slice() {
        [only] => device_without_wait(boot.kernel, only),
        _ => None,
    }
}

/// `/sys/block/vda/vda2/{start,size}` count in 512-byte sectors whatever the disk's own are.
fn known_device(kernel: &mut dyn Kernel, found: &Partition) -> Option<String> {
    let directory = format!("/sys/block/{}", found.disk);
    let names = kernel.list(&directory).ok()?;
    names.into_iter().filter(|name| name.starts_with(&found.disk)).find_map(|name| {
        let start = number(kernel, &format!("{directory}/{name}/start"))?.checked_mul(512)?;
        let size = number(kernel, &format!("{directory}/{name}/size"))?.checked_mul(512)?;
        let device = format!("/dev/{name}");
        let fits = start == found.start_bytes && size == found.size_bytes;
        (fits && kernel.status(&device).is_ok()).then_some(device)
    })
}
