//! The judge: what firmware, systemd-boot and init make of a disk.
//!
//! Owns: small systems to install, and [`Judge::start`], the model of a start: table, ESP, the entry that sorts first, its
//! manifest, the first slot whose layers have the manifest's root hashes, and whether all of them is there.
//! Does not: know operations; that the model chooses the entry that the real loader chooses is checked in qemu-tests.
//! Fails by: the reason why nothing starts.

use std::collections::HashMap;
use std::fmt;

use ondisk::fat::Reader;
use ondisk::gpt::{self, Geometry, Table};
use ondisk::manifest::{FORMAT, Layer, RootManifest};
use ondisk::verity::FANOUT;
use ondisk::{Digest, ReadAt as _};

use super::Numbers;
use super::payload;
use crate::device::{BlockDevice as _, Memory, Part};
use crate::entries::{DIRECTORY, Entry, chosen};
use crate::esp::Esp;
use crate::grub;
use crate::upgrade::{NewSystem, Slot};
use crate::{silent, slot};

/// Blocks of a system's one layer: enough for two leaves in its hash tree, which lie behind its topmost block.
const LAYER_BLOCKS: usize = FANOUT + 1;

/// A system of one layer, its UKI, and the bytes of the layer.
#[derive(Debug, Clone)]
pub struct System {
    /// What it is.
    pub manifest: RootManifest,
    /// Its UKI, a [`payload`].
    pub uki: Vec<u8>,
    /// Its only layer with the hash tree.
    pub layer: Vec<u8>,
}

impl System {
    /// A system whose content follows from its version, with a UKI that is a little longer than `filler_bytes`.
    #[must_use]
    pub fn new(version: &str, filler_bytes: usize) -> Self {
        let digest = Digest::sha256(&[version.as_bytes()]);
        let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
        let mut numbers = Numbers::new(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        let mut layer = numbers.bytes(LAYER_BLOCKS * 4096);
        let mut builder = ondisk::verity::TreeBuilder::new(digest);
        builder.push(&layer);
        let tree = builder.finish().expect("invariant: whole blocks were pushed");
        let described = Layer {
            name: "base".into(),
            version: version.into(),
            offset: 0,
            data_bytes: layer.len() as u64,
            hash_offset: layer.len() as u64,
            hash_bytes: tree.bytes.len() as u64,
            root_hash: tree.root,
            salt: digest,
            kernel_release: None,
        };
        layer.extend(tree.bytes);
        let manifest = RootManifest { format: FORMAT, version: version.into(), layers: vec![described] };
        let filler = numbers.bytes(filler_bytes.max(1));
        let uki = payload::uki(version, manifest.to_json().as_bytes(), &filler);
        Self { manifest, uki, layer }
    }

    /// As the installer takes it.
    #[must_use]
    pub fn new_system(&self) -> NewSystem<'_> {
        NewSystem { uki: &self.uki, manifest: &self.manifest }
    }

    /// Where its layer comes from.
    pub fn source(&self) -> impl FnMut(&Layer) -> Result<Box<dyn std::io::Read>, crate::Error> + '_ {
        |_| Ok(Box::new(std::io::Cursor::new(self.layer.clone())))
    }
}

/// What a disk starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The version of its manifest.
    pub version: String,
    /// Where its layers lie.
    pub slot: Slot,
    /// Its entry, as named before the loader counts the start.
    pub entry: Entry,
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} by {}", self.version, self.slot.partition(), self.entry)
    }
}

/// Starts disks, and remembers which slot contents are good.
#[derive(Debug, Default)]
pub struct Judge {
    /// UKIs that exist, with their manifests: another content on an ESP is a damaged one.
    known: Vec<(Vec<u8>, RootManifest)>,
    /// By a slot's content and the manifest it is held against: whether they belong together.
    verdicts: HashMap<Digest, bool>,
}

impl Judge {
    /// A judge of disks with these systems.
    #[must_use]
    pub fn new(systems: &[&System]) -> Self {
        let known = systems.iter().map(|system| (system.uki.clone(), system.manifest.clone())).collect();
        Self { known, verdicts: HashMap::new() }
    }

    /// What a disk starts. `Err` says why it does not.
    pub fn start(&mut self, disk: &mut Memory) -> Result<Started, String> {
        let table = table(disk)?;
        let (start, length) = place(&table, "EFI")?;
        let mut esp = Esp::new(disk, start, length);
        let entry = chosen(&esp.entries().map_err(text)?).ok_or("the ESP has no entry")?;
        let uki = esp.read(entry).map_err(text)?;
        let script = esp.script(entry).map_err(text)?;
        let known = self.known.iter().find(|(known, _)| *known == uki);
        let manifest = known.ok_or_else(|| format!("{entry} is damaged"))?.1.clone();
        if script.is_some_and(|script| grub::script(&uki).is_ok_and(|wanted| wanted.as_bytes() != script)) {
            return Err(format!("the script of {entry} is damaged"));
        }
        for slot in [Slot::A, Slot::B] {
            let (start, length) = place(&table, slot.partition())?;
            if !slot::is_known(&mut Part::new(disk, start, length), &manifest) {
                continue;
            }
            if self.holds(disk, &table, slot, &manifest)? {
                return Ok(Started { version: manifest.version, slot, entry });
            }
            let (version, slot) = (manifest.version, slot.partition());
            return Err(format!("{entry}: {slot} is taken for that of {version}, and is damaged"));
        }
        Err(format!("{entry}: no slot has the layers of {}", manifest.version))
    }

    /// Whether a slot has the layers of a manifest.
    fn holds(
        &mut self,
        disk: &mut Memory,
        table: &Table,
        slot: Slot,
        manifest: &RootManifest,
    ) -> Result<bool, String> {
        let (start, length) = place(table, slot.partition())?;
        let mut part = Part::new(disk, start, length);
        let bytes = usize::try_from(manifest.slot_bytes()).map_err(text)?;
        let mut content = vec![0; bytes];
        if part.read_at(0, &mut content).is_err() {
            return Ok(false);
        }
        let key = Digest::sha256(&[manifest.to_json().as_bytes(), &content]);
        let verify = || slot::verify(&mut part, manifest, &mut silent).is_ok();
        Ok(*self.verdicts.entry(key).or_insert_with(verify))
    }
}

/// The table that firmware and kernel take.
pub fn table(disk: &mut Memory) -> Result<Table, String> {
    let geometry = Geometry::new(disk.sector_bytes(), disk.bytes()).map_err(text)?;
    Ok(gpt::read(disk, geometry).map_err(text)?.table)
}

/// Where a partition lies: start and length in bytes.
pub fn place(table: &Table, name: &str) -> Result<(u64, u64), String> {
    let partition = table.by_name(name).ok_or_else(|| format!("there is no partition {name}"))?;
    Ok((table.offset_bytes(partition), table.size_bytes(partition)))
}

/// Whether the next change of the ESP can be made: no chain is broken or crosses another, every file can be read.
pub(super) fn esp_is_sound(disk: &mut Memory) -> Result<(), String> {
    let table = table(disk)?;
    let (start, length) = place(&table, "EFI")?;
    let mut esp = Esp::new(&mut *disk, start, length);
    for entry in esp.entries().map_err(text)? {
        esp.read(entry).map_err(|error| format!("{entry} cannot be read: {error}"))?;
        esp.script(entry).map_err(|error| format!("{entry} has no script for GRUB: {error}"))?;
    }
    // Nothing is written: these are the steps that would be.
    let next = Reader::open(Part::new(disk, start, length))
        .and_then(|mut reader| reader.add(&format!("{DIRECTORY}/billet-999999.efi"), b"next").map(drop));
    next.map_err(|error| format!("the ESP cannot be changed any more: {error}"))
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}
