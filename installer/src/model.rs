//! For tests: small systems, and what a disk starts.
//!
//! The judge starts a disk as firmware, systemd-boot and init do: table, ESP, the entry that sorts first, its manifest,
//! the slot whose layers have the manifest's root hashes.

#![allow(clippy::missing_docs_in_private_items, reason = "for tests")]

use std::collections::HashMap;

use ondisk::Digest;
use ondisk::gpt::{self, Geometry, Guid, Partition, Table, types};
use ondisk::manifest::{Layer, RootManifest};

use crate::Error;
use crate::device::{BlockDevice, Memory, Part, Recorder};
use crate::entries::{Entry, chosen};
use crate::esp::Esp;
use crate::host::Host;
use crate::slot::stack;
use crate::upgrade::Slot;
use crate::{silent, slot};

/// By a slot's content and the manifest it is held against: whether they belong together.
pub(crate) type Verdicts = HashMap<Digest, bool>;

/// A system of one layer, its UKI, and the bytes of the layer.
pub(crate) struct System {
    pub manifest: RootManifest,
    pub uki: Vec<u8>,
    pub layer: Vec<u8>,
}

pub(crate) fn system(version: &str) -> System {
    let data = format!("{version} ").repeat(40_000);
    let mut layer = data.into_bytes();
    layer.resize(layer.len().next_multiple_of(4096), 0);
    let salt = Digest::sha256(&[version.as_bytes()]);
    let mut builder = ondisk::verity::TreeBuilder::new(salt);
    builder.push(&layer);
    let tree = builder.finish().unwrap();
    let described = Layer {
        name: "base".into(),
        version: version.into(),
        offset: 0,
        data_bytes: layer.len() as u64,
        hash_offset: layer.len() as u64,
        hash_bytes: tree.bytes.len() as u64,
        root_hash: tree.root,
        salt,
        kernel_release: None,
    };
    layer.extend(tree.bytes);
    let manifest = stack(version, [described]).unwrap();
    // Of a UKI the judge needs the manifest only; the rest stands for kernel and initramfs.
    let mut uki = manifest.to_json().into_bytes();
    uki.resize(40_000, b'\n');
    System { manifest, uki, layer }
}

pub(crate) fn place(table: &Table, name: &str) -> (u64, u64) {
    let partition = table.by_name(name).unwrap();
    (table.offset_bytes(partition), table.size_bytes(partition))
}

/// An installed disk in memory, with a file system that is one region: whole or not.
pub(crate) struct MemoryHost {
    pub disk: Recorder,
}

/// What [`MemoryHost::format`] writes: a superblock and something behind it.
pub(crate) fn formatted(name: &str) -> Vec<u8> {
    let mut bytes = b"XFSB".to_vec();
    bytes.resize(108, 0);
    bytes.extend(format!("{name:\0<12}").as_bytes());
    bytes.resize(16 << 10, 0x5a);
    bytes
}

impl MemoryHost {
    pub(crate) fn new(disk: Memory) -> Self {
        Self { disk: Recorder::new(disk) }
    }

    fn part(&mut self, table: &Table, partition: &Partition) -> Box<dyn BlockDevice + '_> {
        let (start, length) = (table.offset_bytes(partition), table.size_bytes(partition));
        Box::new(Part::new(&mut self.disk, start, length))
    }
}

impl Host for MemoryHost {
    fn disk(&mut self) -> &mut dyn BlockDevice {
        &mut self.disk
    }

    fn open(&mut self, table: &Table, partition: &Partition) -> Result<Box<dyn BlockDevice + '_>, Error> {
        Ok(self.part(table, partition))
    }

    fn open_shared(
        &mut self,
        table: &Table,
        partition: &Partition,
    ) -> Result<Box<dyn BlockDevice + '_>, Error> {
        Ok(self.part(table, partition))
    }

    fn announce(&mut self, _table: &Table, _partition: &Partition) -> Result<(), Error> {
        Ok(())
    }

    fn format(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        let bytes = formatted(&partition.name);
        Ok(self.part(table, partition).write_at(0, &bytes)?)
    }
}

/// The table of a disk with boot partitions and META, as an image or an installation leaves it.
pub(crate) fn boot_table(bytes: u64, sector_bytes: u32) -> Table {
    let names = [("EFI", types::EFI_SYSTEM, 2), ("ROOT-A", types::LINUX, 2), ("ROOT-B", types::LINUX, 2)];
    let mut requests: Vec<_> =
        names.map(|(name, kind, size)| crate::layout::partition(&[7; 32], name, kind, size << 20)).into();
    requests.push(crate::layout::partition(&[7; 32], "META", types::LINUX, 1 << 20));
    gpt::lay_out(Geometry::new(sector_bytes, bytes).unwrap(), Guid::from_seed(b"disk"), &requests).unwrap()
}

/// A disk with that table on it.
pub(crate) fn boot_disk(bytes: u64, sector_bytes: u32) -> Memory {
    let mut disk = Memory::new(bytes, sector_bytes);
    for extent in boot_table(bytes, sector_bytes).extents().unwrap() {
        disk.write_at(extent.offset, &extent.bytes).unwrap();
    }
    disk
}

/// What a disk starts: version, slot, entry. `Err` says why it does not.
pub(crate) fn boot(disk: &mut Memory, verdicts: &mut Verdicts) -> Result<(String, Slot, Entry), String> {
    let geometry = Geometry::new(disk.sector_bytes(), disk.bytes()).unwrap();
    let table = gpt::read(disk, geometry).map_err(|e| e.to_string())?.table;
    let (start, length) = place(&table, "EFI");
    let mut esp = Esp::new(disk, start, length);
    let entry = chosen(&esp.entries().map_err(|e| e.to_string())?).ok_or("no entry")?;
    let uki = esp.read(entry).map_err(|e| e.to_string())?;
    let text = std::str::from_utf8(&uki).map_err(|e| e.to_string())?;
    let manifest = RootManifest::parse(text.trim_end().as_bytes()).map_err(|e| e.to_string())?;
    for slot in [Slot::A, Slot::B] {
        let (start, length) = place(&table, slot.partition());
        let mut part = Part::new(disk, start, length);
        let mut content = vec![0; usize::try_from(manifest.slot_bytes()).unwrap()];
        ondisk::ReadAt::read_at(&mut part, 0, &mut content).unwrap();
        let key = Digest::sha256(&[text.as_bytes(), &content]);
        let good =
            *verdicts.entry(key).or_insert_with(|| slot::verify(&mut part, &manifest, &mut silent).is_ok());
        if good {
            return Ok((manifest.version, slot, entry));
        }
    }
    Err(format!("{entry}: no slot has the layers of {}", manifest.version))
}
