//! A root slot: the layers of one system, raw, in a partition.
//!
//! Owns: the layers' places, writing them where their manifest says, and the proof that they are there.
//! Does not: choose the slot; touch a byte behind the last layer.
//! Order: everything but the layers' topmost hash blocks, flush, read back, compare with the manifest's hashes: what the
//! kernel would refuse is found before anything points to it. Then the topmost blocks.
//!
//! init knows a layer by its topmost hash block, and takes the first slot that has those of its manifest. The slot that is
//! written may come before the one that runs and get the very same layers: one version is installed again, or with more
//! on top. So wherever a topmost block is, all of its layer must be.

use std::io::Read;

use ondisk::Digest;
use ondisk::manifest::{FORMAT, Layer, RootManifest};
use ondisk::verity::{BLOCK_BYTES, TreeBuilder};

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

/// A layer's topmost hash block, and where it belongs in the slot.
struct Top {
    offset: u64,
    block: [u8; BLOCK_BYTES],
}

/// Whether init takes a slot for that of this system.
pub fn is_known(slot: &mut dyn BlockDevice, manifest: &RootManifest) -> bool {
    manifest.layers.iter().all(|layer| has_top(slot, layer).unwrap_or(false))
}

fn has_top(slot: &mut dyn BlockDevice, layer: &Layer) -> Result<bool, Error> {
    let mut block = [0; BLOCK_BYTES];
    slot.read_at(layer.offset + layer.top_offset(), &mut block)?;
    Ok(Digest::sha256(&[layer.salt.as_bytes(), &block]) == layer.root_hash)
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
    let mut tops = Vec::new();
    for layer in &manifest.layers {
        let mut reader = source(layer)?;
        let mut wrote = |count: usize| {
            done_bytes += count as u64;
            progress(Progress { step: "write", done_bytes, total_bytes });
        };
        tops.push(copy(slot, layer, &mut *reader, &mut wrote)?);
    }
    slot.flush()?;
    verify_under(slot, manifest, &tops, progress)?;
    for top in &tops {
        slot.write_at(top.offset, &top.block)?;
    }
    slot.flush()?;
    for (layer, top) in manifest.layers.iter().zip(&tops) {
        let mut block = [0; BLOCK_BYTES];
        slot.read_at(top.offset, &mut block)?;
        if block != top.block {
            return Err(Error::BadLayer { layer: layer.name.clone(), reason: READ_BACK });
        }
    }
    Ok(())
}

/// Whether the layers fit the slot.
pub fn check_room(slot: &dyn BlockDevice, manifest: &RootManifest) -> Result<(), Error> {
    let (needed_bytes, slot_bytes) = (manifest.slot_bytes(), slot.bytes());
    if needed_bytes > slot_bytes { Err(Error::SlotTooSmall { needed_bytes, slot_bytes }) } else { Ok(()) }
}

/// Copies exactly a layer's bytes, with zeros in the place of the topmost hash block, which is returned; a source of
/// another length is refused.
fn copy(
    slot: &mut dyn BlockDevice,
    layer: &Layer,
    source: &mut dyn Read,
    wrote: &mut dyn FnMut(usize),
) -> Result<Top, Error> {
    let mut top = Top { offset: layer.offset + layer.top_offset(), block: [0; BLOCK_BYTES] };
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        let room = usize::try_from(layer.total_bytes() - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let count = fill(source, chunk.get_mut(..room).unwrap_or(&mut []))
            .map_err(|source| Error::ReadLayer { layer: layer.name.clone(), source })?;
        if count == 0 {
            break;
        }
        let bytes = chunk.get_mut(..count).unwrap_or(&mut []);
        // Whole blocks are read at once, so it lies in one piece.
        if let Some(block) = block_at(bytes, layer.offset + at, top.offset) {
            top.block.copy_from_slice(block);
            block.fill(0);
        }
        slot.write_at(layer.offset + at, bytes)?;
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
    Ok(top)
}

/// The block at `offset` of the slot, if all of it is in these bytes, which begin at `start`.
fn block_at(bytes: &mut [u8], start: u64, offset: u64) -> Option<&mut [u8]> {
    let at = usize::try_from(offset.checked_sub(start)?).ok()?;
    bytes.get_mut(at..at.checked_add(BLOCK_BYTES)?)
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

const READ_BACK: &str = "reads back differently from what its root hash stands for: the disk, or what the layer was \
                         read from, is damaged";

/// Reads the layers of a slot back and compares data and hash trees with the manifest.
pub fn verify(
    slot: &mut dyn BlockDevice,
    manifest: &RootManifest,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    verify_under(slot, manifest, &[], progress)
}

/// The same with these blocks in their places, where they are not yet.
fn verify_under(
    slot: &mut dyn BlockDevice,
    manifest: &RootManifest,
    tops: &[Top],
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
        each_chunk(slot, layer.offset, layer.data_bytes, tops, |bytes| {
            builder.push(bytes);
            read(bytes);
        })?;
        let tree = builder.finish()?;
        let mut stored = Vec::new();
        each_chunk(slot, layer.offset + layer.hash_offset, layer.hash_bytes, tops, |bytes| {
            stored.extend_from_slice(bytes);
            read(bytes);
        })?;
        if tree.root != layer.root_hash || tree.bytes != stored {
            return Err(Error::BadLayer { layer: layer.name.clone(), reason: READ_BACK });
        }
    }
    Ok(())
}

fn each_chunk(
    slot: &mut dyn BlockDevice,
    start: u64,
    length: u64,
    tops: &[Top],
    mut each: impl FnMut(&[u8]),
) -> Result<(), Error> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < length {
        let count = (length - at).min(CHUNK_BYTES as u64);
        // At most CHUNK_BYTES.
        let bytes = chunk.get_mut(..usize::try_from(count).unwrap_or(0)).unwrap_or(&mut []);
        slot.read_at(start + at, bytes)?;
        for top in tops {
            if let Some(block) = block_at(bytes, start + at, top.offset) {
                block.copy_from_slice(&top.block);
            }
        }
        each(bytes);
        at += count;
    }
    Ok(())
}
