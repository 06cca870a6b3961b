//! Disks to begin with: installed by the installer, upgraded by the upgrade, with other files and values on them.
//!
//! Owns: [`Variant`], what differs between the disks of one operation; [`Node`], a disk and what runs from it.

use std::io::Read;

use ondisk::gpt::{self, ALIGNMENT_BYTES, Partition, Table};
use ondisk::manifest::Layer;
use ondisk::{Step, fat, meta};

use super::model::{self, System, place};
use super::{Fault, Numbers, bios};
use crate::device::{BlockDevice, Memory, Part, apply};
use crate::entries::{DIRECTORY, Entry};
use crate::esp::Esp;
use crate::grub::Parts;
use crate::install::{self, Identity, Spec};
use crate::layout::{BIOS_BYTES, partition};
use crate::silent;
use crate::upgrade::{Installed, Running, Slot};

const MIB: u64 = 1 << 20;

/// Room for a system of [`System::new`].
const ROOT_BYTES: u64 = MIB;

/// Longest stand-in for a kernel, in bytes.
const MOST_FILLER: u64 = 120_000;

/// Space behind META for a small STATE and a small EPHEMERAL.
pub(super) const LITTLE_ROOM: u64 = 2 * MIB;

/// Most files of others in the directory of the UKIs.
const MOST_OTHERS: u64 = 24;

/// What differs between two disks with the same history.
#[derive(Debug, Clone, Copy)]
pub struct Variant<'l> {
    /// 512 or 4096.
    pub sector_bytes: u32,
    /// From this come the length of the UKIs, the files of others, values and GUIDs.
    pub seed: u64,
    /// The boot loader.
    pub loader: &'l [u8],
    /// GRUB, for disks that start without UEFI.
    pub grub: Option<&'l Parts>,
    /// Space behind META.
    pub room_bytes: u64,
}

impl<'l> Variant<'l> {
    /// Disks with little room behind META.
    #[must_use]
    pub const fn new(sector_bytes: u32, seed: u64, loader: &'l [u8]) -> Self {
        Self { sector_bytes, seed, loader, grub: None, room_bytes: LITTLE_ROOM }
    }

    /// Numbers for one purpose.
    pub(super) fn numbers(&self, purpose: u64) -> Numbers {
        Numbers::new(self.seed << 8 | purpose)
    }

    /// A system of this version.
    #[must_use]
    pub fn system(&self, version: &str) -> System {
        let filler = self.numbers(1).below(MOST_FILLER);
        System::new(version, usize::try_from(filler).unwrap_or(0))
    }

    /// FAT32 has a least number of clusters, and none smaller than a sector.
    #[must_use]
    pub fn efi_bytes(&self) -> u64 {
        if self.sector_bytes == 512 { 34 * MIB } else { 260 * MIB }
    }

    /// Tables, ESP, two slots, META, and the space behind.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        let bios_bytes = self.grub.map_or(0, |_| BIOS_BYTES);
        self.efi_bytes() + bios_bytes + 2 * ROOT_BYTES + MIB + self.room_bytes + 2 * ALIGNMENT_BYTES
    }

    /// A disk of zeros.
    #[must_use]
    pub fn blank(&self) -> Memory {
        Memory::new(self.disk_bytes(), self.sector_bytes)
    }

    /// The boot loader's files.
    #[must_use]
    pub fn loader_files(&self) -> [fat::File<'_>; 2] {
        [
            fat::File { path: "EFI/BOOT/BOOTX64.EFI", content: self.loader },
            fat::File { path: "loader/loader.conf", content: b"timeout 0\n" },
        ]
    }

    /// How a system is installed to such a disk.
    #[must_use]
    pub fn spec<'a>(&self, system: &'a System, loader: &'a [fat::File<'a>], wipe: bool) -> Spec<'a>
    where
        'l: 'a,
    {
        let mut seed = [u8::from(wipe); 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        let spec = Spec::new(system.new_system(), loader, seed);
        Spec { grub: self.grub, efi_bytes: self.efi_bytes(), root_bytes: ROOT_BYTES, wipe, ..spec }
    }
}

/// Who the disk is, for plans.
pub(super) fn identity() -> Identity {
    Identity { path: "the disk".into(), model: String::new(), serial: String::new() }
}

/// An installed disk and what runs from it.
#[derive(Debug, Clone)]
pub struct Node {
    /// The disk.
    pub disk: Memory,
    /// Its table.
    pub table: Table,
    /// What runs.
    pub running: Running,
}

impl Node {
    /// A node with `system` in slot A, installed to a blank disk, with STATE, EPHEMERAL, values in META and files of
    /// others on the ESP.
    pub fn installed(variant: Variant<'_>, system: &System) -> Result<Self, Fault> {
        let mut node = Self::fresh(variant, system)?;
        node.add_partitions(variant)?;
        node.fill(variant)?;
        Ok(node)
    }

    /// The same before its first boot: no STATE, no EPHEMERAL, nothing in META.
    pub fn fresh(variant: Variant<'_>, system: &System) -> Result<Self, Fault> {
        Self::fresh_with(variant, system, &variant.loader_files())
    }

    /// The same with these files beside the UKI.
    pub(crate) fn fresh_with(
        variant: Variant<'_>,
        system: &System,
        loader: &[fat::File<'_>],
    ) -> Result<Self, Fault> {
        let mut disk = variant.blank();
        let spec = variant.spec(system, loader, false);
        let plan = install::plan(&mut disk, identity(), &spec)?;
        install::apply(&mut disk, &plan, &spec, &mut system.source(), &mut silent)?;
        let running = Running { slot: Slot::A, entry: Entry { generation: 1, trial: None } };
        Ok(Self { disk, table: plan.table, running })
    }

    /// The disk with a device that sees what is done to it in the disk's place.
    pub fn on<'d, D: BlockDevice>(&self, device: &'d mut D) -> Installed<'d, D> {
        Installed { disk: device, table: self.table.clone() }
    }

    /// The node after an upgrade to `system`, started but not kept.
    pub fn on_trial(self, system: &System) -> Result<Self, Fault> {
        self.upgrade_only(system)?.count_start()
    }

    /// The node after an upgrade to `system` that was not started yet.
    pub fn upgrade_only(mut self, system: &System) -> Result<Self, Fault> {
        let mut source = system.source();
        let mut source = |layer: &Layer| -> Result<Box<dyn Read>, crate::Error> { source(layer) };
        let mut disk = self.disk.clone();
        let running = self.running;
        let entry = self.on(&mut disk).upgrade(running, system.new_system(), &mut source, &mut silent)?;
        self.disk = disk;
        self.running = Running { slot: running.slot.other(), entry };
        Ok(self)
    }

    /// The node after the loader has counted one more start of the system on trial.
    pub fn count_start(mut self) -> Result<Self, Fault> {
        if self.table.by_name("BIOS").is_some() {
            self.running.entry = bios::count(&mut self)?;
            return Ok(self);
        }
        let started = self.running.entry.started();
        let (start, length) = place(&self.table, "EFI")?;
        Esp::new(&mut self.disk, start, length).rename(self.running.entry, started)?;
        self.running.entry = started;
        Ok(self)
    }

    /// The node after an upgrade to `system` that was kept.
    pub fn upgraded(self, system: &System) -> Result<Self, Fault> {
        let mut node = self.on_trial(system)?;
        let mut disk = node.disk.clone();
        node.running.entry = node.on(&mut disk).bless(node.running.entry)?;
        node.disk = disk;
        Ok(node)
    }

    /// The node after its upgrade to `system` was tried as often as it may be: the old system runs again.
    pub fn fallen_back(self, system: &System) -> Result<Self, Fault> {
        let before = self.running;
        let mut node = self.on_trial(system)?;
        while !node.running.entry.is_exhausted() {
            node = node.count_start()?;
        }
        node.running = before;
        Ok(node)
    }

    /// Appends STATE and EPHEMERAL of 1 MiB each, with something in them.
    fn add_partitions(&mut self, variant: Variant<'_>) -> Result<(), Fault> {
        let mut numbers = variant.numbers(2);
        for name in ["STATE", "EPHEMERAL"] {
            let partition = self.next_partition(name, &mut numbers);
            let at = self.table.offset_bytes(&partition);
            self.table.partitions.push(partition);
            self.disk.write_at(at, &numbers.bytes(8192))?;
        }
        self.write_table()
    }

    /// Writes the table that the node has here to its disk.
    pub(super) fn write_table(&mut self) -> Result<(), Fault> {
        let steps = gpt::read(&mut self.disk, self.table.geometry)?.change_to(&self.table)?;
        Ok(apply(&mut self.disk, 0, &steps)?)
    }

    /// A partition of 1 MiB behind the last one.
    pub(super) fn next_partition(&self, name: &str, numbers: &mut Numbers) -> Partition {
        let mut seed = [0; 32];
        seed.copy_from_slice(&numbers.bytes(32));
        let request = partition(&seed, name, gpt::types::LINUX, MIB);
        let last = self.table.partitions.iter().max_by_key(|partition| partition.last_lba);
        let (first_lba, number) = last.map_or((2048, 1), |last| (last.last_lba + 1, last.number + 1));
        let sectors = MIB / u64::from(self.table.geometry.sector_bytes);
        request.placed(number, first_lba, sectors)
    }

    /// Changes a bit of the primary table's entries.
    pub(super) fn damage_primary(&mut self, variant: Variant<'_>) -> Result<(), Fault> {
        let at = u64::from(variant.sector_bytes) * 2 + variant.numbers(7).below(400);
        let mut byte = [0];
        ondisk::ReadAt::read_at(&mut self.disk, at, &mut byte)?;
        Ok(self.disk.write_at(at, &byte.map(|byte| byte ^ 1))?)
    }

    /// Puts values into META, and files of others and holes between them onto the ESP.
    fn fill(&mut self, variant: Variant<'_>) -> Result<(), Fault> {
        let mut numbers = variant.numbers(3);
        let (start, length) = place(&self.table, "META")?;
        let mut part = Part::new(&mut self.disk, start, length);
        let values = values(&mut numbers)?;
        let steps = meta::read(&mut part).change_to(&values);
        apply(&mut part, 0, &steps)?;

        let count = numbers.below(MOST_OTHERS);
        let mut others = Vec::new();
        for number in 0..count {
            let long = "x".repeat(usize::try_from(numbers.below(40))?);
            let path = format!("{DIRECTORY}/other-{number}{long}.conf");
            let length = usize::try_from(1 + numbers.below(3000))?;
            let content = vec![b'o'; length];
            self.change_esp(|esp| esp.add(&path, &content))?;
            others.push(path);
        }
        for path in others.iter().filter(|_| numbers.below(3) == 0) {
            self.change_esp(|esp| esp.remove(path))?;
        }
        Ok(())
    }

    /// Changes the ESP as `steps` says.
    fn change_esp<'c>(
        &mut self,
        steps: impl FnOnce(&mut fat::Reader<Part<'_, Memory>>) -> Result<Vec<Step<'c>>, fat::Error>,
    ) -> Result<(), Fault> {
        let (start, length) = place(&self.table, "EFI")?;
        let steps = steps(&mut fat::Reader::open(Part::new(&mut self.disk, start, length))?)?;
        Ok(apply(&mut self.disk, start, &steps)?)
    }

    /// Where a partition lies.
    pub fn range(&self, name: &str) -> Result<std::ops::Range<u64>, Fault> {
        let (start, length) = model::place(&self.table, name)?;
        Ok(start..start + length)
    }
}

/// Some values, one in two a long one.
pub(super) fn values(numbers: &mut Numbers) -> Result<meta::Meta, Fault> {
    let mut values = meta::Meta::default();
    for _ in 0..=numbers.below(4) {
        let tag = 6 + u32::try_from(numbers.below(12))?;
        let most = if numbers.below(2) == 0 { 100_000 } else { 300 };
        let length = usize::try_from(numbers.below(most))?;
        values.set(tag, &numbers.bytes(length))?;
    }
    Ok(values)
}
