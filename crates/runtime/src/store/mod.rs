//! The resource store: typed, versioned, in memory.
//!
//! Owns: every resource, its version, and the ring of changes that watchers read.
//! Does not: persist anything, interpret a spec, or decide who may read (the API server does).
//! Order: a write takes the lock, checks the writer, stores, and broadcasts before it releases the lock; a watch
//! takes its snapshot and its subscription under the same lock, so no change is lost or seen twice.
//! Fails by: [`StoreError`]; a write by anyone but the type's writer is a bug in the caller and changes nothing.

mod addressing;
mod binary;
mod block;
mod definition;
mod document;
mod facts;
mod hardware;
mod history;
mod kubernetes;
mod link;
mod network_specs;
mod registry;
mod resource;
mod root_secrets;
mod runtime;
mod sections;
mod source;
mod spec;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Notify, broadcast};

use history::History;

use crate::request;

pub use addressing::*;
pub use binary::BinaryError;
pub use binary::OURS;
pub use block::*;
pub use definition::{Column, Definition, Sensitivity};
pub use document::MachineDocument;
pub use facts::*;
pub use hardware::*;
pub use history::{BadBookmark, Bookmark};
pub use kubernetes::*;
pub use link::*;
pub use network_specs::*;
pub use registry::{
    ADDRESS_STATUS, ALL, API_CERTIFICATE, BOOT_TIMELINE, CLOCK_SOURCE, DEFAULT_ROUTE, DHCP_LEASE,
    FILE_STATUS, HOSTNAME_STATUS, IN_FORCE, INIT_STATUS, KERNEL_PARAM_STATUS, LINK_STATUS, MACHINE_CONFIG,
    MACHINE_TYPE, MOUNT_STATUS, NAMESPACE, NAMESPACES, PERSISTENT, RESOURCE_DEFINITION, ROOT_LAYER,
    ROUTE_STATUS, SERVICE, TIME_SERVER_STATUS, TIME_STATUS, Unresolved, resolve,
};
pub use resource::{Metadata, Phase, Resource};
pub use root_secrets::*;
pub use runtime::*;
#[cfg(any(test, feature = "testing"))]
pub use samples::samples;
pub use sections::*;
pub use source::{Source, Tell};
pub use spec::{
    AddressStatus, BootTimeline, ClockSource, DhcpLease, FileStatus, HostnameStatus, InitStatus,
    KernelParamStatus, MountStatus, RootLayer, RouteStatus, ServiceStatus, Spec, TimeStatus, TimelineEntry,
};

/// Changes that a watch may lag behind before it is cut off.
const RING: usize = 1000;

/// A refused write.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StoreError {
    /// Each type has one writer.
    #[error("{kind} {id:?} belongs to {writer}, not to {caller}")]
    Writer {
        /// Resource type.
        kind: &'static str,
        /// Resource id.
        id: String,
        /// Who may write.
        writer: &'static str,
        /// Who tried.
        caller: String,
    },
}

/// What happened to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It did not exist before.
    Created,
    /// Its spec or phase changed.
    Updated,
    /// It is gone; the change carries its last state.
    Destroyed,
}

/// One entry of the ring.
#[derive(Debug, Clone)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The resource after the change (before it, when destroyed).
    pub resource: Arc<Resource>,
    /// The state before an update.
    pub old: Option<Arc<Resource>>,
    /// Its place in the order of all changes.
    pub bookmark: Bookmark,
}

/// Whether resources of some types have changed, and no more: changes of other types wake nothing.
#[derive(Debug)]
pub struct Changes(Arc<Notify>);

impl Changes {
    /// Waits until a resource of one of the types has changed. The caller reads them anew: several changes are one here. It may be
    /// dropped and called again; no change is missed between.
    pub async fn next(&mut self) {
        self.0.notified().await;
    }
}

/// A type's past, present and future, without a gap between them.
#[derive(Debug)]
pub struct Watch {
    /// Kept changes, oldest first.
    pub past: Vec<Change>,
    /// Resources, sorted by id.
    pub now: Vec<Arc<Resource>>,
    /// Every later change of the store in order.
    pub later: broadcast::Receiver<Change>,
    /// Where the present is in the order of all changes.
    pub bookmark: Bookmark,
}

type Key = (&'static str, String);

#[derive(Debug, Default)]
struct Items {
    resources: BTreeMap<Key, Arc<Resource>>,
    /// What has the resources of a type that are not above.
    sources: BTreeMap<&'static str, Arc<dyn Source>>,
    /// Who follows a type.
    followers: BTreeMap<&'static str, Vec<Weak<Notify>>>,
    history: History,
}

impl Items {
    fn list(&self, kind: &'static Definition) -> Vec<Arc<Resource>> {
        if let Some(source) = self.sources.get(kind.kind) {
            return source.list();
        }
        let from = self.resources.range((kind.kind, String::new())..);
        from.take_while(|((name, _), _)| *name == kind.kind).map(|(_, resource)| resource.clone()).collect()
    }
}

#[derive(Debug)]
struct Shared {
    items: Mutex<Items>,
    changes: broadcast::Sender<Change>,
}

/// Of a resource that was not there.
const FIRST_VERSION: u64 = 1;

/// A handle to the store; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// A store that holds its own definitions and namespaces.
    pub fn new() -> Self {
        let (changes, _) = broadcast::channel(RING);
        let store = Self { shared: Arc::new(Shared { items: Mutex::default(), changes }) };
        store.register();
        store
    }

    fn register(&self) {
        for (name, description) in NAMESPACES {
            self.insert(&NAMESPACE, name, Spec::Namespace { description }, FIRST_VERSION);
        }
        for definition in ALL.iter().filter(|definition| !definition.internal) {
            self.insert(&RESOURCE_DEFINITION, &definition.id(), Spec::Definition(definition), FIRST_VERSION);
        }
    }

    fn items(&self) -> MutexGuard<'_, Items> {
        self.shared.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates or updates a resource; an equal spec changes nothing. Says whether something changed. Types that a [`Source`] has are
    /// changed by [`Self::change`] instead.
    pub fn put(
        &self,
        caller: &str,
        kind: &'static Definition,
        id: &str,
        spec: Spec,
    ) -> Result<bool, StoreError> {
        self.put_from(caller, kind, id, spec, FIRST_VERSION)
    }

    /// The same; one that is new has this version. What an earlier machined told of it by its version stays true.
    pub fn put_from(
        &self,
        caller: &str,
        kind: &'static Definition,
        id: &str,
        spec: Spec,
        first_version: u64,
    ) -> Result<bool, StoreError> {
        check_writer(caller, kind, id)?;
        Ok(self.insert(kind, id, spec, first_version))
    }

    fn insert(&self, kind: &'static Definition, id: &str, spec: Spec, first_version: u64) -> bool {
        // A resource that changed and was not announced would be missed by every controller.
        let _outside = request::outside();
        let mut items = self.items();
        let (new, old) = match items.resources.entry((kind.kind, id.to_owned())) {
            Entry::Occupied(entry) if entry.get().spec == spec => return false,
            Entry::Occupied(mut entry) => {
                let new = Arc::new(entry.get().updated(spec));
                (new.clone(), Some(entry.insert(new)))
            }
            Entry::Vacant(entry) => {
                let new = Arc::new(Resource::created(kind, id, spec, first_version));
                (entry.insert(new).clone(), None)
            }
        };
        let change = if old.is_some() { ChangeKind::Updated } else { ChangeKind::Created };
        self.announce(&mut items, change, new, old);
        true
    }

    /// Removes a resource. Says whether it existed.
    pub fn remove(&self, caller: &str, kind: &'static Definition, id: &str) -> Result<bool, StoreError> {
        check_writer(caller, kind, id)?;
        let _outside = request::outside();
        let mut items = self.items();
        let Some(last) = items.resources.remove(&(kind.kind, id.to_owned())) else { return Ok(false) };
        self.announce(&mut items, ChangeKind::Destroyed, last, None);
        Ok(true)
    }

    /// Makes the ids of a type exactly those given.
    pub fn replace(
        &self,
        caller: &str,
        kind: &'static Definition,
        wanted: Vec<(String, Spec)>,
    ) -> Result<(), StoreError> {
        let present = self.list(kind);
        // Of many new ones none is looked for.
        let known = if present.is_empty() { &[][..] } else { &wanted };
        let ids: BTreeSet<&str> = known.iter().map(|(id, _)| id.as_str()).collect();
        for present in present {
            if !ids.contains(present.metadata.id.as_str()) {
                self.remove(caller, kind, &present.metadata.id)?;
            }
        }
        for (id, spec) in wanted {
            self.put(caller, kind, &id, spec)?;
        }
        Ok(())
    }

    fn announce(
        &self,
        items: &mut Items,
        kind: ChangeKind,
        resource: Arc<Resource>,
        old: Option<Arc<Resource>>,
    ) {
        for follower in items.followers.get(resource.metadata.kind).into_iter().flatten() {
            if let Some(follower) = follower.upgrade() {
                follower.notify_one();
            }
        }
        let bookmark = items.history.bookmark();
        let change = items.history.add(Change { kind, resource, old, bookmark });
        // An error only says that nobody watches.
        let _ = self.shared.changes.send(change);
    }

    /// One resource.
    pub fn get(&self, kind: &'static Definition, id: &str) -> Option<Arc<Resource>> {
        let items = self.items();
        match items.sources.get(kind.kind) {
            Some(source) => source.get(id),
            None => items.resources.get(&(kind.kind, id.to_owned())).cloned(),
        }
    }

    /// All resources of a type, sorted by id.
    pub fn list(&self, kind: &'static Definition) -> Vec<Arc<Resource>> {
        self.items().list(kind)
    }

    /// The resources of a type now, and every later change of the store in order.
    pub fn watch(&self, kind: &'static Definition) -> (Vec<Arc<Resource>>, broadcast::Receiver<Change>) {
        let items = self.items();
        (items.list(kind), self.shared.changes.subscribe())
    }

    /// All that is known of a type; with a bookmark, only the past after it.
    pub fn observe(&self, kind: &'static Definition, after: Option<Bookmark>) -> Result<Watch, BadBookmark> {
        let items = self.items();
        let past = match after {
            Some(bookmark) => items.history.after(kind.kind, bookmark)?,
            None => items.history.of(kind.kind),
        };
        Ok(Watch {
            past,
            now: items.list(kind),
            later: self.shared.changes.subscribe(),
            bookmark: items.history.bookmark(),
        })
    }

    /// Every later change of the store in order.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.shared.changes.subscribe()
    }

    /// Follows later changes of these types.
    pub fn follow(&self, kinds: &[&'static Definition]) -> Changes {
        let follower = Arc::new(Notify::new());
        let mut items = self.items();
        for kind in kinds {
            let of_kind = items.followers.entry(kind.kind).or_default();
            of_kind.retain(|follower| follower.strong_count() > 0);
            of_kind.push(Arc::downgrade(&follower));
        }
        Changes(follower)
    }
}

fn check_writer(caller: &str, kind: &'static Definition, id: &str) -> Result<(), StoreError> {
    if kind.writer == caller && !caller.is_empty() {
        return Ok(());
    }
    Err(StoreError::Writer {
        kind: kind.kind,
        id: id.to_owned(),
        writer: kind.writer,
        caller: caller.to_owned(),
    })
}

#[cfg(any(test, feature = "testing"))]
mod samples;
#[cfg(any(test, feature = "testing"))]
mod samples_kubernetes;
#[cfg(test)]
mod sheet_tests;
#[cfg(any(test, feature = "testing"))]
pub mod sheets;
#[cfg(test)]
mod tests;
