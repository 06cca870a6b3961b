//! META on the node: values by tag that outlive upgrades, and resources that show them.
//!
//! Owns: the values as the API and other parts of machined see them; the RPCs' rules for keys.
//! Does not: know what a value means; write intents (`installer::meta` does, under the same lock).
//! Order: a value is on the disk, in both copies, before anyone is told that it is set.
//! Fails by: [`MetaError`]. On a node whose disk has no META, or without a disk, values live as long as machined, and a
//! line in the log says so.
//! Source: docs/formats/meta.md.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use installer::device::{BlockDevice, Disk};
use ondisk::meta::{Meta as Values, tags};
use runtime::journal::Journal;
use runtime::store::{META_KEY, MetaKey, RuntimeSpec, Spec, Store};

use crate::system_disk;
use runtime::Runtime;

/// Clients' keys are one byte; 0 ends the list on the disk.
pub(crate) const KEYS: std::ops::RangeInclusive<u32> = 1..=255;

/// Values that a reader of resources does not see: how STATE is unlocked, and what only this machine has.
const HIDDEN: [u32; 2] = [tags::STATE_ENCRYPTION, tags::MACHINE_TOKEN];

/// A handle to META; clones share it.
#[derive(Debug, Clone)]
pub struct Meta {
    inner: Arc<Mutex<Inner>>,
    store: Store,
    journal: Journal,
}

#[derive(Debug, Default)]
struct Inner {
    /// The partition, once it is found.
    device: Option<PathBuf>,
    values: Values,
}

/// Why a value could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// The partition could not be opened, read or written.
    #[error("META on {device}: {reason}")]
    Device {
        /// The partition.
        device: String,
        /// Why.
        reason: String,
    },
    /// The value does not fit.
    #[error(transparent)]
    Value(#[from] ondisk::meta::Error),
}

impl Meta {
    /// A META in memory.
    #[must_use]
    pub fn new(store: Store, journal: Journal) -> Self {
        Self { inner: Arc::default(), store, journal }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a tag.
    #[must_use]
    pub fn get(&self, tag: u32) -> Option<Vec<u8>> {
        self.inner().values.get(tag).map(<[u8]>::to_vec)
    }

    /// Sets a value; durable when this returns.
    pub async fn set(&self, tag: u32, value: &[u8]) -> Result<(), MetaError> {
        let value = value.to_vec();
        self.change(move |values| values.set(tag, &value).map(|()| true)).await.map(drop)
    }

    /// Removes a value; durable when this returns. Says whether there was one.
    pub async fn delete(&self, tag: u32) -> Result<bool, MetaError> {
        self.change(move |values| Ok(values.remove(tag))).await
    }

    /// Sets a value as [`Self::set`] does. Blocks.
    pub(crate) fn set_now(&self, tag: u32, value: &[u8]) -> Result<(), MetaError> {
        self.change_now(|values| values.set(tag, value).map(|()| true)).map(drop)
    }

    /// Removes a value as [`Self::delete`] does. Blocks.
    pub(crate) fn delete_now(&self, tag: u32) -> Result<bool, MetaError> {
        self.change_now(|values| Ok(values.remove(tag)))
    }

    /// Reads the values again: somebody else of us has changed them. Blocks.
    pub(crate) fn refresh(&self) -> Result<(), MetaError> {
        match self.device() {
            Some(_) => self.change_now(|_| Ok(false)).map(drop),
            None => Ok(()),
        }
    }

    /// Where the values are kept; `None`: in memory.
    #[must_use]
    pub fn device(&self) -> Option<PathBuf> {
        self.inner().device.clone()
    }

    /// Uses this partition from now on. Values that were set before it was found are written to it, where it has none
    /// of its own. Blocks.
    pub fn open(&self, device: &Path) -> Result<(), MetaError> {
        let mut inner = self.inner();
        if inner.device.as_deref() == Some(device) {
            return Ok(());
        }
        let early = std::mem::take(&mut inner.values);
        let values = on_device(device, |part| {
            for fault in installer::meta::read(part)?.faults.iter().flatten() {
                self.journal.say(&format!("META on {}: a copy does not count: {fault}", device.display()));
            }
            installer::meta::update(part, |values| {
                early.iter().try_for_each(|(tag, value)| match values.get(tag) {
                    Some(_) => Ok(()),
                    None => values.set(tag, value),
                })
            })
        });
        match values {
            Ok(values) => *inner = Inner { device: Some(device.to_owned()), values },
            Err(error) => {
                inner.values = early;
                return Err(error);
            }
        }
        self.publish(&inner.values);
        Ok(())
    }

    /// Forgets the partition, which is gone or wiped.
    pub fn close(&self) {
        *self.inner() = Inner::default();
        self.publish(&Values::default());
    }

    async fn change(
        &self,
        change: impl FnOnce(&mut Values) -> Result<bool, ondisk::meta::Error> + Send + 'static,
    ) -> Result<bool, MetaError> {
        let meta = self.clone();
        runtime::request::blocking(move || meta.change_now(change)).await
    }

    fn change_now(
        &self,
        change: impl FnOnce(&mut Values) -> Result<bool, ondisk::meta::Error>,
    ) -> Result<bool, MetaError> {
        let mut inner = self.inner();
        let mut did = false;
        let act = |values: &mut Values| {
            did = change(values)?;
            Ok(())
        };
        inner.values = match inner.device.clone() {
            Some(device) => on_device(&device, |part| installer::meta::update(part, act))?,
            None => {
                let mut values = inner.values.clone();
                act(&mut values)?;
                self.journal.warn("META: this node has no such partition: the value lasts until it restarts");
                values
            }
        };
        self.publish(&inner.values);
        Ok(did)
    }

    fn publish(&self, values: &Values) {
        let shown = values.iter().filter(|(tag, _)| KEYS.contains(tag)).map(|(tag, value)| {
            let value = match HIDDEN.contains(&tag) {
                true => "(not shown)".to_owned(),
                false => String::from_utf8_lossy(value).into_owned(),
            };
            (format!("0x{tag:02x}"), Spec::Runtime(RuntimeSpec::MetaKey(MetaKey { value })))
        });
        if let Err(error) = self.store.replace(META_KEY.writer, &META_KEY, shown.collect()) {
            self.journal.warn(&error.to_string());
        }
    }
}

fn on_device<T>(
    device: &Path,
    act: impl FnOnce(&mut dyn BlockDevice) -> Result<T, installer::Error>,
) -> Result<T, MetaError> {
    let done = Disk::open_shared(device).map_err(installer::Error::from).and_then(|mut part| act(&mut part));
    done.map_err(|error| MetaError::Device {
        device: device.display().to_string(),
        reason: runtime::errors::chain(&error),
    })
}

/// Opens META of the disk that the system is installed on, if there is one. Blocks.
pub(crate) fn open_on_system_disk(runtime: &Runtime, meta: &Meta) {
    match try_open_on_system_disk(runtime, meta) {
        Ok(Opened::NoPartition(disk)) => {
            runtime.journal.warn(&format!("META: {} has no such partition", disk.display()));
        }
        Ok(Opened::Yes | Opened::NoDisk) => {}
        Err(error) => runtime.journal.warn(&error),
    }
}

/// Whether there is a META.
pub(crate) enum Opened {
    Yes,
    /// The machine has no installed disk.
    NoDisk,
    /// Its disk has no such partition.
    NoPartition(PathBuf),
}

/// The same; says why it is not known which it is, or why it cannot be read. Blocks.
pub(crate) fn try_open_on_system_disk(runtime: &Runtime, meta: &Meta) -> Result<Opened, String> {
    let found = system_disk::find(runtime).map_err(|error| format!("META: {error}"))?;
    let Some(disk) = found else { return Ok(Opened::NoDisk) };
    let Some(partition) = disk.table.by_name("META") else { return Ok(Opened::NoPartition(disk.path)) };
    meta.open(&disk.partition_path(partition)).map_err(|error| error.to_string())?;
    Ok(Opened::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;

    fn meta(dir: &Path) -> (Meta, std::sync::Arc<Node>) {
        let node = crate::server::tests_node(dir.join("root"));
        (node.meta.clone(), node)
    }

    fn partition(dir: &Path) -> PathBuf {
        let path = dir.join("meta.img");
        std::fs::File::create(&path).unwrap().set_len(ondisk::meta::PARTITION_BYTES).unwrap();
        path
    }

    fn on_disk(path: &Path) -> Values {
        installer::meta::read(&mut Disk::open_shared(path).unwrap()).unwrap().meta
    }

    #[tokio::test]
    async fn values_are_on_the_disk_when_they_are_set() {
        let dir = tempfile::tempdir().unwrap();
        let (meta, node) = meta(dir.path());
        meta.set(12, b"early").await.unwrap();
        assert_eq!(meta.device(), None);
        let path = partition(dir.path());
        meta.open(&path).unwrap();
        assert_eq!(on_disk(&path).get(12), Some(&b"early"[..]));
        meta.set(13, b"later").await.unwrap();
        meta.set(16, b"a token").await.unwrap();
        assert_eq!(on_disk(&path).get(13), Some(&b"later"[..]));
        assert!(meta.delete(12).await.unwrap() && !meta.delete(12).await.unwrap());
        assert_eq!(on_disk(&path).get(12), None);
        let keys = node.runtime.store.list(&META_KEY);
        let shown: Vec<_> = keys.iter().map(|key| key.metadata.id.as_str()).collect();
        assert_eq!(shown, ["0x0d", "0x10"]);
        assert!(!format!("{keys:?}").contains("a token"));
    }

    #[tokio::test]
    async fn what_the_disk_has_counts_more_and_faults_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let (first, _node) = meta(dir.path());
        let path = partition(dir.path());
        first.open(&path).unwrap();
        first.set(12, b"kept").await.unwrap();
        let (second, _node) = meta(dir.path());
        second.set(12, b"new").await.unwrap();
        second.open(&path).unwrap();
        assert_eq!(second.get(12).unwrap(), b"kept");
        let too_long = vec![b'x'; 262_104];
        let error = second.set(13, &too_long).await.unwrap_err().to_string();
        assert!(error.contains("adv: overflow"), "{error}");
        assert_eq!((second.get(13), second.get(12).unwrap()), (None, b"kept".to_vec()));
        std::fs::remove_file(&path).unwrap();
        let error = second.set(13, b"x").await.unwrap_err().to_string();
        assert!(error.contains("meta.img") && error.contains("open"), "{error}");
    }
}
