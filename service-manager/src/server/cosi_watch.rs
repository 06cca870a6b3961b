//! The events of a watch over `cosi.resource.State`.
//!
//! Order: an empty message; then, as asked for, the past (a tail, or all since a bookmark), the present and BOOTSTRAPPED,
//! or a NOOP that only carries the bookmark; then every change. Each event carries the bookmark to go on from.
//! Fails by: an ERRORED event (an error status for a client that does not know it) when the reader falls behind.
//! Source: crates/api/proto/cosi/resource/state.proto.

use std::sync::Arc;

use api::proto::cosi::resource as proto;
use runtime::store::{Bookmark, Change, ChangeKind, Definition, Resource, Watch};
use tonic::Status;

use super::answers::Sender;
use super::cosi_form::{encode, tombstone};
use super::lists::turn;
use super::query;
use super::selection::Selection;
use crate::node::Node;

/// The version of the protocol that knows BOOTSTRAPPED and ERRORED.
const WITH_STATES: i32 = 1;

/// What a client watches.
pub(super) struct Request {
    kind: &'static Definition,
    namespace: String,
    id: Option<String>,
    selection: Selection,
    options: proto::WatchOptions,
    version: i32,
}

impl Request {
    pub(super) fn new(kind: &'static Definition, wire: proto::WatchRequest) -> Result<Self, Status> {
        let options = wire.options.unwrap_or_default();
        let selection = Selection::new(&options.label_query, options.id_query.as_ref())?;
        if options.start_from_bookmark.is_some() && options.bootstrap_contents {
            return Err(Status::invalid_argument(
                "a watch starts from a bookmark or with the contents, not both",
            ));
        }
        Ok(Self {
            kind,
            namespace: wire.namespace,
            id: wire.id,
            selection,
            options,
            version: wire.api_version,
        })
    }

    /// Where the store is now, and the past that is asked for.
    pub(super) fn observe(&self, node: &Node) -> Result<Watch, Status> {
        let bad = |e: runtime::store::BadBookmark| Status::failed_precondition(e.to_string());
        let after = self.options.start_from_bookmark.as_deref().map(Bookmark::from_bytes);
        node.runtime.store.observe(self.kind, after.transpose().map_err(bad)?).map_err(bad)
    }

    fn names(&self, resource: &Resource) -> bool {
        resource.metadata.kind == self.kind.kind
            && query::is_in(self.kind, &self.namespace)
            && self.id.as_ref().is_none_or(|id| *id == resource.metadata.id)
    }

    /// Sends everything. Ends when the reader goes or falls a whole ring behind.
    pub(super) async fn run(self, watch: Watch, sender: &Sender<proto::WatchResponse>) -> Result<(), ()> {
        let Watch { past, now, mut later, bookmark } = watch;
        // The first message says only that the watch has begun.
        sender.send(Ok(proto::WatchResponse { event: Vec::new() })).await.map_err(drop)?;
        let first = self.past(&past).into_iter().chain(self.present(&now, bookmark));
        self.send_all(first, sender).await?;
        loop {
            let change = tokio::select! {
                change = later.recv() => change,
                () = sender.closed() => return Err(()),
            };
            match change {
                Ok(change) => self.send_all(self.changed(&change).into_iter(), sender).await?,
                Err(_) => return self.give_up(sender).await,
            }
        }
    }

    /// Makes each event when there is room for it: a client that takes nothing costs nothing.
    async fn send_all(
        &self,
        events: impl Iterator<Item = Result<proto::Event, Status>> + Send,
        sender: &Sender<proto::WatchResponse>,
    ) -> Result<(), ()> {
        let mut events = events.peekable();
        if self.options.aggregated && events.peek().is_some() {
            let together: Result<Vec<_>, _> = events.collect();
            return sender.send(together.map(|event| proto::WatchResponse { event })).await.map_err(drop);
        }
        loop {
            let place = sender.reserve().await.map_err(drop)?;
            let turn = turn().await;
            let Some(event) = events.next() else { return Ok(()) };
            place.send(event.map(|event| proto::WatchResponse { event: vec![event] }));
            drop(turn);
            tokio::task::yield_now().await;
        }
    }

    async fn give_up(&self, sender: &Sender<proto::WatchResponse>) -> Result<(), ()> {
        let text = "the watch fell behind: too many changes at once";
        if self.version < WITH_STATES {
            return sender.send(Err(Status::resource_exhausted(text))).await.map_err(drop);
        }
        let mut errored = self.bare(proto::EventType::Errored);
        errored.error = Some(text.to_owned());
        self.send_all(std::iter::once(Ok(errored)), sender).await
    }

    /// The changes since the bookmark, or the last ones as asked for.
    fn past(&self, past: &[Change]) -> Vec<Result<proto::Event, Status>> {
        let mut events: Vec<_> = past.iter().filter_map(|change| self.changed(change)).collect();
        if self.options.start_from_bookmark.is_none() {
            let count = usize::try_from(self.options.tail_events).unwrap_or(0);
            events.drain(..events.len().saturating_sub(count));
        }
        events
    }

    /// With an id: its state or a tombstone. Without: everything, if asked for, then BOOTSTRAPPED.
    fn present<'a>(
        &'a self,
        now: &'a [Arc<Resource>],
        bookmark: Bookmark,
    ) -> Box<dyn Iterator<Item = Result<proto::Event, Status>> + Send + 'a> {
        let created = move |resource: &Arc<Resource>| {
            encode(resource).map(|resource| event(proto::EventType::Created, resource, None, bookmark))
        };
        let mut wanted = now.iter().filter(|r| self.names(r) && self.selection.selects(r));
        let wants_past = self.options.start_from_bookmark.is_some() || self.options.tail_events > 0;
        let bare = |kind| {
            let mut event = self.bare(kind);
            event.bookmark = Some(bookmark.to_bytes());
            Ok(event)
        };
        let one = |event| Box::new(std::iter::once(event));
        match &self.id {
            Some(_) if wants_past => Box::new(std::iter::empty()),
            Some(id) => match wanted.next() {
                Some(resource) => one(created(resource)),
                None => {
                    let gone = tombstone(self.kind, id);
                    one(Ok(event(proto::EventType::Destroyed, gone, None, bookmark)))
                }
            },
            None if self.options.bootstrap_contents => {
                let end = (self.version >= WITH_STATES).then(|| bare(proto::EventType::Bootstrapped));
                Box::new(wanted.map(created).chain(end))
            }
            None if self.options.bootstrap_bookmark => one(bare(proto::EventType::Noop)),
            None => Box::new(std::iter::empty()),
        }
    }

    /// An event about no resource; both submessages are there all the same.
    fn bare(&self, kind: proto::EventType) -> proto::Event {
        proto::Event {
            resource: Some(tombstone(self.kind, "")),
            event_type: kind.into(),
            old: None,
            error: None,
            bookmark: None,
        }
    }

    /// A change as this watch sees it: one that begins to be selected is created for it, one that ceases is destroyed.
    fn changed(&self, change: &Change) -> Option<Result<proto::Event, Status>> {
        if !self.names(&change.resource) {
            return None;
        }
        let selected = self.selection.selects(&change.resource);
        let before = change.old.as_ref().map(|old| self.selection.selects(old));
        let kind = match (change.kind, before, selected) {
            (ChangeKind::Created, _, true) | (ChangeKind::Updated, Some(false), true) => {
                proto::EventType::Created
            }
            (ChangeKind::Updated, _, true) => proto::EventType::Updated,
            (ChangeKind::Destroyed, _, true) | (ChangeKind::Updated, Some(true), false) => {
                proto::EventType::Destroyed
            }
            (_, _, false) => return None,
        };
        let encoded = || {
            let old = match kind {
                proto::EventType::Updated => change.old.as_ref().map(|old| encode(old)).transpose()?,
                _ => None,
            };
            Ok(event(kind, encode(&change.resource)?, old, change.bookmark))
        };
        Some(encoded())
    }
}

fn event(
    kind: proto::EventType,
    resource: proto::Resource,
    old: Option<proto::Resource>,
    bookmark: Bookmark,
) -> proto::Event {
    proto::Event {
        resource: Some(resource),
        event_type: kind.into(),
        old,
        error: None,
        bookmark: Some(bookmark.to_bytes()),
    }
}
