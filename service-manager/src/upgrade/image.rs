//! The check of a request, before anything changes: the image, this node, and whether one fits the other.
//!
//! Owns: an image that can be installed ([`Found`]), wherever it lies, and the one walk in which it is read.
//! Order: what costs nothing first (the reference, this node's disk), then the registry. Of an image the manifest comes
//! first, then what boots, then the layers: nothing is read twice, but for what somebody added to our image, and what boots
//! where it must be signed.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::v1alpha1::Registries;
use installer::Error;
use installer::device::Disk;
use installer::entries::Entry;
use installer::system::{BootParts, System, names};
use installer::upgrade::Slot;
use oci::Reference;
use oci::archive::Archive;
use oci::document::Descriptor;
use oci::files::{Files, Source};
use oci::installer::{Facts, Walk, own_layers};
use oci::registry::{Client, Image, Patience, Reader, Settings};
use ondisk::Architecture;
use ondisk::manifest::{Layer, RootManifest};
use runtime::Runtime;
use tokio::runtime::Handle;

use super::failure::{Failure, blocking};
use super::signatures::Ruling;
use super::{booted, import, registries};
use crate::controllers::variables;
use crate::secure_boot;
use crate::system_disk::{self, SystemDisk};

/// How long somebody waits for what an image says of itself.
pub(crate) const CALL_PATIENCE: Patience =
    Patience { stall: Duration::from_secs(20), total: Duration::from_secs(60) };

/// An image that a node of this version can install.
pub(crate) struct Found {
    /// As it was asked for.
    pub(crate) name: String,
    /// What the image says of itself.
    pub(crate) facts: Facts,
    /// Which layers make its root.
    pub(crate) manifest: RootManifest,
    /// Its kernel was added by who built on the image: its layers know nothing of it.
    pub(crate) brings_kernel: bool,
    source: Blobs,
}

/// An image, and where on this node it goes.
pub(crate) struct Prepared {
    pub(crate) image: Found,
    pub(super) here: Here,
}

/// The layers of an image that is being read.
pub(crate) struct Layers {
    walk: Rc<RefCell<Walk<'static>>>,
    /// File name of the last one.
    last: Option<String>,
}

impl Found {
    /// Begins to read it: what boots, and the layers in their order. Blocks. However long the look-up was allowed to
    /// take, this may take as long as a pull: a slow registry is no wrong one.
    pub(crate) fn open(&self) -> Result<(BootParts, Layers), Failure> {
        let mut walk = self.source.anew().walk();
        // Read once more to come to what is behind it; its digest is that of the one which counts.
        walk.manifest().map_err(broken)?;
        let mut boot = walk.boot().map_err(broken)?;
        let missing = |name: &str| {
            io::Error::new(io::ErrorKind::NotFound, format!("the image has no boot part {name}"))
        };
        let boot = BootParts::by_name(|name| match boot.remove(name) {
            None if name == names::KERNEL => Err(Error::NoKernel { system: self.name.clone() }),
            found => found.ok_or_else(|| Error::Read { path: name.into(), source: missing(name) }),
        })?;
        let last = self.manifest.layers.last().map(Layer::file_name);
        Ok((boot, Layers { walk: Rc::new(RefCell::new(walk)), last }))
    }
}

impl Layers {
    /// The next layer, which must be this one.
    pub(crate) fn layer(&self, layer: &Layer) -> Result<Box<dyn Read>, Error> {
        let name = layer.file_name();
        let found = self.walk.borrow_mut().layer(&name);
        found.map_err(|source| Error::ReadLayer { layer: layer.name.clone(), source })?;
        Ok(Box::new(Shared { walk: self.walk.clone(), is_last: self.last.as_ref() == Some(&name) }))
    }
}

/// Where this node runs from.
#[derive(Debug, Clone)]
pub(super) struct Here {
    pub(super) disk: SystemDisk,
    pub(super) slot: Slot,
    pub(super) entry: Entry,
}

/// The layers of an image.
#[derive(Clone)]
struct Blobs {
    layers: Vec<Descriptor>,
    /// How many of them are ours, as the image's label says.
    own: Option<usize>,
    place: Place,
}

/// Where they lie.
#[derive(Clone)]
enum Place {
    Registry(Arc<Client>, Handle),
    Archive(Arc<Archive>),
}

impl Blobs {
    /// The same with all the time of a pull before it.
    fn anew(&self) -> Self {
        let place = match &self.place {
            Place::Registry(client, runtime) => {
                Place::Registry(Arc::new(client.anew(Patience::default())), runtime.clone())
            }
            Place::Archive(archive) => Place::Archive(archive.clone()),
        };
        Self { place, ..self.clone() }
    }

    /// A walk over its files, for code that blocks.
    fn walk(&self) -> Walk<'static> {
        let blobs = self.clone();
        let open = move |number: usize| -> io::Result<Option<Source>> {
            let Some(layer) = blobs.layers.get(number).cloned() else { return Ok(None) };
            match &blobs.place {
                Place::Registry(client, runtime) => {
                    Ok(Some(Box::new(Reader::new(runtime, client.clone(), layer))))
                }
                Place::Archive(archive) => archive.blob(&layer).map(Some).map_err(io::Error::other),
            }
        };
        Walk::new(Files::new(Box::new(open)), Architecture::OWN, self.layers.len(), self.own)
    }
}

/// Looks at everything that can be wrong with an upgrade to this image.
pub(crate) async fn prepare(
    runtime: &Arc<Runtime>,
    name: &str,
    patience: Patience,
) -> Result<Prepared, Failure> {
    // A wrong word is answered before a disk is looked at.
    let _: Reference = name.parse().map_err(Failure::from)?;
    let here = here(runtime).await?;
    if here.entry.trial.is_some() {
        let name = here.entry.to_string();
        return Err(Error::OnTrial { name }.into());
    }
    let image = look_up(runtime, name, patience).await?;
    check_room(&here, &image.manifest)?;
    let image = check_signed(runtime, image).await?;
    Ok(Prepared { image, here })
}

/// With Secure Boot what boots is read before anything is noted or written: whether it would start.
async fn check_signed(runtime: &Arc<Runtime>, image: Found) -> Result<Found, Failure> {
    if !secure_boot::is_on(&runtime.root) {
        return Ok(image);
    }
    let runtime = runtime.clone();
    runtime.journal.say(&format!("upgrade: reads what boots of {}: Secure Boot has to start it", image.name));
    blocking(move || {
        let (boot, _) = image.open()?;
        let system = System { manifest: image.manifest.clone(), boot };
        let arguments = extra_arguments(&runtime);
        secure_boot::uki(&runtime, &image.name, &system, &arguments, &[]).map_err(Failure::Refused)?;
        Ok(image)
    })
    .await
}

/// Finds an image and reads what it says of itself.
pub(crate) async fn look_up(runtime: &Runtime, name: &str, patience: Patience) -> Result<Found, Failure> {
    let reference: Reference = name.parse().map_err(Failure::from)?;
    let ruling = Ruling::of(runtime, &reference)?;
    let (source, config) = if import::is_import(&reference) {
        ruling.check_import(&reference)?;
        let root = runtime.root.clone();
        let (archive, manifest, config) = blocking(move || import::open(&root, &reference)).await?;
        let own = own_layers(&config);
        (Blobs { layers: manifest.layers, own, place: Place::Archive(Arc::new(archive)) }, config)
    } else {
        let (client, image) = resolve(runtime, reference, patience).await?;
        ruling.check(&client, &image).await?;
        let place = Place::Registry(client, Handle::current());
        let own = own_layers(&image.config);
        (Blobs { layers: image.manifest.layers, own, place }, image.config)
    };
    let facts = oci::installer::facts(name, &config, &runtime.boot.version)?;
    let blobs = source.clone();
    let read = move || {
        let mut walk = blobs.walk();
        let text = walk.manifest().map_err(broken)?;
        Ok((text, walk.brings_kernel()))
    };
    let (text, brings_kernel) = blocking(read).await?;
    let manifest = RootManifest::parse(&text)
        .map_err(|error| Failure::Refused(format!("the root manifest of {name}: {error}")))?;
    if manifest.version != facts.version {
        let text = format!(
            "{name} says that it is version {}, and its root manifest says {}: the image is broken",
            facts.version, manifest.version
        );
        return Err(Failure::Refused(text));
    }
    Ok(Found { name: name.to_owned(), facts, manifest, brings_kernel, source })
}

/// A client for an image that a user pulls, with all the time of a pull.
pub(crate) fn registry_of(runtime: &Runtime, name: &str) -> Result<Client, Failure> {
    let reference: Reference = name.parse().map_err(Failure::from)?;
    client(runtime, reference, Patience::default())
}

/// By the config's registries and the node's proxies.
fn client(runtime: &Runtime, reference: Reference, patience: Patience) -> Result<Client, Failure> {
    let registries = runtime.config().map(|config| config.machine.registries.clone()).unwrap_or_default();
    let settings = settings(runtime, &registries).map_err(Failure::Refused)?;
    Ok(Client::new(reference, settings, patience)?)
}

/// How what is no image is downloaded: the node's proxies and authorities, and nothing that is meant for registries.
pub(crate) fn download_settings(runtime: &Runtime) -> Result<Settings, String> {
    settings(runtime, &Registries::default())
}

fn settings(runtime: &Runtime, registries: &Registries) -> Result<Settings, String> {
    registries::settings(
        registries,
        &variables(&runtime.parameters, runtime.config().as_deref()),
        runtime.path(registries::AUTHORITIES),
    )
}

/// The documents of an image, by the config's registries.
pub(crate) async fn resolve(
    runtime: &Runtime,
    reference: Reference,
    patience: Patience,
) -> Result<(Arc<Client>, Image), Failure> {
    let client = Arc::new(client(runtime, reference, patience)?);
    let image = client.image(Architecture::OWN.name()).await?;
    Ok((client, image))
}

/// Kernel arguments that the config adds, as the installation had them.
pub(super) fn extra_arguments(runtime: &Runtime) -> Vec<String> {
    runtime.config().map(|config| config.machine.install.extra_kernel_args.clone()).unwrap_or_default()
}

/// Where this node runs from.
pub(super) async fn here(runtime: &Arc<Runtime>) -> Result<Here, Failure> {
    let runtime = runtime.clone();
    blocking(move || {
        let disk = system_disk::find(&runtime).map_err(Failure::Outside)?;
        let none = || {
            Failure::Refused(
                "this node does not run from an installed disk: install it first, then it can be upgraded"
                    .into(),
            )
        };
        let disk = disk.ok_or_else(none)?;
        let slot = disk.slot.ok_or_else(none)?;
        system_disk::refuse_twin(&runtime, &disk.path).map_err(Failure::Refused)?;
        let mut device = Disk::open_shared(&disk.path).map_err(Error::from)?;
        let entry = booted::entry(&mut device, &disk.table, &runtime.root).map_err(Failure::Refused)?;
        Ok(Here { disk, slot, entry })
    })
    .await
}

fn check_room(here: &Here, manifest: &RootManifest) -> Result<(), Failure> {
    let name = here.slot.other().partition();
    let table = &here.disk.table;
    let slot = table.by_name(name).ok_or(Error::NoPartition { name })?;
    let (needed_bytes, slot_bytes) = (manifest.slot_bytes(), table.size_bytes(slot));
    if needed_bytes > slot_bytes {
        return Err(Error::SlotTooSmall { needed_bytes, slot_bytes }.into());
    }
    Ok(())
}

/// What a stream says, with the registry's own error where there is one.
fn broken(error: io::Error) -> Failure {
    match error.downcast::<oci::Error>() {
        Ok(error) => error.into(),
        Err(error) => Failure::Outside(error.to_string()),
    }
}

/// Files of an image that are read while others hold the walk too.
struct Shared {
    walk: Rc<RefCell<Walk<'static>>>,
    /// Behind the last file everything else is read, so that every digest was compared.
    is_last: bool,
}

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut walk = self.walk.borrow_mut();
        let count = walk.read(buffer)?;
        if count == 0 && !buffer.is_empty() && self.is_last {
            walk.finish()?;
        }
        Ok(count)
    }
}

#[cfg(test)]
pub(crate) mod tests;
