//! From layers to something that boots: initramfs, UKI, disk image.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::image::{Kind, Source};
use installer::system::{BootParts, System};
use installer::{initramfs, layer};
use ondisk::manifest::{Layer, RootManifest};

use super::artefacts::{Image, LayerFile, relative};
use super::layers::{form_writers, writers};
use super::materials::Materials;
use super::output::Output;
use super::{command_line, version};
use crate::cache::{Cache, KeyBuilder};
use crate::image;
use crate::kernel::{self, ModuleIndex, ModuleSets};
use crate::step::step;
use crate::target::{self, Architecture};
use installer::tree::Tree;

/// Sectors of the disk image.
const SECTOR_BYTES: u32 = 512;

/// No menu, no editing of the command line.
const LOADER_CONFIG: &str = "timeout 0\neditor no\n";

/// What boots the images of one kernel and one init; layers carry it too, for the node's own installer.
pub(super) fn parts(
    cache: &Cache,
    materials: &Materials,
    sets: &ModuleSets,
    init: &Path,
    architecture: Architecture,
) -> Result<BootParts> {
    let kernel = &materials.kernel;
    let base = kernel::modules(cache, kernel, &sets.initramfs)?.directory;
    let whole = kernel::modules(cache, kernel, &sets.network)?.directory;
    let load_list = sets.initramfs.load_list(&ModuleIndex::of(cache, kernel)?.get());
    let modules = image::initramfs::modules(&kernel.release, &base, &load_list)?;
    let network = image::initramfs::network(&kernel.release, &base, &whole)?;
    let writers = writers()?;
    Ok(BootParts {
        kernel: read(&kernel.vmlinuz)?,
        stub: materials.boot_file(target::stub(architecture))?,
        loader: materials.boot_file(target::loader(architecture))?,
        modules: compressed(cache, "modules", &modules, &writers)?,
        network: compressed(cache, "network", &network, &writers)?,
        firmware: Vec::new(),
        init: compressed(cache, "init", &image::initramfs::init(init)?, &writers)?,
        command_line: command_line(architecture),
        boot_entry: image::boot_entry().to_owned(),
        loader_config: LOADER_CONFIG.to_owned(),
        config_key: None,
        authorities: Vec::new(),
        signed_uki: Vec::new(),
    })
}

/// Makes images that share their boot parts.
pub(super) struct Images<'a> {
    output: &'a Output,
    boot: BootParts,
    writers: String,
}

impl<'a> Images<'a> {
    pub(super) fn new(output: &'a Output, boot: BootParts) -> Result<Self> {
        Ok(Self { output, boot, writers: writers()? })
    }

    /// An image of these layers; `prefix` tells its artefacts from another image's.
    pub(super) fn image(&self, prefix: &str, layers: &[Layer]) -> Result<Image> {
        let manifest = layer::stack(version(), layers.iter().cloned())?;
        let json = manifest.to_json();
        let system = System { manifest: manifest.clone(), boot: self.boot.clone() };
        let initramfs = self.initramfs(prefix, &system)?;
        let initramfs_full = self.initramfs_full(prefix, &manifest, &initramfs)?;
        let uki = self.uki(prefix, &system)?;
        let source = Source::new(system, self.output.layers());
        Ok(Image {
            installer: relative(&self.form(
                Kind::Installer,
                &format!("{prefix}installer.oci.tar"),
                &source,
            )?)?,
            disk: relative(&self.form(Kind::Disk, &format!("{prefix}disk.raw"), &source)?)?,
            manifest: relative(&self.output.text(&format!("{prefix}root.json"), &json)?)?,
            initramfs: relative(&initramfs)?,
            initramfs_full: relative(&initramfs_full)?,
            uki: relative(&uki)?,
            layers: manifest.layers.iter().map(|layer| self.layer_file(layer)).collect::<Result<_>>()?,
        })
    }

    fn initramfs(&self, prefix: &str, system: &System) -> Result<PathBuf> {
        let content = system.initramfs()?;
        let key = KeyBuilder::new("initramfs 2").part(&content).finish();
        self.output.make(&format!("{prefix}initramfs"), &key, |path| Ok(initramfs::write(path, &[&content])?))
    }

    fn initramfs_full(&self, prefix: &str, manifest: &RootManifest, initramfs: &Path) -> Result<PathBuf> {
        let key = KeyBuilder::new("initramfs with layers 1").part(&self.writers);
        let key = key.file(initramfs)?.part(manifest.to_json()).finish();
        self.output.make(&format!("{prefix}initramfs-full"), &key, |path| {
            let layers = initramfs::layers_segment(manifest, &self.output.layers())?;
            Ok(initramfs::write(path, &[&read(initramfs)?, &layers])?)
        })
    }

    fn uki(&self, prefix: &str, system: &System) -> Result<PathBuf> {
        let content = system.uki(&[])?;
        let key = KeyBuilder::new("uki 2").part(&content).finish();
        self.output.make(&format!("{prefix}billet.efi"), &key, |path| {
            std::fs::write(path, &content).with_context(|| format!("write {}", path.display()))
        })
    }

    /// A form of a system that `billetctl image build` makes too.
    fn form(&self, kind: Kind, name: &str, source: &Source) -> Result<PathBuf> {
        let key = KeyBuilder::new(&format!("form {kind:?} 1")).part(form_writers()?).part(&self.boot.loader);
        let key = key.part(&self.boot.network);
        let key = key.part(&source.minimum_from).part(source.system.manifest.to_json());
        let key = key.part(source.system.uki(&[])?).part(LOADER_CONFIG).finish();
        self.output.make(name, &key, |path| {
            let build = || Ok(kind.build(source, SECTOR_BYTES, path, &mut installer::silent)?);
            step(&format!("write {name}"), build)
        })
    }

    fn layer_file(&self, layer: &Layer) -> Result<LayerFile> {
        Ok(LayerFile {
            name: layer.name.clone(),
            file: relative(&self.output.layers().join(layer.file_name()))?,
            root_hash: layer.root_hash.to_string(),
            data_bytes: layer.data_bytes,
            bytes: layer.total_bytes(),
        })
    }
}

/// A compressed segment, from the cache where it can be: the highest level takes its time.
fn compressed(cache: &Cache, name: &str, tree: &Tree, writers: &str) -> Result<Vec<u8>> {
    let key = KeyBuilder::new("initramfs segment 1").part(writers);
    let key = image::paths::identify(tree, key)?.finish();
    let entry = cache.entry("segment", &key, |directory| {
        step(&format!("compress initramfs segment {name}"), || {
            let segment = initramfs::compressed_segment(tree, initramfs::ZSTD_LEVEL)?;
            std::fs::write(directory.join("segment"), segment).context("write the segment")
        })
    })?;
    read(&entry.join("segment"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("read {}", path.display()))
}
