//! What an image is made of: packages, kernel, crates; and the bills of materials that say so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::grub::Parts;
use installer::system::BootParts;
use installer::tree::Tree;

use super::{grub, version};
use crate::cache::Cache;
use crate::image::base::{self, BaseParts};
use crate::image::list::FileList;
use crate::inputs::{Freshness, Inputs, Package};
use crate::kernel::{self, Debian, Kernel, Provider};
use crate::place;
use crate::programs;
use crate::sbom::{self, Component};
use crate::target::Architecture;

/// Carries systemd-boot and the stub that UKIs start with.
const BOOT_PACKAGE: &str = "systemd-boot-efi";

/// The one time of a build, for documents that must name one: 2025-01-01.
const EPOCH: u64 = 1_735_689_600;

pub(super) struct Materials {
    list: FileList,
    packages: Vec<Package>,
    directories: BTreeMap<String, PathBuf>,
    /// None for machines that all have UEFI.
    grub: Vec<Package>,
    pub(super) kernel: Kernel,
    crates: Vec<Component>,
}

impl Materials {
    pub(super) fn gather(cache: &Cache, freshness: Freshness, architecture: Architecture) -> Result<Self> {
        let list = FileList::read(&place::repository().join("xtask/image/base.toml"), architecture)?;
        let mut inputs = Inputs::open_for(cache, freshness, architecture)?;
        let names: Vec<&str> = list.packages().into_iter().chain([BOOT_PACKAGE]).collect();
        let packages = inputs.resolve(&names)?;
        let mut directories = inputs.unpack(&packages)?;
        let grub = match architecture {
            Architecture::Amd64 => inputs.resolve(&grub::packages())?,
            Architecture::Arm64 => Vec::new(),
        };
        directories.extend(inputs.unpack(&grub)?);
        let kernel = Debian.kernel(&mut inputs)?;
        kernel::check(&kernel, architecture)?;
        let programs = [&programs::INIT, &programs::MACHINED];
        let programs = programs.map(|program| (program.package, program.features));
        let crates = sbom::compiled_in(&programs, architecture)?;
        Ok(Self { list, packages, directories, grub, kernel, crates })
    }

    /// The tree of the base layer.
    pub(super) fn base(&self, machined: &Path, boot: &BootParts) -> Result<Tree> {
        base::assemble(&BaseParts {
            list: &self.list,
            packages: &self.directories,
            overlay: &place::repository().join("rootfs-overlay"),
            machined,
            sbom: &self.document("base", &self.base_components()?)?,
            boot,
            version: version(),
        })
    }

    /// A file of the package with the boot loader.
    pub(super) fn boot_file(&self, name: &str) -> Result<Vec<u8>> {
        let directory =
            self.directories.get(BOOT_PACKAGE).with_context(|| format!("{BOOT_PACKAGE} was not unpacked"))?;
        let path = directory.join("usr/lib/systemd/boot/efi").join(name);
        std::fs::read(&path).with_context(|| format!("read {}", path.display()))
    }

    /// GRUB's images, where there are machines without UEFI.
    pub(super) fn grub(&self, cache: &Cache) -> Result<Option<Parts>> {
        let is_used = !self.grub.is_empty();
        is_used.then(|| grub::parts(cache, &self.grub, &self.directories)).transpose()
    }

    pub(super) fn kernel_sbom(&self) -> Result<String> {
        self.document("kernel", &self.kernel_components()?)
    }

    /// Everything, for people and scanners.
    pub(super) fn whole_sbom(&self) -> Result<String> {
        let components = [self.base_components()?, self.kernel_components()?].concat();
        self.document("billet", &components)
    }

    fn base_components(&self) -> Result<Vec<Component>> {
        Ok([sbom::debian(&self.packages, &self.directories)?, self.crates.clone()].concat())
    }

    fn kernel_components(&self) -> Result<Vec<Component>> {
        let names = self.kernel.packages.iter().map(|package| package.name.clone());
        let directories: BTreeMap<String, PathBuf> =
            names.zip(self.kernel.directories.iter().cloned()).collect();
        let kernel = sbom::debian(&self.kernel.packages, &directories)?;
        // Of what makes GRUB's images only this one is in them.
        let images = self.grub.iter().filter(|package| package.name == grub::PACKAGE);
        let images: Vec<Package> = images.cloned().collect();
        Ok([kernel, sbom::debian(&images, &self.directories)?].concat())
    }

    fn document(&self, name: &str, components: &[Component]) -> Result<String> {
        sbom::document(name, version(), EPOCH, components)
    }
}
