//! What lies on the EFI system partition of an image: boot loader, UKI, what enrols a key, addons, the place of configs.
//!
//! Source: docs/formats/disk.md, docs/formats/iso.md; systemd-boot(7) for `loader/keys`.

use ondisk::{bundle, fat};

use crate::boot_volume::loader_path;
use crate::source::Source;
use crate::system::LOADER_CONFIG_PATH;
use crate::{Error, addon};

/// Name of a first image's UKI: without a trial counter, generation 1.
pub const UKI_PATH: &str = "EFI/Linux/billet-000001.efi";

/// Its files, with those that are made for it.
pub(super) struct BootFiles<'s> {
    source: &'s Source,
    pub(super) uki: Vec<u8>,
    settings: String,
    /// With their paths.
    addons: Vec<(String, &'s [u8])>,
    pub(super) configs: Option<Vec<u8>>,
}

impl<'s> BootFiles<'s> {
    pub(super) fn new(source: &'s Source) -> Result<Self, Error> {
        let boot = &source.system.boot;
        let addon = |(name, content): &'s (String, Vec<u8>)| {
            addon::check(name, content, boot.architecture())?;
            Ok((format!("{}/{name}", addon::DIRECTORY), content.as_slice()))
        };
        let addons = source.addons.iter().map(addon).collect::<Result<_, Error>>()?;
        addon::check_in_image(&source.addons, &boot.command_line)?;
        let enrol = source.enrolment.as_ref().map_or("", |(_, how)| how.setting());
        Ok(Self {
            source,
            uki: source.uki()?,
            addons,
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
        files.extend(self.more());
        files
    }

    /// The UKI alone, where firmware looks for a loader.
    pub(super) fn without_loader(&self) -> Vec<fat::File<'_>> {
        let path = loader_path(self.source.system.boot.architecture());
        let uki = fat::File { path, content: &self.uki };
        [uki].into_iter().chain(self.more()).collect()
    }

    /// What is there with a loader and without.
    fn more(&self) -> impl Iterator<Item = fat::File<'_>> {
        let configs = self.configs.iter().map(|content| fat::File { path: bundle::PATH, content });
        configs.chain(self.addons.iter().map(|(path, content)| fat::File { path, content }))
    }
}
