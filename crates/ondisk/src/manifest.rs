//! The root manifest: which layers make the root, and how each is verified.
//!
//! Owns: the JSON document at [`PATH`] in the initramfs, hence under the signature of the UKI.
//! Does not: find or map layers; transports only carry bytes, the expected hashes come from here and nowhere else.
//! Fails by: refusing the whole document with the first rule that it breaks; a manifest in hand keeps them all.
//! Source: docs/formats/root-manifest.md.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{Digest, verity};

/// Where the manifest lies in the initramfs.
pub const PATH: &str = "/etc/billet/root.json";

/// Where init leaves the manifest it booted from, for machined: the same bytes.
pub const KEPT_PATH: &str = "/run/billet/root.json";

/// Beside it in an initramfs for roots from the network: PEM of the authorities that init believes behind `https://`. Most
/// images have none.
pub const AUTHORITIES_PATH: &str = "/etc/billet/authorities.pem";

/// Directory of the layer files in an initramfs or on a labelled medium (there below its root).
pub const LAYER_DIR: &str = "/billet/layers";

/// Layers that an image has without extensions; more of a kind have a number behind that: `custom-2`.
const OWN_LAYERS: [&str; 5] = ["base", "custom", "kernel", "removed", "vmlinuz"];

/// The only format this version reads.
pub const FORMAT: u32 = 1;

/// Block size of data and hash blocks; layers start at multiples of it.
pub const BLOCK_BYTES: u64 = 4096;

/// Largest manifest that is parsed, in bytes: [`MAX_LAYERS`] layers take less than a tenth of it.
pub const MAX_BYTES: usize = 1 << 20;

/// Most layers in a root. Each costs a mapping and a mount; overlayfs itself would take 500.
pub const MAX_LAYERS: usize = 64;

/// Longest layer name, version and kernel release in bytes (`utsname.release` holds 64 with its end).
pub const MAX_TEXT_BYTES: usize = 64;

/// Largest layer in bytes: far above any slot, low enough that sums of offsets cannot overflow.
pub const MAX_LAYER_BYTES: u64 = 1 << 40;

/// The ordered layers of a root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
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
    pub root_hash: Digest,
    /// dm-verity salt, lower-case hex, 64 digits.
    pub salt: Digest,
    /// For the kernel layer: the `uname -r` that its modules were built for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_release: Option<String>,
}

/// Why a manifest was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Longer than [`MAX_BYTES`].
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not the JSON document it should be; the text gives line and column.
    Json(String),
    /// Another format than [`FORMAT`].
    Format(u32),
    /// No layer, or more than [`MAX_LAYERS`].
    LayerCount(usize),
    /// The manifest's own version is empty, too long or not printable.
    Version,
    /// Two layers have this name.
    DuplicateName(String),
    /// More than one layer names a kernel release: the first and the second.
    TwoKernels(String, String),
    /// A layer breaks a rule.
    Layer {
        /// The layer's name as given.
        name: String,
        /// What it breaks.
        fault: Fault,
    },
}

/// What is wrong with one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The name is not 1 to [`MAX_TEXT_BYTES`] of `a-z 0-9 -`.
    Name,
    /// The version is empty, too long or not printable.
    Version,
    /// The kernel release is empty, too long or not a directory name.
    KernelRelease,
    /// An offset or size is not a multiple of [`BLOCK_BYTES`].
    Alignment,
    /// No data, or more than [`MAX_LAYER_BYTES`].
    Size,
    /// The hash tree starts inside the data.
    HashInsideData,
    /// The hash tree is not as long as the data asks for.
    HashSize,
    /// It starts before the end of the layer below it.
    Overlap,
}

impl RootManifest {
    /// Reads and checks a manifest.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_BYTES {
            return Err(Error::TooLong { bytes: bytes.len() });
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(|e| Error::Json(e.to_string()))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Checks every rule that [`Self::parse`] enforces: for a manifest that was put together by hand.
    pub fn check(&self) -> Result<(), Error> {
        if self.format != FORMAT {
            return Err(Error::Format(self.format));
        }
        if !is_text(&self.version) {
            return Err(Error::Version);
        }
        if self.layers.is_empty() || self.layers.len() > MAX_LAYERS {
            return Err(Error::LayerCount(self.layers.len()));
        }
        self.check_layers()?;
        self.check_kernel()
    }

    fn check_layers(&self) -> Result<(), Error> {
        let mut end = 0;
        for (index, layer) in self.layers.iter().enumerate() {
            let refuse = |fault| Error::Layer { name: layer.name.clone(), fault };
            layer.check().map_err(refuse)?;
            if layer.offset < end {
                return Err(refuse(Fault::Overlap));
            }
            if self.layers.iter().take(index).any(|other| other.name == layer.name) {
                return Err(Error::DuplicateName(layer.name.clone()));
            }
            end = layer.end();
        }
        Ok(())
    }

    fn check_kernel(&self) -> Result<(), Error> {
        let mut kernels = self.layers.iter().filter(|layer| layer.kernel_release.is_some());
        match (kernels.next(), kernels.next()) {
            (Some(first), Some(second)) => Err(Error::TwoKernels(first.name.clone(), second.name.clone())),
            _ => Ok(()),
        }
    }

    /// The document, the same bytes for the same value, with a line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and structs alone cannot fail to serialise.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Bytes of a slot that the layers take, from its start to the end of the last hash tree.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.layers.iter().map(Layer::end).max().unwrap_or(0)
    }

    /// The layer that holds kernel modules.
    #[must_use]
    pub fn kernel(&self) -> Option<&Layer> {
        self.layers.iter().find(|layer| layer.kernel_release.is_some())
    }
}

impl Layer {
    /// Name of the layer's file where layers are files: in an initramfs, on a labelled medium, behind a URL.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}.layer", self.root_hash)
    }

    /// Bytes of data, gap and hash tree together: the length of the layer file.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.hash_offset.saturating_add(self.hash_bytes)
    }

    /// First byte of the slot behind the layer.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.total_bytes())
    }

    /// First byte of its topmost hash block, within the layer: the block whose hash is the root hash, by which init
    /// knows the layer. The first of the tree, or the only one of data.
    #[must_use]
    pub fn top_offset(&self) -> u64 {
        if self.hash_bytes == 0 { 0 } else { self.hash_offset }
    }

    /// The device-mapper table that has the layer verified, on a device that holds nothing else.
    #[must_use]
    pub fn table<'a>(&'a self, device: &'a str) -> verity::Table<'a> {
        verity::Table {
            data_device: device,
            hash_device: device,
            data_blocks: self.data_bytes / BLOCK_BYTES,
            hash_start_block: self.hash_offset / BLOCK_BYTES,
            root: &self.root_hash,
            salt: &self.salt,
            options: &[],
        }
    }

    fn check(&self) -> Result<(), Fault> {
        if !is_name(&self.name) {
            return Err(Fault::Name);
        }
        if !is_text(&self.version) {
            return Err(Fault::Version);
        }
        if self.kernel_release.as_deref().is_some_and(|release| !is_release(release)) {
            return Err(Fault::KernelRelease);
        }
        self.check_sizes()
    }

    fn check_sizes(&self) -> Result<(), Fault> {
        let fields = [self.offset, self.data_bytes, self.hash_offset, self.hash_bytes];
        if fields.iter().any(|value| value % BLOCK_BYTES != 0) {
            return Err(Fault::Alignment);
        }
        if self.data_bytes == 0 || fields.iter().any(|value| *value > MAX_LAYER_BYTES) {
            return Err(Fault::Size);
        }
        if self.hash_offset < self.data_bytes {
            return Err(Fault::HashInsideData);
        }
        if self.hash_bytes != verity::tree_bytes(self.data_bytes / BLOCK_BYTES) {
            return Err(Fault::HashSize);
        }
        Ok(())
    }
}

/// Whether a layer of this name is no system extension.
#[must_use]
pub fn is_own_layer(name: &str) -> bool {
    let numbered = name.rsplit_once('-').filter(|(_, number)| number.bytes().all(|b| b.is_ascii_digit()));
    OWN_LAYERS.contains(&numbered.map_or(name, |(kind, _)| kind))
}

fn is_name(text: &str) -> bool {
    (1..=MAX_TEXT_BYTES).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

fn is_text(text: &str) -> bool {
    (1..=MAX_TEXT_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// A release is a directory name below `/usr/lib/modules`, so it may not lead out of it.
fn is_release(text: &str) -> bool {
    text.len() < MAX_TEXT_BYTES && is_text(text) && !text.contains('/') && !text.starts_with('.')
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => write!(f, "root manifest: {bytes} bytes, at most {MAX_BYTES} allowed"),
            Self::Json(text) => write!(f, "root manifest: {text}"),
            Self::Format(format) => write!(f, "root manifest: format {format}, this version reads {FORMAT}"),
            Self::LayerCount(count) => write!(f, "root manifest: {count} layers, 1 to {MAX_LAYERS} allowed"),
            Self::Version => f.write_str("root manifest: version is empty, too long or not printable"),
            Self::DuplicateName(name) => write!(f, "root manifest: two layers named {name}"),
            Self::TwoKernels(a, b) => {
                write!(f, "root manifest: layers {a} and {b} both name a kernel release")
            }
            Self::Layer { name, fault } => write!(f, "root manifest: layer {name}: {fault}"),
        }
    }
}

impl core::error::Error for Error {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "name is not made of a-z, 0-9 and -",
            Self::Version => "version is empty, too long or not printable",
            Self::KernelRelease => "kernel release is not a directory name",
            Self::Alignment => "an offset or size is not a multiple of 4096",
            Self::Size => "size is zero or beyond the limit",
            Self::HashInsideData => "hash tree starts inside the data",
            Self::HashSize => "hash tree size does not fit the data size",
            Self::Overlap => "starts before the layer below it ends",
        })
    }
}

#[cfg(test)]
mod tests;
