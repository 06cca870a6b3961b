//! A root to boot, and every way a test may spoil it.
//!
//! Owns: manifest and layer bytes in memory; the initramfs, labelled medium and disk made from them.
//! Does not: make layers; they come from the build.
//! Order: spoil first, then ask for a transport; the manifest in the initramfs is the only one that init believes.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use ondisk::cpio::{Entry, Kind, Writer};
use ondisk::fat;
use ondisk::gpt;
use ondisk::manifest::{LAYER_DIR, PATH, RootManifest};

use crate::artifacts::{Build, build};
use crate::config_volume;

/// The label that init looks for on a boot medium.
pub const LABEL: &str = "BILLET";

/// Room on a stick for its tables and directories.
const STICK_SPARE_BYTES: u64 = 64 << 20;

/// The disk image has 512-byte sectors.
const SECTOR_BYTES: u32 = 512;

/// The bytes of a layer file, under the name that the manifest gives it.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Name in the manifest.
    pub name: String,
    /// File name in file transports.
    pub file_name: String,
    /// Offset in a slot.
    pub slot_offset: u64,
    /// Size of the squashfs image.
    pub data_bytes: u64,
    /// squashfs and hash tree.
    pub bytes: Vec<u8>,
}

/// A root as parts. Without changes it is the test image.
#[derive(Debug, Clone)]
pub struct Root {
    build: &'static Build,
    /// What the initramfs will say; `None` leaves the file as it was built.
    pub manifest_override: Option<Vec<u8>>,
    /// The layers, lowest first.
    pub layers: Vec<Layer>,
    /// Additional initramfs files, path without a leading slash; a later entry replaces an earlier one.
    pub extra_files: Vec<(String, Vec<u8>)>,
    /// Files of the initramfs that shall be missing: each is replaced by a link to nowhere.
    pub missing_files: Vec<String>,
}

impl Root {
    /// The test image.
    pub fn of_build() -> Result<Self> {
        let build = build();
        let manifest = Self::built_manifest()?;
        ensure!(
            manifest.layers.len() == build.test.layers.len(),
            "build.json and manifest name different layers"
        );
        let mut layers = Vec::new();
        for (entry, built) in manifest.layers.iter().zip(&build.test.layers) {
            ensure!(entry.name == built.name, "build.json and manifest order the layers differently");
            let bytes =
                std::fs::read(&built.file).with_context(|| format!("read {}", built.file.display()))?;
            layers.push(Layer {
                name: entry.name.clone(),
                file_name: entry.file_name(),
                slot_offset: entry.offset,
                data_bytes: entry.data_bytes,
                bytes,
            });
        }
        Ok(Self {
            build,
            manifest_override: None,
            layers,
            extra_files: Vec::new(),
            missing_files: Vec::new(),
        })
    }

    /// The manifest of the test image.
    pub fn built_manifest() -> Result<RootManifest> {
        let path = &build().test.manifest;
        let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        RootManifest::parse(&bytes).map_err(|error| anyhow::anyhow!("parse {}: {error}", path.display()))
    }

    /// Replaces the manifest.
    pub fn set_manifest(&mut self, manifest: &RootManifest) {
        self.manifest_override = Some(manifest.to_json().into_bytes());
    }

    /// The layer of that name.
    pub fn layer(&mut self, name: &str) -> Result<&mut Layer> {
        let layer = self.layers.iter_mut().find(|layer| layer.name == name);
        layer.with_context(|| format!("the test image has no layer {name}"))
    }

    /// Flips bits of one byte of a layer.
    pub fn flip(&mut self, layer: &str, offset: usize, mask: u8) -> Result<()> {
        let layer = self.layer(layer)?;
        let byte = layer.bytes.get_mut(offset).context("an offset behind the layer's end")?;
        *byte ^= mask;
        Ok(())
    }

    /// An initramfs; with the layers in it or for another transport.
    pub fn initramfs(&self, dir: &Path, with_layers: bool) -> Result<PathBuf> {
        let bare = self.build.test.initramfs.as_ref().unwrap_or(&self.build.initramfs);
        let path = dir.join("initramfs");
        std::fs::copy(bare, &path).with_context(|| format!("copy {}", bare.display()))?;
        let mut file = File::options().append(true).open(&path).context("open the initramfs copy")?;
        let length = usize::try_from(file.metadata()?.len()).context("measure the initramfs")?;
        let padding = length.next_multiple_of(ondisk::cpio::ALIGNMENT) - length;
        file.write_all(&vec![0; padding]).context("pad the initramfs")?;
        file.write_all(&self.segment(with_layers)?).context("append to the initramfs")?;
        Ok(path)
    }

    /// A medium with the label that init looks for.
    pub fn medium(&self, dir: &Path) -> Result<PathBuf> {
        let tree = dir.join("medium");
        let layers = tree.join(LAYER_DIR.trim_start_matches('/'));
        std::fs::create_dir_all(&layers).context("create the medium's directory")?;
        for layer in &self.layers {
            std::fs::write(layers.join(&layer.file_name), &layer.bytes).context("write a layer file")?;
        }
        let image = dir.join("medium.iso");
        config_volume::make_iso(LABEL, &tree, &image)?;
        Ok(image)
    }

    /// A stick that firmware starts: a FAT with the UKI where firmware looks, and the layers under init's label.
    pub fn stick(&self, dir: &Path) -> Result<PathBuf> {
        let path = self.build.test.uki.as_ref().context("build.json names no UKI of the test image")?;
        let uki = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let directory = LAYER_DIR.trim_start_matches('/');
        let names: Vec<String> =
            self.layers.iter().map(|layer| format!("{directory}/{}", layer.file_name)).collect();
        let mut files = vec![fat::File { path: "EFI/BOOT/BOOTX64.EFI", content: &uki }];
        let layers = names.iter().zip(&self.layers);
        files.extend(layers.map(|(path, layer)| fat::File { path, content: &layer.bytes }));
        let content: usize = files.iter().map(|file| file.content.len()).sum();
        let bytes = u64::try_from(content)?.next_multiple_of(1 << 20) + STICK_SPARE_BYTES;
        let image = dir.join("stick.img");
        config_volume::write_fat(&image, LABEL, bytes, &files)?;
        Ok(image)
    }

    /// The built disk with these layers in ROOT-A.
    pub fn disk(&self, dir: &Path) -> Result<PathBuf> {
        let image = dir.join("disk.img");
        copy_sparse(&self.build.test.disk, &image)?;
        let file = File::options().read(true).write(true).open(&image).context("open the disk copy")?;
        let slot = partition_offset(&file, "ROOT-A")?;
        for layer in &self.layers {
            file.write_all_at(&layer.bytes, slot + layer.slot_offset).context("write a layer to ROOT-A")?;
        }
        Ok(image)
    }

    fn segment(&self, with_layers: bool) -> Result<Vec<u8>> {
        let mut writer = Writer::new();
        let mut push = |name: &str, kind: Kind<'_>| {
            let mode = if kind == Kind::Dir { 0o755 } else { 0o644 };
            let entry = Entry { name, mode, uid: 0, gid: 0, kind };
            writer.push(&entry).map_err(|error| anyhow::anyhow!("write {name} to the initramfs: {error}"))
        };
        if let Some(manifest) = &self.manifest_override {
            push(PATH.trim_start_matches('/'), Kind::File(manifest))?;
        }
        for (name, bytes) in &self.extra_files {
            push(name, Kind::File(bytes))?;
        }
        for name in &self.missing_files {
            push(name, Kind::Symlink("/removed-by-a-test"))?;
        }
        if with_layers {
            let directory = LAYER_DIR.trim_start_matches('/');
            let parent = directory.split('/').next().unwrap_or(directory);
            push(parent, Kind::Dir)?;
            push(directory, Kind::Dir)?;
            for layer in &self.layers {
                push(&format!("{directory}/{}", layer.file_name), Kind::File(&layer.bytes))?;
            }
        }
        Ok(writer.finish())
    }
}

/// A copy that takes no more room than the original.
pub fn copy_sparse(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("--sparse=always").arg(from).arg(to).status().context("run cp")?;
    ensure!(status.success(), "copy {} to {}: cp ended with {status}", from.display(), to.display());
    Ok(())
}

/// Where a partition starts in a disk image.
pub fn partition_offset(image: &File, name: &str) -> Result<u64> {
    Ok(partition(image, name)?.first_lba * u64::from(SECTOR_BYTES))
}

/// A partition's own GUID.
pub fn partition_guid(image: &File, name: &str) -> Result<gpt::Guid> {
    Ok(partition(image, name)?.guid)
}

fn partition(image: &File, name: &str) -> Result<gpt::Partition> {
    let bytes = image.metadata().context("measure the disk image")?.len();
    let geometry = gpt::Geometry { sector_bytes: SECTOR_BYTES, sectors: bytes / u64::from(SECTOR_BYTES) };
    let found = gpt::read(&mut Image(image), geometry)
        .map_err(|error| anyhow::anyhow!("read the partition table: {error:?}"))?;
    let mut partitions = found.table.partitions.into_iter();
    match partitions.find(|partition| partition.name == name) {
        Some(partition) => Ok(partition),
        None => bail!("the disk image has no partition {name}"),
    }
}

struct Image<'a>(&'a File);

impl ondisk::ReadAt for Image<'_> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ondisk::ReadError> {
        self.0.read_exact_at(buffer, offset).map_err(|error| ondisk::ReadError {
            offset,
            length: buffer.len(),
            errno: error.raw_os_error().unwrap_or(0),
        })
    }
}
