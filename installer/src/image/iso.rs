//! An image for CD drives and sticks, that UEFI starts: the UKI on a FAT volume, the layers as files.
//!
//! Owns: what is on it, and the two tables that lead to the FAT volume: El Torito's for CD drives, a GPT in the first sectors
//! for sticks.
//! Source: docs/formats/iso.md.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ondisk::gpt::{Geometry, Guid, Table, types};
use ondisk::manifest::LAYER_DIR;
use ondisk::{Digest, bundle, fat, iso9660};

use super::boot_files::BootFiles;
use crate::layout::partition;
use crate::output::{Output, write_sparse};
use crate::source::Source;
use crate::{Error, Progress};

/// What init looks for.
pub const LABEL: &str = "BILLET";

/// Sectors of sticks: the table in the first sectors is for these.
const STICK_SECTOR_BYTES: u32 = 512;

/// FAT32 has no smaller volumes above 33 MiB.
const LEAST_BOOT_BYTES: u64 = 36 << 20;

/// For the volume's own tables and directories.
const SPARE_BYTES: u64 = 2 << 20;

/// Kept free for configs that are added later: the old bundle and the new one lie there side by side.
const CONFIG_BYTES: u64 = 2 * bundle::MAX_BYTES as u64;

/// How much of a layer is copied at once.
const CHUNK_BYTES: usize = 1 << 20;

pub(super) fn write(source: &Source, path: &Path, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
    let esp = BootFiles::new(source)?;
    // With a signed image the loader is there too: it enrols the key, and an installation needs it.
    let files = if source.is_signed() { esp.with_loader() } else { esp.without_loader() };
    let seed = Digest::sha256(&[
        b"iso 1",
        source.system.manifest.to_json().as_bytes(),
        Digest::sha256(&[&esp.uki]).as_bytes(),
    ]);
    let files_bytes = files.iter().map(|file| file.content.len() as u64).sum::<u64>();
    let volume = boot_volume(&seed, files_bytes + if esp.configs.is_some() { CONFIG_BYTES } else { 0 });
    let layers = &source.system.manifest.layers;
    let directory = LAYER_DIR.trim_start_matches('/');
    let names: Vec<String> =
        layers.iter().map(|layer| format!("{directory}/{}", layer.file_name())).collect();
    let described: Vec<iso9660::File<'_>> = names
        .iter()
        .zip(layers)
        .map(|(path, layer)| iso9660::File { path, bytes: layer.total_bytes() })
        .collect();
    let layout =
        iso9660::lay_out(&iso9660::Image { label: LABEL, files: &described, boot_bytes: volume.bytes })?;
    let table = table(&seed, &layout, volume.bytes)?;

    let mut output = Output::create(path)?;
    output.file.set_len(layout.bytes).map_err(Error::write(path))?;
    let boot = fat::format(&volume, &files)?.into_iter().map(|extent| extent.shifted(layout.boot));
    for extent in boot.chain(layout.extents.clone()) {
        write_sparse(&mut output.file, extent.offset, &extent.bytes).map_err(Error::write(path))?;
    }
    let total_bytes = layers.iter().map(ondisk::manifest::Layer::total_bytes).sum();
    let mut done_bytes = 0;
    for (layer, at) in layers.iter().zip(&layout.files) {
        let file = source.layers.join(layer.file_name());
        copy(&file, layer.total_bytes(), &mut output.file, *at, path, &mut |bytes| {
            done_bytes += bytes;
            progress(Progress { step: "write", done_bytes, total_bytes });
        })?;
    }
    for extent in table.extents()? {
        write_sparse(&mut output.file, extent.offset, &extent.bytes).map_err(Error::write(path))?;
    }
    output.keep(path)
}

fn boot_volume(seed: &Digest, files_bytes: u64) -> fat::Volume<'static> {
    let [a, b, c, d, ..] = *seed.as_bytes();
    let bytes = (files_bytes + SPARE_BYTES).next_multiple_of(1 << 20).max(LEAST_BOOT_BYTES);
    let volume_id = u32::from_be_bytes([a, b, c, d]);
    fat::Volume { label: "EFI", volume_id, sector_bytes: STICK_SECTOR_BYTES, bytes }
}

/// One partition, the FAT volume. The rest of a stick is found by its label.
fn table(seed: &Digest, layout: &iso9660::Layout, boot_bytes: u64) -> Result<Table, Error> {
    let sector = u64::from(STICK_SECTOR_BYTES);
    let request = partition(seed.as_bytes(), "EFI", types::EFI_SYSTEM, boot_bytes);
    Ok(Table {
        geometry: Geometry::new(STICK_SECTOR_BYTES, layout.bytes)?,
        disk_guid: Guid::from_seed(seed.as_bytes()),
        partitions: vec![request.placed(1, layout.boot / sector, boot_bytes / sector)],
    })
}

fn copy(
    from: &Path,
    bytes: u64,
    to: &mut File,
    mut at: u64,
    path: &Path,
    told: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    let mut file = File::open(from).map_err(Error::read(from))?;
    let (mut chunk, mut done) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let count = file.read(&mut chunk).map_err(Error::read(from))?;
        if count == 0 {
            break;
        }
        let count_bytes = count as u64;
        done += count_bytes;
        if done > bytes {
            break;
        }
        write_sparse(to, at, chunk.get(..count).unwrap_or(&[])).map_err(Error::write(path))?;
        at += count_bytes;
        told(count_bytes);
    }
    if done != bytes {
        let reason = "the file's length is not that of the layer".into();
        return Err(Error::WrongLayer { path: from.to_owned(), reason });
    }
    Ok(())
}
