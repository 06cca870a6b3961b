//! The initramfs: a compressed segment with init, and the layers uncompressed behind it.
//!
//! Owns: cpio segments of a tree, their compression, their alignment, their order.
//! Order: what must be unpacked by code comes first; a later entry replaces an earlier one of the same name, so a
//! customisation is one more segment.
//! Source: docs/formats/initramfs.md.

use std::fs;
#[cfg(feature = "image")]
use std::path::Path;

use ondisk::cpio::{self, ALIGNMENT, Kind, Writer};
#[cfg(feature = "image")]
use ondisk::manifest::{LAYER_DIR, RootManifest};

use crate::Error;
#[cfg(feature = "image")]
use crate::output;
use crate::tree::{Entry, Node, Tree};

/// zstd level of a release: 19 is the highest whose window (8 MiB) costs the kernel no extra memory.
#[cfg(feature = "image")]
pub const ZSTD_LEVEL: i32 = 19;

/// A cpio segment of the tree.
pub fn segment(tree: &Tree) -> Result<Vec<u8>, Error> {
    let mut writer = Writer::new();
    for (path, entry) in tree.iter() {
        push(&mut writer, path, entry)?;
    }
    Ok(writer.finish())
}

/// Segments one after the other, each from a multiple of four bytes.
#[must_use]
pub fn join(segments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in segments {
        bytes.extend_from_slice(segment);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
    bytes
}

/// A cpio segment of the tree, compressed with zstd and padded so that another segment can follow.
#[cfg(feature = "image")]
pub fn compressed_segment(tree: &Tree, level: i32) -> Result<Vec<u8>, Error> {
    let mut bytes = zstd::bulk::compress(&segment(tree)?, level).map_err(Error::Compress)?;
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    Ok(bytes)
}

/// An uncompressed segment with the manifest's layer files, read from a directory.
#[cfg(feature = "image")]
pub fn layers_segment(manifest: &RootManifest, directory: &Path) -> Result<Vec<u8>, Error> {
    let mut tree = Tree::new();
    for layer in &manifest.layers {
        let name = layer.file_name();
        let path = format!("{}/{name}", LAYER_DIR.trim_start_matches('/'));
        tree.file(&path, 0o444, directory.join(&name))?;
    }
    segment(&tree)
}

/// Writes segments one after the other to a file, each from a multiple of four bytes.
#[cfg(feature = "image")]
pub fn write(path: &Path, segments: &[&[u8]]) -> Result<(), Error> {
    output::write_file(path, &[&join(segments)])
}

fn push(writer: &mut Writer, path: &str, entry: &Entry) -> Result<(), Error> {
    let content;
    let kind = match &entry.node {
        Node::Dir => Kind::Dir,
        Node::Bytes(bytes) => Kind::File(bytes),
        Node::File(host) => {
            content = fs::read(host).map_err(Error::read(host))?;
            Kind::File(&content)
        }
        Node::Symlink(target) => Kind::Symlink(target),
        Node::CharDevice(major, minor) => Kind::CharDevice(*major, *minor),
        Node::BlockDevice(major, minor) => Kind::BlockDevice(*major, *minor),
    };
    let entry = cpio::Entry { name: path, mode: entry.mode, uid: entry.uid, gid: entry.gid, kind };
    Ok(writer.push(&entry)?)
}
