//! A system that can be put on a disk: its root manifest, and the parts that its UKI is made of.
//!
//! Owns: where the boot parts lie in the root, the assembly of initramfs and UKI, the extra kernel arguments, the
//! layers of the running system as they were before the kernel mapped them.
//! Does not: choose a disk; write.
//! Order: the initramfs is modules, init, manifest; the command line is the image's, then the user's arguments.
//! Source: docs/formats/boot-parts.md; docs/users/kernel-parameters.md.

mod arguments;
mod signed;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use ondisk::bundle::{KEPT_KEY_PATH, KEY_BYTES, KEY_PATH, PublicKey};
use ondisk::manifest::{AUTHORITIES_PATH, KEPT_PATH, Layer, PATH, RootManifest};
use ondisk::{Architecture, fat, kernel};

use crate::boot_volume::loader_path;
use crate::tree::Tree;
use crate::{Error, initramfs, kernel_image, uki};

pub use crate::distrust::{Distrust, SIGN_COMMAND};
pub use arguments::command_line;
#[cfg(feature = "image")]
pub(crate) use arguments::{check_image_line, check_room, command_line_of_image};
pub(crate) use arguments::{check_whole_line, contradiction};
pub use signed::Trusted;

/// Where the boot parts lie in a root: the base layer brings some, the kernel layer the rest.
pub const DIRECTORY: &str = "usr/lib/billet/boot";

/// The name of PID 1 in its initramfs segment.
#[cfg(feature = "image")]
const INIT_PROGRAM: &str = "init";

/// Names of the files in [`DIRECTORY`].
pub mod names {
    /// The kernel: a bzImage, or an Image for arm64. Kernel layer.
    pub const KERNEL: &str = "vmlinuz";
    /// systemd's stub, which a UKI starts with. Kernel layer.
    pub const STUB: &str = "stub.efi";
    /// systemd-boot. Kernel layer.
    pub const LOADER: &str = "loader.efi";
    /// The initramfs segment with modules. Kernel layer.
    pub const MODULES: &str = "modules.cpio.zst";
    /// The initramfs segment with the drivers of network cards. In installer images alone: no node needs it on its disk.
    pub const NETWORK: &str = "network.cpio.zst";
    /// Initramfs segments with firmware of network cards. In installer images alone, as their drivers; most have none.
    pub const FIRMWARE: &str = "firmware.cpio.zst";
    /// The initramfs segment with init. Base layer.
    pub const INIT: &str = "init.cpio.zst";
    /// The kernel's command line, without a line end. Base layer.
    pub const COMMAND_LINE: &str = "cmdline";
    /// os-release of a UKI. Base layer.
    pub const BOOT_ENTRY: &str = "boot-entry";
    /// loader.conf of systemd-boot. Base layer.
    pub const LOADER_CONFIG: &str = "loader.conf";
    /// The public key of the config bundle. In installer images alone: a node has it from its initramfs.
    pub const CONFIG_KEY: &str = "config-key";
    /// PEM of the authorities that a root from the network may come from by https. In installer images alone, as the
    /// drivers of network cards.
    pub const AUTHORITIES: &str = "authorities.pem";
    /// The UKI of these parts, signed for Secure Boot. In installer images alone: it names the layers' hashes.
    pub const SIGNED_UKI: &str = "uki.efi";
}

/// Where systemd-boot looks for its settings.
pub const LOADER_CONFIG_PATH: &str = "loader/loader.conf";

/// What a UKI and an EFI system partition are made of, besides the manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootParts {
    /// See [`names::KERNEL`].
    pub kernel: Vec<u8>,
    /// See [`names::STUB`].
    pub stub: Vec<u8>,
    /// See [`names::LOADER`].
    pub loader: Vec<u8>,
    /// See [`names::MODULES`].
    pub modules: Vec<u8>,
    /// See [`names::NETWORK`]; empty where there is none.
    pub network: Vec<u8>,
    /// See [`names::FIRMWARE`]; empty where there is none.
    pub firmware: Vec<u8>,
    /// See [`names::INIT`].
    pub init: Vec<u8>,
    /// See [`names::COMMAND_LINE`].
    pub command_line: String,
    /// See [`names::BOOT_ENTRY`].
    pub boot_entry: String,
    /// See [`names::LOADER_CONFIG`].
    pub loader_config: String,
    /// See [`names::CONFIG_KEY`]; most images have none.
    pub config_key: Option<PublicKey>,
    /// See [`names::AUTHORITIES`]; empty in most images.
    pub authorities: Vec<u8>,
    /// See [`names::SIGNED_UKI`]; empty in most images.
    pub signed_uki: Vec<u8>,
}

impl BootParts {
    /// Reads the parts from [`DIRECTORY`] of a root, or from a copy of it.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        Self::by_name(|name| {
            let path = directory.join(name);
            fs::read(&path).map_err(Error::read(&path))
        })
    }

    /// The parts as `get` gives them, by the names of [`names`].
    pub fn by_name(mut get: impl FnMut(&str) -> Result<Vec<u8>, Error>) -> Result<Self, Error> {
        let parts = [names::KERNEL, names::STUB, names::LOADER, names::MODULES, names::INIT];
        let [kernel, stub, loader, modules, init] = parts.map(&mut get);
        let mut optional = |name: &str| match get(name) {
            Err(Error::MissingPart { .. }) => Ok(Vec::new()),
            Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other,
        };
        let network = optional(names::NETWORK)?;
        let firmware = optional(names::FIRMWARE)?;
        let config_key = config_key(&optional(names::CONFIG_KEY)?)?;
        let authorities = optional(names::AUTHORITIES)?;
        let signed_uki = optional(names::SIGNED_UKI)?;
        let mut text = |name: &str| {
            let not_text = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            String::from_utf8(get(name)?).map_err(not_text).map_err(Error::read(Path::new(name)))
        };
        Ok(Self {
            network,
            firmware,
            config_key,
            authorities,
            signed_uki,
            command_line: text(names::COMMAND_LINE)?,
            boot_entry: text(names::BOOT_ENTRY)?,
            loader_config: text(names::LOADER_CONFIG)?,
            kernel: kernel?,
            stub: stub?,
            loader: loader?,
            modules: modules?,
            init: init?,
        })
    }

    /// The program that is PID 1, out of [`BootParts::init`].
    #[cfg(feature = "image")]
    pub fn init_program(&self) -> Result<Vec<u8>, Error> {
        let missing = |part: String| Error::MissingPart { from: names::INIT.to_owned(), part };
        let mut segment = Vec::new();
        // Zero bytes for the next segment's alignment are behind the frame.
        let decoder = zstd::Decoder::new(self.init.as_slice()).map(zstd::Decoder::single_frame);
        let unpacked = decoder.and_then(|mut decoder| decoder.read_to_end(&mut segment));
        unpacked.map_err(|error| missing(format!("{INIT_PROGRAM} ({error})")))?;
        for entry in ondisk::cpio::Reader::new(&segment) {
            let entry = entry?;
            if entry.name == INIT_PROGRAM {
                return Ok(entry.content.to_vec());
            }
        }
        Err(missing(INIT_PROGRAM.to_owned()))
    }

    /// The files that a base layer brings, by name.
    #[must_use]
    pub fn of_base(&self) -> [(&'static str, &[u8]); 4] {
        [
            (names::INIT, &self.init),
            (names::COMMAND_LINE, self.command_line.as_bytes()),
            (names::BOOT_ENTRY, self.boot_entry.as_bytes()),
            (names::LOADER_CONFIG, self.loader_config.as_bytes()),
        ]
    }

    /// The files that a kernel layer brings, by name.
    #[must_use]
    pub fn of_kernel(&self) -> [(&'static str, &[u8]); 4] {
        [
            (names::KERNEL, &self.kernel),
            (names::STUB, &self.stub),
            (names::LOADER, &self.loader),
            (names::MODULES, &self.modules),
        ]
    }

    /// All files, by name, as an installer image has them.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let optional = [
            (names::NETWORK, &self.network),
            (names::FIRMWARE, &self.firmware),
            (names::AUTHORITIES, &self.authorities),
            (names::SIGNED_UKI, &self.signed_uki),
        ];
        let optional = optional
            .map(|(name, content)| (name, content.as_slice()))
            .into_iter()
            .filter(|(_, content)| !content.is_empty());
        let key = self.config_key.iter().map(|key| (names::CONFIG_KEY, key.as_slice()));
        self.of_kernel().into_iter().chain(self.of_base()).chain(optional).chain(key)
    }

    /// Which machines start it: those that the stub is for.
    #[must_use]
    pub fn architecture(&self) -> Architecture {
        Architecture::of_program(&self.stub).unwrap_or(Architecture::OWN)
    }

    /// The boot loader's files on an EFI system partition; the UKI comes beside them.
    #[must_use]
    pub fn loader_files(&self) -> [fat::File<'_>; 2] {
        [
            fat::File { path: loader_path(self.architecture()), content: &self.loader },
            fat::File { path: LOADER_CONFIG_PATH, content: self.loader_config.as_bytes() },
        ]
    }
}

/// A system: which layers make its root, and what boots them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// Its layers.
    pub manifest: RootManifest,
    /// What boots it.
    pub boot: BootParts,
}

impl System {
    /// The system that runs here. `root` is `/` on a node.
    pub fn running(root: &Path) -> Result<Self, Error> {
        let path = root.join(KEPT_PATH.trim_start_matches('/'));
        let bytes = fs::read(&path).map_err(Error::read(&path))?;
        let boot = BootParts::read(&root.join(DIRECTORY))?;
        let config_key = kept_config_key(root)?;
        Ok(Self { manifest: RootManifest::parse(&bytes)?, boot: BootParts { config_key, ..boot } })
    }

    /// Refuses a kernel that the modules or the machines are not for, or none.
    pub fn check_kernel(&self) -> Result<(), Error> {
        if self.boot.kernel.is_empty() {
            return Err(Error::NoKernel { system: format!("version {}", self.manifest.version) });
        }
        kernel_image::check(names::KERNEL, &self.boot.kernel, self.boot.architecture())?;
        let modules = self.manifest.kernel().and_then(|layer| layer.kernel_release.as_deref());
        match (kernel::release(&self.boot.kernel), modules) {
            (Some(kernel), Some(modules)) if kernel != modules => {
                Err(Error::KernelMismatch { kernel: kernel.to_owned(), modules: modules.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// The initramfs, without layers.
    pub fn initramfs(&self) -> Result<Vec<u8>, Error> {
        let manifest = self.own_segment(&[])?;
        Ok(initramfs::join(&[&self.boot.modules, &self.boot.init, &manifest]))
    }

    /// The same with drivers of network cards and their firmware, for a root from the network. `None` if there are no drivers.
    pub fn network_initramfs(&self) -> Result<Option<Vec<u8>>, Error> {
        if self.boot.network.is_empty() {
            return Ok(None);
        }
        let manifest = self.own_segment(&self.boot.authorities)?;
        let boot = &self.boot;
        let segments = [&boot.modules, &boot.network, &boot.firmware, &boot.init, &manifest];
        Ok(Some(initramfs::join(&segments.map(Vec::as_slice))))
    }

    /// The last segment of an initramfs: which layers make the root, whose configs a node takes, and whose certificates
    /// init believes.
    fn own_segment(&self, authorities: &[u8]) -> Result<Vec<u8>, Error> {
        let mut tree = Tree::new();
        tree.bytes(PATH.trim_start_matches('/'), 0o644, self.manifest.to_json())?;
        if let Some(key) = &self.boot.config_key {
            tree.bytes(KEY_PATH.trim_start_matches('/'), 0o444, key.to_vec())?;
        }
        if !authorities.is_empty() {
            tree.bytes(AUTHORITIES_PATH.trim_start_matches('/'), 0o444, authorities.to_vec())?;
        }
        initramfs::segment(&tree)
    }

    /// The UKI, with these arguments behind the image's own.
    pub fn uki(&self, extra_arguments: &[String]) -> Result<Vec<u8>, Error> {
        self.check_kernel()?;
        let modules = self.manifest.kernel().and_then(|layer| layer.kernel_release.as_deref());
        // A kernel without modules is in no layer's name.
        let kernel_release = modules.or_else(|| kernel::release(&self.boot.kernel));
        uki::assemble(&uki::Parts {
            stub: &self.boot.stub,
            kernel: &self.boot.kernel,
            initramfs: &self.initramfs()?,
            cmdline: &command_line(&self.boot.command_line, extra_arguments)?,
            os_release: &self.boot.boot_entry,
            kernel_release: kernel_release.unwrap_or_default(),
        })
    }
}

/// The key that configs on the boot medium are signed with, as init left it; `None`: the image that runs has none.
pub fn kept_config_key(root: &Path) -> Result<Option<PublicKey>, Error> {
    let path = root.join(KEPT_KEY_PATH.trim_start_matches('/'));
    match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => config_key(&other.map_err(Error::read(&path))?),
    }
}

/// None, or one of the right length.
fn config_key(bytes: &[u8]) -> Result<Option<PublicKey>, Error> {
    match (bytes, PublicKey::try_from(bytes)) {
        ([], _) => Ok(None),
        (_, Ok(key)) => Ok(Some(key)),
        (_, Err(_)) => {
            let source = io::Error::other(format!("it has {} bytes, and a key has {KEY_BYTES}", bytes.len()));
            Err(Error::read(Path::new(names::CONFIG_KEY))(source))
        }
    }
}

/// A layer of the running system as a layer file: the bytes of the device below its verity device, data and hash tree.
/// Nothing is hashed on the way, neither by the kernel nor here: [`crate::slot::write`] compares what the disk kept with the
/// manifest, and that proves both ends.
pub fn running_layer(root: &Path, layer: &Layer, device: &Path) -> Result<Box<dyn Read>, Error> {
    let name = device.file_name().unwrap_or_default();
    let below = root.join("sys/class/block").join(name).join("slaves");
    let names = fs::read_dir(&below).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let names = names.map_err(Error::read(&below))?;
    let [one] = names.as_slice() else {
        let reason = io::Error::other(format!("{} devices, not one", names.len()));
        return Err(Error::read(&below)(reason));
    };
    let path = root.join("dev").join(one.file_name());
    let file = File::open(&path).map_err(Error::read(&path))?;
    Ok(Box::new(file.take(layer.total_bytes())))
}

#[cfg(test)]
#[cfg(feature = "image")]
mod signed_tests;
#[cfg(test)]
mod tests;
