//! Resources that are made when they are read.
//!
//! A resource of its own takes most of a kilobyte. A type of which a node may have a hundred thousand is kept by its writer in a
//! smaller form, and the store asks the writer whenever one is read.
//!
//! Order: the store's lock comes first, the source's own second. What a source has changes within [`Store::change`] alone, so that a
//! watch has every change once.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{ChangeKind, Definition, Resource, Store, StoreError, check_writer};
use crate::request;

/// Keeps the resources of one type. It is asked with the store's lock held, and calls nothing of the store.
pub trait Source: Any + fmt::Debug + Send + Sync {
    /// One of them.
    fn get(&self, id: &str) -> Option<Arc<Resource>>;
    /// All of them, sorted by id.
    fn list(&self) -> Vec<Arc<Resource>>;
}

/// Tells what became of a resource, and what it was before an update.
pub type Tell<'a> = dyn FnMut(ChangeKind, Arc<Resource>, Option<Arc<Resource>>) + 'a;

impl Store {
    /// From now on the resources of a type are those of `source`. Those of an earlier one are gone; what the new one has is to
    /// be told by [`Self::change`].
    ///
    /// # Errors
    /// When the type belongs to another writer.
    pub fn serve(
        &self,
        caller: &str,
        kind: &'static Definition,
        source: Arc<dyn Source>,
    ) -> Result<(), StoreError> {
        check_writer(caller, kind, "")?;
        let _outside = request::outside();
        let mut items = self.items();
        let before = items.sources.insert(kind.kind, source);
        for resource in before.map(|before| before.list()).unwrap_or_default() {
            self.announce(&mut items, ChangeKind::Destroyed, resource, None);
        }
        Ok(())
    }

    /// The source of a type, for questions that its writer answers better than a list of all.
    #[must_use]
    pub fn source<S: Source>(&self, kind: &'static Definition) -> Option<Arc<S>> {
        let source: Arc<dyn Any + Send + Sync> = self.items().sources.get(kind.kind)?.clone();
        source.downcast().ok()
    }

    /// Changes what the source of a type has. `change` says each change to what it is given.
    ///
    /// # Errors
    /// When the type belongs to another writer.
    pub fn change<T>(
        &self,
        caller: &str,
        kind: &'static Definition,
        change: impl FnOnce(&mut Tell<'_>) -> T,
    ) -> Result<T, StoreError> {
        check_writer(caller, kind, "")?;
        let _outside = request::outside();
        let mut items = self.items();
        Ok(change(&mut |kind, resource, old| self.announce(&mut items, kind, resource, old)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use jiff::Timestamp;

    use super::*;
    use crate::store::{ROUTE_STATUS, SERVICE, Spec};

    /// Names of services, of which resources are made.
    #[derive(Debug, Default)]
    struct Names(Mutex<Vec<&'static str>>);

    fn resource(id: &str) -> Arc<Resource> {
        let spec = Spec::MachineType("worker");
        Arc::new(Resource::at(&SERVICE, id.to_owned(), spec, 3, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH))
    }

    impl Source for Names {
        fn get(&self, id: &str) -> Option<Arc<Resource>> {
            self.list().into_iter().find(|resource| resource.metadata.id == id)
        }

        fn list(&self) -> Vec<Arc<Resource>> {
            let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            names.iter().map(|name| resource(name)).collect()
        }
    }

    #[test]
    fn resources_of_a_source_are_read_and_watched_like_others() {
        let (store, names, writer) = (Store::new(), Arc::new(Names::default()), SERVICE.writer);
        store.serve(writer, &SERVICE, names.clone()).unwrap();
        assert!(store.list(&SERVICE).is_empty());
        let (_, mut later) = store.watch(&SERVICE);
        let add = |name: &'static str| {
            let change = |tell: &mut Tell<'_>| {
                names.0.lock().unwrap().push(name);
                tell(ChangeKind::Created, resource(name), None);
            };
            store.change(writer, &SERVICE, change).unwrap();
        };
        add("apid");
        add("machined");
        assert_eq!(store.list(&SERVICE).len(), 2);
        assert_eq!(store.get(&SERVICE, "machined").unwrap().metadata.version, 3);
        assert!(store.get(&SERVICE, "other").is_none());
        assert_eq!(store.observe(&SERVICE, None).unwrap().past.len(), 2);
        assert_eq!(later.try_recv().unwrap().kind, ChangeKind::Created);
        assert_eq!(later.try_recv().unwrap().resource.metadata.id, "machined");
        // Another source takes the place of the first one.
        store.serve(writer, &SERVICE, Arc::new(Names::default())).unwrap();
        assert!(store.list(&SERVICE).is_empty());
        assert_eq!(
            [later.try_recv(), later.try_recv()].map(|it| it.unwrap().kind),
            [ChangeKind::Destroyed; 2]
        );
        assert!(store.source::<Names>(&SERVICE).is_some() && store.source::<Names>(&ROUTE_STATUS).is_none());
        assert!(store.serve("other", &SERVICE, Arc::new(Names::default())).is_err());
        assert!(store.change("other", &ROUTE_STATUS, |_| ()).is_err());
    }
}
