//! Layer files: a squashfs image with its dm-verity hash tree behind it.
//!
//! Owns: making one from a tree, checking one against its description.
//! Order: squash, read back and compare, pad to 4096, salt from the image's hash, hash tree, rename to `<root hash>.layer`.
//! Source: docs/formats/layer.md.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use ondisk::Digest;
use ondisk::manifest::{BLOCK_BYTES, Layer};
use ondisk::verity::{Tree as HashTree, TreeBuilder};
use sha2::Digest as _;

use crate::output::Output;
use crate::tree::Tree;
use crate::{Error, Progress, squashfs};

pub use crate::slot::stack;

/// zstd level of a release: measured on the base layer, see docs/formats/layer.md.
pub const ZSTD_LEVEL: u32 = 15;

/// Bytes of a squashfs data block: measured, see docs/formats/layer.md.
pub const SQUASHFS_BLOCK_BYTES: u32 = 128 * 1024;

/// How much is read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// What a layer is called and how it is made.
#[derive(Debug, Clone, Copy)]
pub struct Spec<'a> {
    /// Its name, `base`.
    pub name: &'a str,
    /// The version of its content.
    pub version: &'a str,
    /// For a layer with modules: the `uname -r` they were built for.
    pub kernel_release: Option<&'a str>,
    /// zstd level, 1 to 22; [`ZSTD_LEVEL`] unless there is a reason.
    pub zstd_level: u32,
}

impl<'a> Spec<'a> {
    /// A layer without modules at the usual compression.
    #[must_use]
    pub fn new(name: &'a str, version: &'a str) -> Self {
        Self { name, version, kernel_release: None, zstd_level: ZSTD_LEVEL }
    }
}

/// Makes `<root hash>.layer` in the directory `into` and returns its description, placed at offset 0.
pub fn build(
    tree: &Tree,
    spec: &Spec<'_>,
    into: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Layer, Error> {
    let draft = into.join(format!("{}.layer", spec.name));
    let mut output = Output::create(&draft)?;
    squashfs::write(tree, spec.zstd_level, SQUASHFS_BLOCK_BYTES, &mut output.file, progress)?;
    squashfs::check(tree, &output.file, SQUASHFS_BLOCK_BYTES, progress)?;
    let data_bytes = pad(&mut output.file).map_err(Error::write(&draft))?;
    let salt = image_hash(&mut output.file).map_err(Error::read(&draft))?;
    let hashes = hash_tree(&mut output.file, salt, data_bytes, &draft, progress)?;
    output.file.seek(SeekFrom::Start(data_bytes)).map_err(Error::write(&draft))?;
    output.file.write_all(&hashes.bytes).map_err(Error::write(&draft))?;
    let layer = Layer {
        name: spec.name.into(),
        version: spec.version.into(),
        offset: 0,
        data_bytes,
        hash_offset: data_bytes,
        hash_bytes: hashes.bytes.len() as u64,
        root_hash: hashes.root,
        salt,
        kernel_release: spec.kernel_release.map(Into::into),
    };
    output.keep(&into.join(layer.file_name()))?;
    Ok(layer)
}

/// Fills the image up to whole blocks; its length.
fn pad(file: &mut File) -> io::Result<u64> {
    let bytes = file.seek(SeekFrom::End(0))?.next_multiple_of(BLOCK_BYTES);
    file.set_len(bytes)?;
    Ok(bytes)
}

/// Hands a file's bytes from its start to `each`, up to `limit`.
fn for_each_chunk(file: &mut File, limit: u64, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let mut limited = file.take(limit);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match limited.read(&mut chunk)? {
            0 => return Ok(()),
            count => each(chunk.get(..count).unwrap_or(&[])),
        }
    }
}

/// The salt: the same content has the same one, other content another.
fn image_hash(file: &mut File) -> io::Result<Digest> {
    let mut hash = sha2::Sha256::new();
    for_each_chunk(file, u64::MAX, |chunk| hash.update(chunk))?;
    Ok(Digest(hash.finalize().into()))
}

fn hash_tree(
    file: &mut File,
    salt: Digest,
    data_bytes: u64,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<HashTree, Error> {
    let mut builder = TreeBuilder::new(salt);
    let mut done_bytes = 0;
    for_each_chunk(file, data_bytes, |chunk| {
        builder.push(chunk);
        done_bytes += chunk.len() as u64;
        progress(Progress { step: "hash", done_bytes, total_bytes: data_bytes });
    })
    .map_err(Error::read(path))?;
    Ok(builder.finish()?)
}

/// Checks that the layer's file in the directory has the length and hash tree of its description; returns its path.
pub fn check(layer: &Layer, directory: &Path) -> Result<PathBuf, Error> {
    let path = directory.join(layer.file_name());
    let wrong = |reason: &str| Error::WrongLayer { path: path.clone(), reason: reason.into() };
    let mut file = File::open(&path).map_err(Error::read(&path))?;
    if file.metadata().map_err(Error::read(&path))?.len() != layer.total_bytes() {
        return Err(wrong("the file's length is not that of the layer"));
    }
    let hashes = hash_tree(&mut file, layer.salt, layer.data_bytes, &path, &mut crate::silent)?;
    if hashes.root != layer.root_hash {
        return Err(wrong("the data does not have the layer's root hash"));
    }
    let mut stored = Vec::new();
    file.seek(SeekFrom::Start(layer.hash_offset)).map_err(Error::read(&path))?;
    file.read_to_end(&mut stored).map_err(Error::read(&path))?;
    if stored != hashes.bytes {
        return Err(wrong("the hash tree does not fit the data"));
    }
    Ok(path)
}
