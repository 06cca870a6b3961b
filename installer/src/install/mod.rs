//! Installation to a disk: a plan that a person can read, then exactly that.
//!
//! Owns: the layout of an installed disk, the list of byte ranges that an installation writes, its order.
//! Does not: choose the disk; make STATE and EPHEMERAL, which the first boot does; write EFI variables.
//! Order: the old table goes; ESP, slot A and META are written and read back; the new table comes last, the backup
//! before the primary. A power cut before that leaves a disk that starts nothing and can be installed again.
//! Fails by: [`Error::Occupied`] without `wipe`, [`Error::Changed`] when the disk is not the one of the plan any more;
//! both before anything is written.
//! Source: docs/formats/disk.md.

mod contents;

use std::fmt::{self, Write as _};
use std::ops::Range;

use ondisk::gpt::{Geometry, Guid, Table, lay_out, types};
use ondisk::{Digest, Extent, fat};

use crate::device::{BlockDevice, DeviceError, Part, apply as put};
use crate::entries::{DIRECTORY, Entry};
use crate::esp::Esp;
use crate::grub;
use crate::layout::{BIOS_BYTES, EFI_BYTES, META_BYTES, ROOT_BYTES, STATE_BYTES, partition};
use crate::upgrade::{NewSystem, Slot};
use crate::{Error, Progress, slot};

pub use contents::{Contents, END_BYTES, Inspection, inspect};

/// What is wiped where a partition begins that is made later: no superblock of an old file system lies further in.
const START_BYTES: u64 = 1 << 20;

/// The partition with GRUB's core image.
const BIOS: &str = "BIOS";

/// How a person tells this disk from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its path, as given.
    pub path: String,
    /// Its model; empty where the disk has none.
    pub model: String,
    /// Its serial number; empty where the disk has none.
    pub serial: String,
}

/// What an installation is made of.
#[derive(Debug, Clone, Copy)]
pub struct Spec<'a> {
    /// The system.
    pub system: NewSystem<'a>,
    /// The boot loader's files on the EFI system partition.
    pub loader: &'a [fat::File<'a>],
    /// GRUB, if the disk is to start on machines without UEFI too.
    pub grub: Option<&'a grub::Parts>,
    /// Size of the EFI system partition.
    pub efi_bytes: u64,
    /// Size of each root slot.
    pub root_bytes: u64,
    /// Whether what the disk holds may go.
    pub wipe: bool,
    /// Random bytes, from which the GUIDs are made.
    pub seed: [u8; 32],
}

impl<'a> Spec<'a> {
    /// An installation with default sizes that leaves foreign data alone.
    #[must_use]
    pub fn new(system: NewSystem<'a>, loader: &'a [fat::File<'a>], seed: [u8; 32]) -> Self {
        let (efi_bytes, root_bytes) = (EFI_BYTES, ROOT_BYTES);
        Self { system, loader, grub: None, efi_bytes, root_bytes, wipe: false, seed }
    }
}

/// A range of the disk that an installation writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// What for.
    pub what: String,
    /// Which bytes.
    pub range: Range<u64>,
    /// Whether they become zeros first or only.
    pub zero: bool,
}

/// What will be done, and to which disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The disk.
    pub identity: Identity,
    /// What it holds now.
    pub found: Inspection,
    /// Its partitions afterwards.
    pub table: Table,
    /// Everything that is written, in order.
    pub writes: Vec<Write>,
    /// Of the system's manifest and UKI and of the loader's files.
    system: Digest,
    /// The system's version.
    version: String,
}

/// Decides what an installation does. Nothing is written.
pub fn plan(disk: &mut dyn BlockDevice, identity: Identity, spec: &Spec<'_>) -> Result<Plan, Error> {
    let found = inspect(disk)?;
    if !spec.wipe && found.contents != Contents::Nothing {
        return Err(Error::Occupied { device: identity.path, found: found.contents.to_string() });
    }
    let needed_bytes = spec.system.manifest.slot_bytes();
    if needed_bytes > spec.root_bytes {
        return Err(Error::SlotTooSmall { needed_bytes, slot_bytes: spec.root_bytes });
    }
    let table = layout(disk, spec)?;
    let core_bytes = core_image(&table, spec)?.map_or(0, |(_, core)| core.len() as u64);
    let writes = writes(&table, disk.bytes(), needed_bytes, core_bytes);
    let version = spec.system.manifest.version.clone();
    Ok(Plan { identity, found, table, writes, system: system_digest(spec), version })
}

fn layout(disk: &dyn BlockDevice, spec: &Spec<'_>) -> Result<Table, Error> {
    let geometry = Geometry::new(disk.sector_bytes(), disk.bytes())?;
    let request = |name, type_guid, bytes| partition(&spec.seed, name, type_guid, bytes);
    let mut requests = vec![request("EFI", types::EFI_SYSTEM, spec.efi_bytes)];
    requests.extend(spec.grub.map(|_| request(BIOS, types::BIOS_BOOT, BIOS_BYTES)));
    requests.extend([
        request(Slot::A.partition(), types::LINUX, spec.root_bytes),
        request(Slot::B.partition(), types::LINUX, spec.root_bytes),
        request("META", types::LINUX, META_BYTES),
    ]);
    Ok(lay_out(geometry, Guid::from_seed(&spec.seed), &requests)?)
}

fn writes(table: &Table, disk_bytes: u64, layers_bytes: u64, core_bytes: u64) -> Vec<Write> {
    let mut writes = Vec::new();
    let mut add = |what: &str, start: u64, length: u64, zero| {
        let end = start.saturating_add(length).min(disk_bytes);
        if start < end {
            writes.push(Write { what: what.into(), range: start..end, zero });
        }
    };
    add("old partition table", 0, END_BYTES, true);
    add("backup of the old partition table", disk_bytes.saturating_sub(END_BYTES), END_BYTES, true);
    let (meta, meta_bytes) = place(table, "META");
    let later = meta.saturating_add(meta_bytes);
    add("start of what becomes STATE", later, START_BYTES, true);
    add("start of what becomes EPHEMERAL", later.saturating_add(STATE_BYTES), START_BYTES, true);
    let (efi, efi_bytes) = place(table, "EFI");
    add("EFI: file system, boot loader, UKI", efi, efi_bytes, false);
    add("BIOS: GRUB", place(table, BIOS).0, core_bytes, false);
    let (slot, _) = place(table, Slot::A.partition());
    add("ROOT-A: layers", slot, layers_bytes, false);
    let (other, _) = place(table, Slot::B.partition());
    add("start of ROOT-B", other, START_BYTES, true);
    add("META", meta, meta_bytes, true);
    let sectors = |count: u64| count.saturating_mul(u64::from(table.geometry.sector_bytes));
    let first = sectors(table.geometry.first_usable());
    let last = sectors(table.geometry.last_usable().saturating_add(1));
    let end = sectors(table.geometry.sectors);
    add("backup of the new partition table", last, end.saturating_sub(last), false);
    add("new partition table", 0, first, false);
    writes
}

fn place(table: &Table, name: &str) -> (u64, u64) {
    let found =
        table.by_name(name).map(|partition| (table.offset_bytes(partition), table.size_bytes(partition)));
    found.unwrap_or_default()
}

/// Where GRUB's core image goes, and its bytes; `None` where there is to be no GRUB.
fn core_image(table: &Table, spec: &Spec<'_>) -> Result<Option<(u64, Vec<u8>)>, Error> {
    let (Some(grub), Some(bios)) = (spec.grub, table.by_name(BIOS)) else { return Ok(None) };
    // Found out before anything is written, as all that can be wrong.
    grub::script(spec.system.uki)?;
    let core = grub.core_image(table, bios)?;
    let room_bytes = table.size_bytes(bios);
    if core.len() as u64 > room_bytes {
        return Err(Error::NoRoom { name: BIOS.into(), needed_bytes: core.len() as u64, room_bytes });
    }
    Ok(Some((table.offset_bytes(bios), core)))
}

/// The primary table, with GRUB's code before it where there is to be GRUB.
fn primary(table: &Table, spec: &Spec<'_>) -> Result<Extent<'static>, Error> {
    let mut primary = table.primary()?;
    if let (Some(grub), Some(bios)) = (spec.grub, table.by_name(BIOS)) {
        let code = grub.boot_code(table, bios)?;
        if let Some(start) = primary.bytes.to_mut().get_mut(..code.len()) {
            start.copy_from_slice(&code);
        }
    }
    Ok(primary)
}

fn system_digest(spec: &Spec<'_>) -> Digest {
    let mut digest = Digest::sha256(&[spec.system.manifest.to_json().as_bytes(), spec.system.uki]);
    for file in spec.loader {
        let content = Digest::sha256(&[file.content]);
        digest = Digest::sha256(&[digest.as_bytes(), file.path.as_bytes(), content.as_bytes()]);
    }
    if let Some(grub) = spec.grub {
        digest = Digest::sha256(&[digest.as_bytes(), &grub.boot, &grub.core]);
    }
    digest
}

impl Plan {
    /// Stands for all that the plan says: the disk, what it holds, what is written.
    #[must_use]
    pub fn hash(&self) -> Digest {
        let found = self.found.digest;
        Digest::sha256(&[self.body().as_bytes(), found.as_bytes(), self.system.as_bytes()])
    }

    fn body(&self) -> String {
        let (mut text, identity, geometry) = (String::new(), &self.identity, self.table.geometry);
        let mut line = |line: fmt::Arguments<'_>| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{line}");
        };
        let or_dash = |value: &str| if value.is_empty() { "-".to_owned() } else { value.to_owned() };
        line(format_args!(
            "disk {}: model {}, serial {}, {} sectors of {} bytes",
            identity.path,
            or_dash(&identity.model),
            or_dash(&identity.serial),
            geometry.sectors,
            geometry.sector_bytes
        ));
        line(format_args!("holds: {}", self.found.contents));
        line(format_args!("system: Billet {}", self.version));
        line(format_args!("partitions of disk {}:", self.table.disk_guid));
        for partition in &self.table.partitions {
            let (start, length) = (self.table.offset_bytes(partition), self.table.size_bytes(partition));
            let end = start.saturating_add(length);
            line(format_args!(
                "  {} {:<8} {start}..{end} {}",
                partition.number, partition.name, partition.guid
            ));
        }
        line(format_args!("writes, in bytes:"));
        for Write { what, range, zero } in &self.writes {
            let how = if *zero { "zeros" } else { "data" };
            line(format_args!("  {how:<5} {}..{} {what}", range.start, range.end));
        }
        text
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.body())?;
        write!(f, "plan {}", self.hash())
    }
}

/// Does what a plan says; `spec` is the one that it was made of.
pub fn apply(
    disk: &mut dyn BlockDevice,
    plan: &Plan,
    spec: &Spec<'_>,
    source: &mut slot::Source<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    check_unchanged(disk, plan, spec)?;
    let mut disk = Fenced { disk, plan };
    for write in plan.writes.iter().filter(|write| write.zero) {
        disk.zero(write.range.start, write.range.end - write.range.start)?;
    }
    disk.flush()?;
    if let Some((start, core)) = core_image(&plan.table, spec)? {
        disk.write_at(start, &core)?;
    }
    write_esp(&mut disk, plan, spec, progress)?;
    let (start, length) = place(&plan.table, Slot::A.partition());
    slot::write(&mut Part::new(&mut disk, start, length), spec.system.manifest, source, progress)?;
    put(&mut disk, 0, &[vec![plan.table.backup()?], vec![primary(&plan.table, spec)?]])?;
    disk.acknowledge("install");
    Ok(())
}

fn check_unchanged(disk: &mut dyn BlockDevice, plan: &Plan, spec: &Spec<'_>) -> Result<(), Error> {
    let geometry = Geometry::new(disk.sector_bytes(), disk.bytes())?;
    let what = if geometry != plan.table.geometry {
        "the disk has another size"
    } else if inspect(disk)?.digest != plan.found.digest {
        "something was written to the disk"
    } else if system_digest(spec) != plan.system || layout(disk, spec)? != plan.table {
        "another system or layout is to be installed"
    } else {
        return Ok(());
    };
    Err(Error::Changed { device: plan.identity.path.clone(), what })
}

/// Makes the EFI system partition with everything on it, and reads the UKI back.
fn write_esp(
    disk: &mut dyn BlockDevice,
    plan: &Plan,
    spec: &Spec<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let (start, bytes) = place(&plan.table, "EFI");
    let [a, b, c, d, ..] = *Digest::sha256(&[&spec.seed, b"EFI"]).as_bytes();
    let volume = fat::Volume {
        label: "EFI",
        volume_id: u32::from_be_bytes([a, b, c, d]),
        sector_bytes: plan.table.geometry.sector_bytes,
        bytes,
    };
    // The first system is not on trial: there is no other.
    let first = Entry { generation: 1, trial: None };
    let (path, uki) = (format!("{DIRECTORY}/{first}"), spec.system.uki);
    let mut files = spec.loader.to_vec();
    files.push(fat::File { path: &path, content: uki });
    let grub = spec.grub.map(|_| grub::Files::new(first, uki)).transpose()?;
    files.extend(grub.iter().flat_map(|grub| grub.list()));
    let total_bytes = uki.len() as u64;
    progress(Progress { step: "boot files", done_bytes: 0, total_bytes });
    put(disk, start, &[fat::format(&volume, &files)?])?;
    if Esp::new(disk, start, bytes).read(first)? != uki {
        return Err(Error::BadUki { name: first.to_string() });
    }
    progress(Progress { step: "boot files", done_bytes: total_bytes, total_bytes });
    Ok(())
}

/// A disk of which nothing but the ranges of a plan can be written.
struct Fenced<'d> {
    disk: &'d mut dyn BlockDevice,
    plan: &'d Plan,
}

impl Fenced<'_> {
    fn check(&self, operation: &'static str, offset: u64, length: u64) -> Result<(), DeviceError> {
        let end = offset.saturating_add(length);
        let mut ranges = self.plan.writes.iter().map(|write| &write.range);
        if ranges.any(|range| range.start <= offset && end <= range.end) {
            return Ok(());
        }
        let device = self.plan.identity.path.clone();
        let source = std::io::Error::other("the plan does not name these bytes; this is a fault of Billet");
        Err(DeviceError { operation, device, offset, length, source })
    }
}

impl ondisk::ReadAt for Fenced<'_> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ondisk::ReadError> {
        self.disk.read_at(offset, buffer)
    }
}

impl BlockDevice for Fenced<'_> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check("write", offset, bytes.len() as u64)?;
        self.disk.write_at(offset, bytes)
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.check("zero", offset, length)?;
        self.disk.zero(offset, length)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.disk.flush()
    }

    fn acknowledge(&mut self, promise: &str) {
        self.disk.acknowledge(promise);
    }

    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.disk.sector_bytes()
    }
}

#[cfg(test)]
mod tests;
