//! A root slot: the layers of one system, raw, in a partition.
//!
//! Owns: the layers' places, writing them where their manifest says, and the proof that they are there.
//! Does not: choose the slot; touch a byte behind the last layer.
//! Order: write, flush, read back, compare with the manifest's hashes: what the kernel would refuse is found before
//! anything points to it.

use std::io::Read;

use ondisk::manifest::{FORMAT, Layer, RootManifest};
use ondisk::verity::TreeBuilder;

use crate::device::BlockDevice;
use crate::{Error, Progress};

/// How much is copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Where a layer's bytes come from: the file in an image, a layer of the running system, a registry's blob.
pub type Source<'s> = dyn FnMut(&Layer) -> Result<Box<dyn Read>, Error> + 's;

/// The manifest of a root of these layers, lowest first, one behind the other in a slot.
pub fn stack(version: &str, layers: impl IntoIterator<Item = Layer>) -> Result<RootManifest, Error> {
    let mut manifest = RootManifest { format: FORMAT, version: version.into(), layers: Vec::new() };
    let mut offset = 0;
    for mut layer in layers {
        layer.offset = offset;
        offset = layer.end();
        manifest.layers.push(layer);
    }
    manifest.check()?;
    Ok(manifest)
}

/// Writes all layers into a slot and proves that they are there.
pub fn write(
    slot: &mut dyn BlockDevice,
    manifest: &RootManifest,
    source: &mut Source<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    check_room(slot, manifest)?;
    let total_bytes = manifest.layers.iter().map(Layer::total_bytes).sum();
    let mut done_bytes = 0;
    for layer in &manifest.layers {
        let mut reader = source(layer)?;
        let mut wrote = |count: usize| {
            done_bytes += count as u64;
            progress(Progress { step: "write", done_bytes, total_bytes });
        };
        copy(slot, layer, &mut *reader, &mut wrote)?;
    }
    slot.flush()?;
    verify(slot, manifest, progress)
}

/// Whether the layers fit the slot.
pub fn check_room(slot: &dyn BlockDevice, manifest: &RootManifest) -> Result<(), Error> {
    let (needed_bytes, slot_bytes) = (manifest.slot_bytes(), slot.bytes());
    if needed_bytes > slot_bytes { Err(Error::SlotTooSmall { needed_bytes, slot_bytes }) } else { Ok(()) }
}

/// Copies exactly a layer's bytes; a source of another length is refused.
fn copy(
    slot: &mut dyn BlockDevice,
    layer: &Layer,
    source: &mut dyn Read,
    wrote: &mut dyn FnMut(usize),
) -> Result<(), Error> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        let room = usize::try_from(layer.total_bytes() - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let count = fill(source, chunk.get_mut(..room).unwrap_or(&mut []))
            .map_err(|source| Error::ReadLayer { layer: layer.name.clone(), source })?;
        if count == 0 {
            break;
        }
        slot.write_at(layer.offset + at, chunk.get(..count).unwrap_or(&[]))?;
        at += count as u64;
        wrote(count);
    }
    // The end of a source may be where it finds out that what it gave was wrong.
    let rest =
        fill(source, &mut [0]).map_err(|source| Error::ReadLayer { layer: layer.name.clone(), source })?;
    let longer = rest > 0;
    if at != layer.total_bytes() || longer {
        return Err(Error::BadLayer {
            layer: layer.name.clone(),
            reason: "is not as long as the manifest says",
        });
    }
    Ok(())
}

/// Reads until the buffer is full or the source ends.
fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads the layers of a slot back and compares data and hash trees with the manifest.
pub fn verify(
    slot: &mut dyn BlockDevice,
    manifest: &RootManifest,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let total_bytes = manifest.layers.iter().map(Layer::total_bytes).sum();
    let mut done_bytes = 0;
    for layer in &manifest.layers {
        let mut builder = TreeBuilder::new(layer.salt);
        let mut read = |bytes: &[u8]| {
            done_bytes += bytes.len() as u64;
            progress(Progress { step: "verify", done_bytes, total_bytes });
        };
        each_chunk(slot, layer.offset, layer.data_bytes, |bytes| {
            builder.push(bytes);
            read(bytes);
        })?;
        let tree = builder.finish()?;
        let mut stored = Vec::new();
        each_chunk(slot, layer.offset + layer.hash_offset, layer.hash_bytes, |bytes| {
            stored.extend_from_slice(bytes);
            read(bytes);
        })?;
        if tree.root != layer.root_hash || tree.bytes != stored {
            let reason = "reads back differently from what its root hash stands for: the disk, or what the layer was \
                          read from, is damaged";
            return Err(Error::BadLayer { layer: layer.name.clone(), reason });
        }
    }
    Ok(())
}

fn each_chunk(
    slot: &mut dyn BlockDevice,
    start: u64,
    length: u64,
    mut each: impl FnMut(&[u8]),
) -> Result<(), Error> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < length {
        let count = (length - at).min(CHUNK_BYTES as u64);
        // At most CHUNK_BYTES.
        let bytes = chunk.get_mut(..usize::try_from(count).unwrap_or(0)).unwrap_or(&mut []);
        slot.read_at(start + at, bytes)?;
        each(bytes);
        at += count;
    }
    Ok(())
}
