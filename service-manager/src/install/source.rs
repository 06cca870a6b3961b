//! What is installed: the system that runs, or the image that the config names.
//!
//! Owns: the choice, and the parts of either.
//! Does not: choose the disk; write.
//! Order: the running system is what is installed, unless the config names an installer image of ours with another
//! system in it. Configs made for Talos name Talos' installer: nobody is asked for that one.
//! With Secure Boot an image is one with a signed UKI, and the running system's lies on the medium that it was started from.
//! Whatever is installed: addons of that medium come with it.
//! Fails by: [`Failure::Image`] when a registry does not answer: the image may be ours. An image that cannot be
//! installed is passed over with a warning, since the machine has a system that can.
//! Source: docs/users/installing.md.

use std::cell::RefCell;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::v1alpha1::Install;
use installer::system::{self, System};
use installer::{addon, boot_volume, grub};
use oci::registry::Patience;
use ondisk::Architecture;
use ondisk::manifest::{Layer, RootManifest};
use runtime::Runtime;

use super::failure::Failure;
use crate::upgrade::{self, Found, Layers};
use crate::{boot_medium, secure_boot};

/// Machines with UEFI have this directory.
const EFI: &str = "/sys/firmware/efi";
/// A machine that waits for a registry says so soon, and tries again.
const PATIENCE: Patience = Patience { stall: Duration::from_secs(20), total: Duration::from_secs(20 * 60) };
/// Where a signed medium has its UKI.
const MEDIUM_UKI: &str = "EFI/Linux/billet-000001.efi";
/// What people call the running system.
const RUNNING: &str = "the running system";
/// In the names of Talos' installer images, wherever they are kept.
const TALOS: [&str; 2] = ["talos", "siderolabs/"];

/// What is installed.
pub(super) enum Source {
    /// What runs.
    Running,
    /// An image.
    Image(Box<Found>),
}

/// The parts of what is installed. Kernel and initramfs are in the UKI by then, and not kept twice.
pub(super) struct Prepared {
    pub(super) manifest: RootManifest,
    pub(super) uki: Vec<u8>,
    pub(super) loader: Vec<u8>,
    pub(super) loader_config: String,
    /// Addons of the medium that the machine was started from, with their paths: its owner put them there.
    pub(super) addons: Vec<(String, Vec<u8>)>,
    /// Where there is no UEFI, or where the config asks for it. The running system's, as an upgrade leaves it, too.
    pub(super) grub: Option<grub::Parts>,
    /// Those of an image; the running system's come from the devices that it is mapped to.
    layers: Option<Rc<RefCell<Layers>>>,
}

/// What the config's image comes to.
pub(super) async fn choose(runtime: &Arc<Runtime>, name: &str) -> Result<Source, Failure> {
    if name.is_empty() {
        return Ok(Source::Running);
    }
    if is_talos(name) {
        pass_over(runtime, name, "it is Talos' installer");
        return Ok(Source::Running);
    }
    match image(runtime, name).await {
        Err(upgrade::Failure::Outside(reason)) => Err(Failure::Image(name.to_owned(), reason)),
        Err(failure) => {
            pass_over(runtime, name, &failure.to_string());
            Ok(Source::Running)
        }
        Ok(found) => Ok(found),
    }
}

/// An image that somebody asked for: it, or an error.
pub(super) async fn image(runtime: &Arc<Runtime>, name: &str) -> Result<Source, upgrade::Failure> {
    let found = upgrade::look_up(runtime, name, PATIENCE).await?;
    // Its boot parts lie in its layers: the same layers are the same system. What was signed lies in the image alone.
    let running = System::running(&runtime.root).ok().filter(|_| !secure_boot::is_on(&runtime.root));
    if !found.brings_kernel && running.is_some_and(|running| running.manifest == found.manifest) {
        return Ok(Source::Running);
    }
    Ok(Source::Image(Box::new(found)))
}

fn is_talos(name: &str) -> bool {
    TALOS.iter().any(|word| name.contains(word))
}

fn pass_over(runtime: &Runtime, name: &str, why: &str) {
    let version = &runtime.boot.version;
    runtime
        .journal
        .warn(&format!("machine.install.image {name}: {why}; the running system is installed ({version})"));
}

/// Whether the disk is to start without UEFI: this machine has none, or the config says so.
fn wants_grub(install: &Install, efi: &Path) -> bool {
    install.legacy_bios_support == Some(true) || !efi.exists()
}

impl Prepared {
    /// Reads it. Blocks.
    pub(super) fn new(runtime: &Runtime, source: &Source, install: &Install) -> Result<Self, Failure> {
        let (name, system, layers) = match source {
            Source::Running => (RUNNING, running(runtime)?, None),
            Source::Image(found) => {
                let (boot, layers) = found.open().map_err(|failure| Failure::Other(failure.to_string()))?;
                let system = System { manifest: found.manifest.clone(), boot };
                (found.name.as_str(), system, Some(Rc::new(RefCell::new(layers))))
            }
        };
        let uki = secure_boot::uki(runtime, name, &system, &install.extra_kernel_args, &[]);
        let uki = uki.map_err(|reason| match source {
            Source::Running => {
                Failure::Other(format!("{reason}; or name a signed image in machine.install.image"))
            }
            Source::Image(_) => Failure::Other(reason),
        })?;
        let System { manifest, boot } = system;
        let grub = wants_grub(install, &runtime.path(EFI))
            .then(|| grub::Parts::read(&runtime.root.join(system::DIRECTORY)))
            .transpose()?;
        let addons = boot_medium::addons(runtime).map_err(Failure::Other)?;
        addon::check_beside(&addons, &uki)?;
        let addons =
            addons.into_iter().map(|(name, content)| (format!("{}/{name}", addon::DIRECTORY), content));
        let (loader, loader_config) = (boot.loader, boot.loader_config);
        Ok(Self { manifest, uki, loader, loader_config, addons: addons.collect(), grub, layers })
    }

    /// A layer's bytes; those of an image in its order.
    pub(super) fn layer(&self, runtime: &Runtime, layer: &Layer) -> Result<Box<dyn Read>, installer::Error> {
        if let Some(layers) = &self.layers {
            return layers.borrow().layer(layer);
        }
        let report = runtime.boot.layers.iter().find(|report| report.name == layer.name);
        let device = report.map_or_else(PathBuf::new, |report| PathBuf::from(&report.device));
        system::running_layer(&runtime.root, layer, &device)
    }
}

/// The running system. With Secure Boot its UKI and loader are those of the medium, which are signed: nobody signs here.
fn running(runtime: &Runtime) -> Result<System, Failure> {
    let mut system = System::running(&runtime.root)?;
    if secure_boot::is_on(&runtime.root) {
        let read = |path: &str| boot_medium::file(runtime, path).map_err(Failure::Other);
        system.boot.signed_uki = read(MEDIUM_UKI)?.unwrap_or_default();
        if let Some(loader) = read(boot_volume::loader_path(Architecture::OWN))? {
            system.boot.loader = loader;
        }
    }
    Ok(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn talos_installers_are_known_by_their_names() {
        for name in [
            "r.example/siderolabs/installer:v1.13.9",
            "r.example/talos-systems/installer:v0.9.3",
            "factory.talos.example/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.13.9",
        ] {
            assert!(is_talos(name), "{name}");
        }
        assert!(!is_talos("r.example/billet/installer:0.2.0"));
    }

    #[test]
    fn a_disk_gets_grub_without_uefi_or_when_asked_for() {
        let asked = |legacy_bios_support| Install { legacy_bios_support, ..Install::default() };
        let (uefi, none) = (Path::new("/"), Path::new("/no/such/directory"));
        assert!(wants_grub(&asked(None), none) && wants_grub(&asked(Some(false)), none));
        assert!(wants_grub(&asked(Some(true)), uefi));
        assert!(!wants_grub(&asked(None), uefi) && !wants_grub(&asked(Some(false)), uefi));
    }

    #[tokio::test]
    async fn what_cannot_be_installed_is_passed_over_and_what_may_come_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        for name in ["", "r.example/siderolabs/installer:v1.13.9", "installer"] {
            assert!(matches!(choose(&runtime, name).await, Ok(Source::Running)), "{name}");
        }
        let gone = choose(&runtime, "127.0.0.1:9/billet/installer:1").await;
        let error = gone.err().map(|failure| failure.to_string()).unwrap_or_default();
        assert!(error.starts_with("machine.install.image 127.0.0.1:9/billet/installer:1: "), "{error}");
    }

    /// The registry that was asked what to install answers otherwise when it is installed.
    #[tokio::test]
    async fn what_is_installed_is_what_was_looked_up() {
        use crate::upgrade::image_tests::{CONTENT, NAME, node_of, served};
        let dir = tempfile::tempdir().unwrap();
        let (server, blobs) = served(dir.path()).await;
        let runtime = node_of(dir.path(), &server);
        for (file, digest) in blobs.iter().filter(|(file, _)| !file.contains("/layers/")) {
            let Ok(source) = choose(&runtime, NAME).await else { panic!("{file}: the image is not found") };
            assert!(matches!(source, Source::Image(_)), "{file}");
            server.change_after(digest, 0, CONTENT);
            let prepare = {
                let runtime = runtime.clone();
                move || {
                    Prepared::new(&runtime, &source, &Install::default())
                        .map(drop)
                        .map_err(|error| error.to_string())
                }
            };
            let error = tokio::task::spawn_blocking(prepare).await.unwrap().unwrap_err();
            assert!(
                error.contains(digest.as_str()) && error.contains("changed on the way"),
                "{file}: {error}"
            );
            server.change_after(digest, usize::MAX, CONTENT);
        }
    }
}
