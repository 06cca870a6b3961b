//! Disk images and config volumes, as sparse files.
//!
//! Owns: order of the partitions of an image, what goes into each, GUIDs made from the content.
//! Does not: write to devices; make STATE and EPHEMERAL, which the node makes on its first boot.
//! Order: partition contents, then the partition table: a file cut short has none.
//! Source: docs/formats/disk.md.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ondisk::gpt::{ALIGNMENT_BYTES, Geometry, Guid, Request, Size, Table, lay_out, types};
use ondisk::manifest::RootManifest;
use ondisk::{Digest, Extent, fat};

use crate::layout::{EFI_BYTES, META_BYTES, ROOT_BYTES, partition};
use crate::output::{Output, write_sparse};
use crate::{Error, Progress};

/// Size of a config volume: FAT32 has no smaller one above 33 MiB, and it is sparse.
const CONFIG_VOLUME_BYTES: u64 = 40 << 20;

/// How much of a layer is copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// What a disk image holds.
#[derive(Debug, Clone, Copy)]
pub struct Spec<'a> {
    /// 512 or 4096.
    pub sector_bytes: u32,
    /// Size of the EFI system partition.
    pub efi_bytes: u64,
    /// Files of the EFI system partition.
    pub efi_files: &'a [fat::File<'a>],
    /// Size of each root slot.
    pub root_bytes: u64,
    /// The root in slot A.
    pub manifest: &'a RootManifest,
    /// The directory of its layer files.
    pub layers: &'a Path,
    /// Whether there is a second, empty slot.
    pub slot_b: bool,
}

impl<'a> Spec<'a> {
    /// An image with default sizes, 512-byte sectors and both slots.
    #[must_use]
    pub fn new(manifest: &'a RootManifest, layers: &'a Path, efi_files: &'a [fat::File<'a>]) -> Self {
        Self {
            sector_bytes: 512,
            efi_bytes: EFI_BYTES,
            efi_files,
            root_bytes: ROOT_BYTES,
            manifest,
            layers,
            slot_b: true,
        }
    }

    /// Everything that the GUIDs are made from: the root, the boot files, the shape.
    fn seed(&self) -> Digest {
        let shape = format!("{} {} {} {}", self.sector_bytes, self.efi_bytes, self.root_bytes, self.slot_b);
        let mut digest = Digest::sha256(&[shape.as_bytes(), self.manifest.to_json().as_bytes()]);
        for file in self.efi_files {
            let content = Digest::sha256(&[file.content]);
            digest = Digest::sha256(&[digest.as_bytes(), file.path.as_bytes(), content.as_bytes()]);
        }
        digest
    }

    fn requests(&self, seed: &Digest) -> Vec<Request> {
        let request = |name, type_guid, bytes| partition(seed.as_bytes(), name, type_guid, bytes);
        let mut requests = vec![
            request("EFI", types::EFI_SYSTEM, self.efi_bytes),
            request("ROOT-A", types::LINUX, self.root_bytes),
        ];
        if self.slot_b {
            requests.push(request("ROOT-B", types::LINUX, self.root_bytes));
        }
        requests.push(request("META", types::LINUX, META_BYTES));
        requests
    }
}

/// Decides where everything goes. The disk is as long as it must be.
pub fn plan(spec: &Spec<'_>) -> Result<Table, Error> {
    let needed_bytes = spec.manifest.slot_bytes();
    if needed_bytes > spec.root_bytes {
        return Err(Error::SlotTooSmall { needed_bytes, slot_bytes: spec.root_bytes });
    }
    let seed = spec.seed();
    let requests = spec.requests(&seed);
    let sizes = requests.iter().map(|request| match request.size {
        Size::Bytes(bytes) => bytes.next_multiple_of(ALIGNMENT_BYTES),
        Size::Rest => 0,
    });
    // A mebibyte for the table before the partitions and one for its backup behind them.
    let disk_bytes = sizes.sum::<u64>() + 2 * ALIGNMENT_BYTES;
    let geometry = Geometry::new(spec.sector_bytes, disk_bytes)?;
    Ok(lay_out(geometry, Guid::from_seed(seed.as_bytes()), &requests)?)
}

/// Writes the image as a sparse file and returns its partition table.
pub fn write(path: &Path, spec: &Spec<'_>, progress: &mut dyn FnMut(Progress)) -> Result<Table, Error> {
    let table = plan(spec)?;
    let mut output = Output::create(path)?;
    let bytes = table.geometry.sectors * u64::from(table.geometry.sector_bytes);
    output.file.set_len(bytes).map_err(Error::write(path))?;
    let seed = spec.seed();
    let efi = fat::Volume {
        label: "EFI",
        volume_id: volume_id(seed.as_bytes()),
        sector_bytes: spec.sector_bytes,
        bytes: spec.efi_bytes,
    };
    let start = offset_of(&table, "EFI");
    let extents = fat::format(&efi, spec.efi_files)?.into_iter().map(|extent| extent.shifted(start));
    write_extents(&mut output.file, extents, path)?;
    write_layers(&mut output.file, &table, spec, path, progress)?;
    write_extents(&mut output.file, table.extents()?, path)?;
    output.keep(path)?;
    Ok(table)
}

fn offset_of(table: &Table, name: &str) -> u64 {
    table.by_name(name).map_or(0, |partition| table.offset_bytes(partition))
}

/// A number for a FAT volume from the start of a hash.
fn volume_id(seed: &[u8; 32]) -> u32 {
    let [a, b, c, d, ..] = *seed;
    u32::from_be_bytes([a, b, c, d])
}

fn write_extents<'e>(
    file: &mut File,
    extents: impl IntoIterator<Item = Extent<'e>>,
    path: &Path,
) -> Result<(), Error> {
    for extent in extents {
        write_sparse(file, extent.offset, &extent.bytes).map_err(Error::write(path))?;
    }
    Ok(())
}

fn write_layers(
    file: &mut File,
    table: &Table,
    spec: &Spec<'_>,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let slot = offset_of(table, "ROOT-A");
    let total_bytes = spec.manifest.layers.iter().map(ondisk::manifest::Layer::total_bytes).sum();
    let mut done_bytes = 0;
    for layer in &spec.manifest.layers {
        let source_path = spec.layers.join(layer.file_name());
        let mut source = File::open(&source_path).map_err(Error::read(&source_path))?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = 0;
        loop {
            let count = source.read(&mut chunk).map_err(Error::read(&source_path))?;
            if count == 0 {
                break;
            }
            let offset = slot + layer.offset + at;
            write_sparse(file, offset, chunk.get(..count).unwrap_or(&[])).map_err(Error::write(path))?;
            at += count as u64;
            done_bytes += count as u64;
            progress(Progress { step: "write", done_bytes, total_bytes });
        }
        if at != layer.total_bytes() {
            let reason = "the file's length is not that of the layer".into();
            return Err(Error::WrongLayer { path: source_path, reason });
        }
    }
    Ok(())
}

/// Writes a FAT32 image with this label and these files: the volume on which a node finds its config.
pub fn config_volume(path: &Path, label: &str, files: &[fat::File<'_>]) -> Result<(), Error> {
    let mut seed = Digest::sha256(&[label.as_bytes()]);
    for file in files {
        seed = Digest::sha256(&[seed.as_bytes(), file.path.as_bytes(), file.content]);
    }
    let volume = fat::Volume {
        label,
        volume_id: volume_id(seed.as_bytes()),
        sector_bytes: 512,
        bytes: CONFIG_VOLUME_BYTES,
    };
    let mut output = Output::create(path)?;
    output.file.set_len(CONFIG_VOLUME_BYTES).map_err(Error::write(path))?;
    write_extents(&mut output.file, fat::format(&volume, files)?, path)?;
    output.keep(path)
}
