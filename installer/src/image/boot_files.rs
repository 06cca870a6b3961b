//! What lies on the EFI system partition of an image: boot loader, UKI, what enrols a key, the place of configs.
//!
//! Source: docs/formats/disk.md, docs/formats/iso.md; systemd-boot(7) for `loader/keys`.

use ondisk::{bundle, fat};

use super::Source;
use crate::Error;
use crate::system::{LOADER_CONFIG_PATH, loader_path};

/// Name of a first image's UKI: without a trial counter, generation 1.
pub const UKI_PATH: &str = "EFI/Linux/billet-000001.efi";

/// Its files, with those that are made for it.
pub(super) struct BootFiles<'s> {
    source: &'s Source,
    pub(super) uki: Vec<u8>,
    settings: String,
    pub(super) configs: Option<Vec<u8>>,
}

impl<'s> BootFiles<'s> {
    pub(super) fn new(source: &'s Source) -> Result<Self, Error> {
        let boot = &source.system.boot;
        let enrol = source.enrolment.as_ref().map_or("", |(_, how)| how.setting());
        Ok(Self {
            source,
            uki: source.uki()?,
            settings: format!("{}{enrol}", boot.loader_config),
            configs: boot.config_key.as_ref().map(bundle::blank),
        })
    }

    /// The loader, and the UKI where it looks for it.
    pub(super) fn with_loader(&self) -> Vec<fat::File<'_>> {
        let boot = &self.source.system.boot;
        let mut files = vec![
            fat::File { path: loader_path(boot.architecture()), content: &boot.loader },
            fat::File { path: UKI_PATH, content: &self.uki },
            fat::File { path: LOADER_CONFIG_PATH, content: self.settings.as_bytes() },
        ];
        let keys = self.source.enrolment.iter().flat_map(|(keys, _)| keys.files());
        files.extend(keys.map(|(path, content)| fat::File { path, content }));
        files.extend(self.bundle());
        files
    }

    /// The UKI alone, where firmware looks for a loader.
    pub(super) fn without_loader(&self) -> Vec<fat::File<'_>> {
        let path = loader_path(self.source.system.boot.architecture());
        let uki = fat::File { path, content: &self.uki };
        [uki].into_iter().chain(self.bundle()).collect()
    }

    fn bundle(&self) -> Option<fat::File<'_>> {
        self.configs.as_ref().map(|content| fat::File { path: bundle::PATH, content })
    }
}
