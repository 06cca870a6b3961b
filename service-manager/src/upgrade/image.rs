//! The check of a request, before anything changes: the image, this node, and whether one fits the other.
//!
//! Order: what costs nothing first (the reference, this node's disk), then the registry.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use installer::device::Disk;
use installer::entries::Entry;
use installer::upgrade::Slot;
use oci::Reference;
use oci::document::Descriptor;
use oci::files::{Files, Source};
use oci::installer::{Facts, Walk};
use oci::registry::{Client, Image, Patience, Reader};
use ondisk::manifest::RootManifest;
use tokio::runtime::Handle;

use super::{Failure, booted, registries};
use crate::node::Node;
use crate::system_disk::{self, SystemDisk};

/// How long somebody waits for the answer to a call.
pub(crate) const CALL_PATIENCE: Patience =
    Patience { stall: Duration::from_secs(20), total: Duration::from_secs(60) };

/// An image that this node can install.
pub(crate) struct Prepared {
    /// As it was asked for.
    pub(crate) name: String,
    /// What the image says of itself.
    pub(crate) facts: Facts,
    pub(super) manifest: RootManifest,
    pub(super) source: Blobs,
    pub(super) here: Here,
}

/// Where this node runs from.
#[derive(Debug, Clone)]
pub(super) struct Here {
    pub(super) disk: SystemDisk,
    pub(super) slot: Slot,
    pub(super) entry: Entry,
}

/// The layers of an image in a registry.
#[derive(Clone)]
pub(super) struct Blobs {
    client: Arc<Client>,
    layers: Vec<Descriptor>,
    runtime: Handle,
}

impl Blobs {
    /// A walk over its files, for code that blocks.
    pub(super) fn walk(&self) -> Walk<'static> {
        let blobs = self.clone();
        let open = move |number: usize| -> io::Result<Option<Source>> {
            let layer = blobs.layers.get(number).cloned();
            Ok(layer.map(|layer| -> Source {
                Box::new(Reader::new(&blobs.runtime, blobs.client.clone(), layer))
            }))
        };
        Walk::new(Files::new(Box::new(open)))
    }
}

/// What machines are called in images.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Looks at everything that can be wrong with an upgrade to this image.
pub(crate) async fn prepare(node: &Arc<Node>, name: &str, patience: Patience) -> Result<Prepared, Failure> {
    let reference: Reference = name.parse().map_err(Failure::from)?;
    let here = here(node).await?;
    if here.entry.trial.is_some() {
        let name = here.entry.to_string();
        return Err(installer::Error::OnTrial { name }.into());
    }
    let (client, image) = resolve(node, reference, patience).await?;
    let facts = oci::installer::facts(name, &image.config, &node.boot.version).map_err(oci::Error::from)?;
    let source = Blobs { client, layers: image.manifest.layers, runtime: Handle::current() };
    let blobs = source.clone();
    let text = blocking(move || blobs.walk().manifest().map_err(broken)).await?;
    let manifest = RootManifest::parse(&text)
        .map_err(|error| Failure::Refused(format!("the root manifest of {name}: {error}")))?;
    if manifest.version != facts.version {
        let text = format!(
            "{name} says that it is version {}, and its root manifest says {}: the image is broken",
            facts.version, manifest.version
        );
        return Err(Failure::Refused(text));
    }
    check_room(&here, &manifest)?;
    Ok(Prepared { name: name.to_owned(), facts, manifest, source, here })
}

/// The documents of an image, by the config's registries.
pub(crate) async fn resolve(
    node: &Node,
    reference: Reference,
    patience: Patience,
) -> Result<(Arc<Client>, Image), Failure> {
    let settings = match node.config() {
        Some(config) => registries::settings(&config.machine.registries).map_err(Failure::Refused)?,
        None => registries::settings(&Default::default()).map_err(Failure::Refused)?,
    };
    let client = Arc::new(Client::new(reference, settings, patience)?);
    let image = client.image(architecture()).await?;
    Ok((client, image))
}

/// Where this node runs from.
pub(super) async fn here(node: &Arc<Node>) -> Result<Here, Failure> {
    let node = node.clone();
    blocking(move || {
        let disk = system_disk::find(&node).map_err(Failure::Outside)?;
        let none = || {
            Failure::Refused(
                "this node does not run from an installed disk: install it first, then it can be upgraded"
                    .into(),
            )
        };
        let disk = disk.ok_or_else(none)?;
        let slot = disk.slot.ok_or_else(none)?;
        let mut device = Disk::open_shared(&disk.path).map_err(installer::Error::from)?;
        let entry = booted::entry(&mut device, &disk.table, &node.root).map_err(Failure::Refused)?;
        Ok(Here { disk, slot, entry })
    })
    .await
}

fn check_room(here: &Here, manifest: &RootManifest) -> Result<(), Failure> {
    let name = here.slot.other().partition();
    let table = &here.disk.table;
    let slot = table.by_name(name).ok_or(installer::Error::NoPartition { name })?;
    let (needed_bytes, slot_bytes) = (manifest.slot_bytes(), table.size_bytes(slot));
    if needed_bytes > slot_bytes {
        return Err(installer::Error::SlotTooSmall { needed_bytes, slot_bytes }.into());
    }
    Ok(())
}

/// Runs disk work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::Outside(format!("the upgrade's task failed: {error}"))))
}

/// What a stream says, with the registry's own error where there is one.
pub(super) fn broken(error: io::Error) -> Failure {
    match error.downcast::<oci::Error>() {
        Ok(error) => error.into(),
        Err(error) => Failure::Outside(error.to_string()),
    }
}

/// Files of an image that are read while others hold the walk too.
pub(super) struct Shared {
    walk: std::rc::Rc<std::cell::RefCell<Walk<'static>>>,
    /// Behind the last file everything else is read, so that every digest was compared.
    is_last: bool,
}

impl Shared {
    pub(super) fn new(walk: &std::rc::Rc<std::cell::RefCell<Walk<'static>>>, is_last: bool) -> Self {
        Self { walk: walk.clone(), is_last }
    }
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
