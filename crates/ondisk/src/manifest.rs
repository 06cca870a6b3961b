//! The root manifest: which layers make the root, and how each is verified.
//!
//! Owns: the JSON document at [`PATH`] in the initramfs, hence under the signature of the UKI.
//! Does not: find or map layers; transports only carry bytes, the expected hashes come from here and nowhere else.
//! Source: docs/formats/root-manifest.md.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Where the manifest lies in the initramfs.
pub const PATH: &str = "/etc/billet/root.json";

/// Folder of the layer files in an initramfs or on a labelled medium (there below its root).
pub const LAYER_DIR: &str = "/billet/layers";

/// The only format this version reads.
pub const FORMAT: u32 = 1;

/// Block size of data and hash blocks; layers start at multiples of it.
pub const BLOCK_BYTES: u64 = 4096;

/// The ordered layers of a root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootManifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the operating system.
    pub version: String,
    /// Lowest first.
    pub layers: Vec<Layer>,
}

/// One squashfs image with its dm-verity hash tree behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// `base`, `kernel`, an extension's name.
    pub name: String,
    /// Version of the layer's content.
    pub version: String,
    /// Where the layer starts in a root slot, in bytes, a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// Size of the squashfs image in bytes, a multiple of [`BLOCK_BYTES`].
    pub data_bytes: u64,
    /// Where the hash tree starts, in bytes from the layer's start.
    pub hash_offset: u64,
    /// Size of the hash tree in bytes.
    pub hash_bytes: u64,
    /// dm-verity root hash (SHA-256), lower-case hex, 64 digits.
    pub root_hash: String,
    /// dm-verity salt, lower-case hex, 64 digits.
    pub salt: String,
    /// For the kernel layer: the `uname -r` that its modules were built for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_release: Option<String>,
}
